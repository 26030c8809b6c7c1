package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

var root = filepath.Join("..", "..")

// figure is how the program writes a figure.
var figure = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?( (ns|µs|ms|s|MB/s))?$`)

// The page has each table as the program writes it, with figures of a run, and names its command.
func TestPage(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, page))
	testkit.Must(t, err)
	text := string(data)
	for _, tt := range tables {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(text, tt.command()) {
				t.Errorf("the page lacks the command %s", tt.command())
			}
			from, to, err := inPage(text, tt.name)
			testkit.Must(t, err)
			lines := strings.Split(text[from:to], "\n")
			if len(lines) != 2+len(tt.rows)+3 || lines[len(lines)-3] != "" || !strings.HasPrefix(lines[len(lines)-2], "Measured with ") {
				t.Fatalf("it is not what the program writes:\n%s", text[from:to])
			}
			if head := "| " + strings.Join(tt.head, " | ") + " |"; lines[0] != head {
				t.Errorf("its head is %q, want %q", lines[0], head)
			}
			for i, row := range tt.rows {
				cells := strings.Split(strings.Trim(lines[2+i], "|"), "|")
				if len(cells) != len(row) {
					t.Fatalf("%q has %d cells, want %d", lines[2+i], len(cells), len(row))
				}
				for j, c := range row {
					got := strings.TrimSpace(cells[j])
					if c.from == nil && got != c.text {
						t.Errorf("got %q, want %q", got, c.text)
					}
					if c.from != nil && !figure.MatchString(got) {
						t.Errorf("%q is no figure that the program writes", got)
					}
				}
			}
		})
	}
}

// The output of a benchmark becomes a table, and that replaces the one in the page.
func TestText(t *testing.T) {
	gate := tables[2]
	const output = `goos: linux
BenchmarkGate/echo-2         	       1	       428.4 gate-p50-µs	       852.0 gate-p99-µs	       222.1 local-p50-µs	       570.0 local-p99-µs	       517.0 ssh-p50-µs	       986.0 ssh-p99-µs
BenchmarkGate/attach-2       	       1	      8621 gate-p50-µs	     21034 gate-p99-µs	      2004 local-p50-µs	      6061 local-p99-µs	    652400 ssh-p50-µs	    676900 ssh-p99-µs
BenchmarkGate/drain-2        	       1	        48.10 gate-MB/s	         0.7500 gate/local	        64.20 local-MB/s	         1.000 local/local	        43.40 ssh-MB/s	         0.6700 ssh/local
PASS
`
	got, err := gate.text(output, "4 processors (X), Linux 6.1, go1.26.0")
	testkit.Must(t, err)
	const want = `| figure | goal | by its socket | through a gate | by ssh |
| --- | --- | --- | --- | --- |
| echo of a key, median | at most 150 µs more than by its socket | 222 µs | 428 µs | 517 µs |
| echo of a key, 99 of 100 | at most 500 µs more | 570 µs | 852 µs | 986 µs |
| from the first connection to the screen, median | at most 5 ms more | 2.0 ms | 8.6 ms | 652 ms |
| from the first connection to the screen, 99 of 100 | at most 25 ms more | 6.1 ms | 21.0 ms | 677 ms |
| output that a viewer reads | at least 0.8 of that by its socket | 64 MB/s | 48 MB/s | 43 MB/s |

Measured with 4 processors (X), Linux 6.1, go1.26.0.
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	page, err := replace("before\n"+begin("host")+"old\n"+end+"\nafter\n", "host", got)
	if err != nil || page != "before\n"+begin("host")+want+end+"\nafter\n" {
		t.Errorf("%v, the page is\n%s", err, page)
	}
	if _, err := gate.text(strings.Replace(output, "gate-p99-µs", "p99-µs", 1), ""); err == nil || !strings.Contains(err.Error(), "lacks gate-p99-µs") {
		t.Errorf("an output without a figure: %v", err)
	}
	if _, err := replace(page, "none", ""); err == nil {
		t.Error("there is no table none, and no error")
	}
}

// The log of a test becomes a table.
func TestLogged(t *testing.T) {
	const output = `    large_test.go:97: screens: p50 4.1ms, p99 20.5ms of processor time; p50 5ms, p99 24.1ms
    large_test.go:109: search for "needle": 2.004s, 3.1s of processor time
    large_test.go:109: search for "n[e]{2}dle$": 2.1s, 3.2s of processor time
    large_test.go:109: search for "needle|[xyz]adel": 13.02s, 24s of processor time
`
	got, err := tables[1].text(output, "")
	for _, want := range []string{"| at most 50 ms | 24 ms |", "| at most 3 s | 2.0 s |", "| | 13.0 s |", "an unknown machine"} {
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("%v, it lacks %q:\n%s", err, want, got)
		}
	}
}

// The program measures the start of commands on this machine, and names the machine.
func TestStart(t *testing.T) {
	if os.Getenv("HOLDFAST_LONG") == "" {
		t.Skip("measures for half a minute; set HOLDFAST_LONG=1")
	}
	var out bytes.Buffer
	testkit.Must(t, run(t.Context(), []string{"-print", "-root", root, "start"}, &out))
	if want := fmt.Sprintf("Measured with %s.\n", machine(context.Background())); !strings.HasSuffix(out.String(), want) {
		t.Errorf("got\n%s\nwant it to end with %s", &out, want)
	}
}
