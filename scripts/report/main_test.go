package main

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     counts
		says     string
		silent   string
	}{
		{"nothing", "", counts{}, "", ""},
		{"passes are silent", `{"Action":"run","Package":"m/a","Test":"TestX"}
{"Action":"output","Package":"m/a","Test":"TestX","Output":"chatter\n"}
{"Action":"pass","Package":"m/a","Test":"TestX"}
{"Action":"pass","Package":"m/a","Test":"TestY"}
{"Action":"pass","Package":"m/a","Elapsed":1.25}
`, counts{passed: 2}, "ok    m/a 1.2s\n", "chatter"},
		{"a failure is told", `{"Action":"output","Package":"m/a","Test":"TestX","Output":"got 1, want 2\n"}
{"Action":"fail","Package":"m/a","Test":"TestX"}
{"Action":"fail","Package":"m/a"}
`, counts{failed: 1}, "FAIL  m/a TestX\ngot 1, want 2\n", ""},
		{"a skip has its reason", `{"Action":"output","Package":"m/a","Test":"TestX","Output":"=== RUN   TestX\n"}
{"Action":"output","Package":"m/a","Test":"TestX","Output":"    x_test.go:1: only root\n"}
{"Action":"skip","Package":"m/a","Test":"TestX"}
{"Action":"pass","Package":"m/a"}
`, counts{skipped: 1}, "skip  m/a TestX: x_test.go:1: only root\n", "==="},
		{"it does not build", `{"ImportPath":"m/a [m/a.test]","Action":"build-output","Output":"a.go:1: undefined: x\n"}
{"ImportPath":"m/a [m/a.test]","Action":"build-fail"}
{"Action":"output","Package":"m/a","Output":"FAIL\tm/a [build failed]\n"}
{"Action":"fail","Package":"m/a","FailedBuild":"m/a [m/a.test]"}
`, counts{failed: 1}, "undefined: x\nFAIL  m/a 0.0s\nFAIL\tm/a [build failed]\n", ""},
		{"its process died", `{"Action":"output","Package":"m/a","Test":"TestX","Output":"panic: broken\n"}
{"Action":"output","Package":"m/ab","Test":"TestY","Output":"chatter\n"}
{"Action":"fail","Package":"m/a"}
`, counts{failed: 1}, "FAIL  m/a 0.0s\nFAIL  m/a TestX (no result)\npanic: broken\n", "chatter"},
		{"no tests", `{"Action":"skip","Package":"m/a"}` + "\n", counts{}, "", "m/a"},
		{"not JSON", "go: no such tool", counts{}, "go: no such tool", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			got, err := report(strings.NewReader(tt.in), &out, nil)
			if got != tt.want || err != nil {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
			if !strings.Contains(out.String(), tt.says) || tt.silent != "" && strings.Contains(out.String(), tt.silent) {
				t.Errorf("the report is %q", out.String())
			}
		})
	}
	if got := (counts{3, 1, 2}).String(); got != "3 passed, 1 failed" {
		t.Error(got)
	}
}

// A skipped test must make the run fail unless the list names the test.
func TestSkips(t *testing.T) {
	const in = `{"Action":"output","Package":"holdfast/scripts/a","Test":"TestX/one","Output":"    x_test.go:1: only root\n"}
{"Action":"skip","Package":"holdfast/scripts/a","Test":"TestX/one"}
{"Action":"pass","Package":"holdfast/scripts/a","Test":"TestX"}
{"Action":"skip","Package":"holdfast/scripts/b/c","Test":"TestY"}
{"Action":"pass","Package":"holdfast/scripts/b/c"}
`
	for _, tt := range []struct {
		list string
		want counts
		says string
	}{
		{"scripts/a TestX/* root is asked for\n# a comment\n\nscripts/b/c TestY it is long\n", counts{1, 0, 2}, "skip  holdfast/scripts/b/c TestY: \n"},
		{"scripts/a TestX/* root is asked for\n", counts{1, 1, 2}, "skip  holdfast/scripts/a TestX/one: x_test.go:1: only root\nFAIL  holdfast/scripts/b/c TestY:"},
		{"scripts/b/c TestX it is of another name\n", counts{1, 2, 2}, "FAIL  holdfast/scripts/a TestX/one"},
		{"", counts{1, 2, 2}, "FAIL  holdfast/scripts/b/c TestY"},
	} {
		allowed, err := parseSkips(tt.list)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if got, err := report(strings.NewReader(in), &out, allowed); got != tt.want || err != nil || !strings.Contains(out.String(), tt.says) {
			t.Errorf("%q: got %+v, %v, want %+v; it says %q", tt.list, got, err, tt.want, out.String())
		}
	}
	for _, list := range []string{"scripts/a TestX\n", "a Test[ why\n"} {
		if _, err := parseSkips(list); err == nil {
			t.Errorf("the list %q is accepted", list)
		}
	}
	if _, err := readSkips("skips.txt"); err != nil {
		t.Error(err)
	}
}
