package main

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// past matches what writes for people past stdout, stderr and jsonTo of print.go.
var past = regexp.MustCompile(`fmt\.Print|(Fprint\w*|WriteString|NewWriter)\(os\.(Stdout|Stderr)|os\.(Stdout|Stderr)\.Write|json\.NewEncoder\([^&]`)

// Other people's words reach a terminal through package plain alone.
func TestOutputIsPlain(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if name == "print.go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(f)
		for n := 1; lines.Scan(); n++ {
			if past.MatchString(lines.Text()) {
				t.Errorf("%s:%d writes past print.go: %s", name, n, strings.TrimSpace(lines.Text()))
			}
		}
		_ = f.Close()
	}
	for _, line := range []string{"fmt.Println(x)", "fmt.Fprintln(os.Stderr, x)", "json.NewEncoder(out).Encode(x)", "os.Stdout.Write(p)"} {
		if !past.MatchString(line) {
			t.Errorf("%s is let through", line)
		}
	}
}
