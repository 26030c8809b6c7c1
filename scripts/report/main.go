// Command report reads the output of go test -json and prints a line for each
// package, the output of each failed test, the skipped tests with their reasons,
// and the total.
//
//	go test -json ./... | go run ./scripts/report -total FILE
//
// It fails if a test or a package has failed. With -skips LIST it also fails if a
// test was skipped and LIST does not name it; a comment in LIST explains its form. report
// writes the total to FILE, in the form "N passed, N failed", so that a script can print it last.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

func main() {
	totalFile := flag.String("total", "", "`file` to write the total to")
	skipsFile := flag.String("skips", "", "`file` that names the tests that may be skipped")
	flag.Parse()
	allowed, err := readSkips(*skipsFile)
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	}
	total, err := report(os.Stdin, os.Stdout, allowed)
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
	Action, Package, Test, Output string
	Elapsed                       float64
}

// module begins each import path of this module; the list of skips leaves it out.
const module = "holdfast/"

// skips are patterns of the tests that may be skipped: a package and a test, separated by a space.
// nil allows every skip.
type skips []string

// readSkips reads the list of allowed skips. If name is empty, there is no list and every skip is
// allowed.
func readSkips(name string) (skips, error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parseSkips(string(text))
}

// parseSkips parses a list of allowed skips: package, test and reason in each line.
func parseSkips(text string) (skips, error) {
	allowed := skips{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if len(words) < 3 {
			return nil, fmt.Errorf("invalid line %q in the list of skips: it must be a package, a test and a reason", strings.TrimSpace(line))
		}
		pattern := words[0] + " " + words[1]
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("invalid line %q in the list of skips: %w", strings.TrimSpace(line), err)
		}
		allowed = append(allowed, pattern)
	}
	return allowed, nil
}

// allow reports whether the test of a package may be skipped.
func (s skips) allow(pkg, test string) bool {
	if s == nil {
		return true
	}
	name := strings.TrimPrefix(pkg, module) + " " + test
	return slices.ContainsFunc(s, func(pattern string) bool {
		ok, _ := path.Match(pattern, name) // the pattern is valid, because parseSkips has checked it
		return ok
	})
}

type counts struct{ passed, failed, skipped int }

func (c counts) String() string { return fmt.Sprintf("%d passed, %d failed", c.passed, c.failed) }

// A reporter stores the output of each test until the test ends, and prints it only if the test
// failed.
type reporter struct {
	out     io.Writer
	allowed skips
	skipped []string // a line for each skipped test
	total   counts
	said    map[string][]string // by package, and by package and test
	blame   map[string]int      // failed tests by package
}

func report(in io.Reader, out io.Writer, allowed skips) (counts, error) {
	r := reporter{out: out, allowed: allowed, said: map[string][]string{}, blame: map[string]int{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			r.line(line)
		}
		if errors.Is(err, io.EOF) {
			r.end()
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
		fmt.Fprint(r.out, line) // a message of go itself
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

// test counts the result of a test, and prints the output of a failed one.
func (r *reporter) test(e event, key string) {
	switch e.Action {
	case "pass":
		r.total.passed++
	case "skip":
		r.skip(e, reason(r.said[key]))
	case "fail":
		r.total.failed++
		r.blame[e.Package]++
		fmt.Fprintf(r.out, "FAIL  %s %s\n%s", e.Package, e.Test, strings.Join(r.said[key], ""))
	default:
		return
	}
	delete(r.said, key)
}

// skip counts a skipped test. If the list does not allow the skip, the test counts as failed.
func (r *reporter) skip(e event, why string) {
	r.total.skipped++
	word := "skip"
	if !r.allowed.allow(e.Package, e.Test) {
		r.total.failed++
		word = "FAIL"
		why += " (the list of skips does not name this test: make it run, or add it with a reason)"
	}
	r.skipped = append(r.skipped, fmt.Sprintf("%s  %s %s: %s\n", word, e.Package, e.Test, why))
}

// end prints the skipped tests; those that the list does not allow come last.
func (r *reporter) end() {
	slices.SortStableFunc(r.skipped, func(a, b string) int { return -strings.Compare(a[:4], b[:4]) })
	for _, line := range r.skipped {
		fmt.Fprint(r.out, line)
	}
}

// pkg prints the result of a package. If a package failed and none of its tests did, because it does
// not build or its process died, the package itself counts as a failure.
func (r *reporter) pkg(e event, key string) {
	switch e.Action {
	case "pass":
		fmt.Fprintf(r.out, "ok    %s %.1fs\n", e.Package, e.Elapsed)
	case "fail":
		if r.blame[e.Package] == 0 {
			r.total.failed++
		}
		fmt.Fprintf(r.out, "FAIL  %s %.1fs\n%s", e.Package, e.Elapsed, strings.Join(r.said[key], ""))
		r.unfinished(e.Package)
	}
	delete(r.said, key)
}

// unfinished prints the output of the tests of a failed package that have no result: they ran when the process died. Their
// output has the stacks of a crash or of a time-out.
func (r *reporter) unfinished(name string) {
	for _, key := range slices.Sorted(maps.Keys(r.said)) {
		if test, ok := strings.CutPrefix(key, name+" "); ok && test != "" {
			fmt.Fprintf(r.out, "FAIL  %s (no result)\n%s", key, strings.Join(r.said[key], ""))
			delete(r.said, key)
		}
	}
}

// reason returns the output of a skipped test, without the lines that go test adds.
func reason(said []string) string {
	var words []string
	for _, s := range said {
		if s = strings.TrimSpace(s); s != "" && !strings.HasPrefix(s, "===") && !strings.HasPrefix(s, "---") {
			words = append(words, s)
		}
	}
	return strings.Join(words, " ")
}
