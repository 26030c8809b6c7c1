// Command report reads what go test -json prints and shows what matters of it:
// a line a package, all that a failed test said, and the total.
//
//	go test -json ./... | go run ./scripts/report -total FILE
//
// It fails if a test or a package has failed. FILE gets the total, in the form
// "N passed, N failed", for a script to print last.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	totalFile := flag.String("total", "", "`file` to write the total to")
	flag.Parse()
	total, err := report(os.Stdin, os.Stdout)
	if err == nil && *totalFile != "" {
		err = os.WriteFile(*totalFile, []byte(total.String()+"\n"), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	}
	if total.failed > 0 {
		os.Exit(1)
	}
}

// An event is a line of go test -json; see go doc test2json.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

type counts struct{ passed, failed, skipped int }

func (c counts) String() string { return fmt.Sprintf("%d passed, %d failed", c.passed, c.failed) }

// A reporter keeps what tests say until it is known whether it matters.
type reporter struct {
	out   io.Writer
	total counts
	said  map[string][]string // by package, and by package and test
	blame map[string]int      // failed tests by package
}

func report(in io.Reader, out io.Writer) (counts, error) {
	r := reporter{out: out, said: map[string][]string{}, blame: map[string]int{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			r.line(line)
		}
		if errors.Is(err, io.EOF) {
			return r.total, nil
		}
		if err != nil {
			return r.total, err
		}
	}
}

func (r *reporter) line(line string) {
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		fmt.Fprint(r.out, line) // go's own words
		return
	}
	switch key := e.Package + " " + e.Test; {
	case e.Action == "build-output":
		fmt.Fprint(r.out, e.Output)
	case e.Action == "output":
		r.said[key] = append(r.said[key], e.Output)
	case e.Test != "":
		r.test(e, key)
	case e.Action == "pass" || e.Action == "fail" || e.Action == "skip":
		r.pkg(e, key)
	}
}

// test takes the end of a test.
func (r *reporter) test(e event, key string) {
	switch e.Action {
	case "pass":
		r.total.passed++
	case "skip":
		r.total.skipped++
		fmt.Fprintf(r.out, "skip  %s %s: %s\n", e.Package, e.Test, reason(r.said[key]))
	case "fail":
		r.total.failed++
		r.blame[e.Package]++
		fmt.Fprintf(r.out, "FAIL  %s %s\n%s", e.Package, e.Test, strings.Join(r.said[key], ""))
	default:
		return
	}
	delete(r.said, key)
}

// pkg takes the end of a package. One that failed with no test to blame, as
// when it does not build or its process died, counts as one failure itself.
func (r *reporter) pkg(e event, key string) {
	switch e.Action {
	case "pass":
		fmt.Fprintf(r.out, "ok    %s %.1fs\n", e.Package, e.Elapsed)
	case "fail":
		if r.blame[e.Package] == 0 {
			r.total.failed++
		}
		fmt.Fprintf(r.out, "FAIL  %s %.1fs\n%s", e.Package, e.Elapsed, strings.Join(r.said[key], ""))
	}
	delete(r.said, key)
}

// reason returns what a skipped test said, without the lines about the test.
func reason(said []string) string {
	var words []string
	for _, s := range said {
		if s = strings.TrimSpace(s); s != "" && !strings.HasPrefix(s, "===") && !strings.HasPrefix(s, "---") {
			words = append(words, s)
		}
	}
	return strings.Join(words, " ")
}
