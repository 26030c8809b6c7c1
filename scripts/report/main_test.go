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
		{"no tests", `{"Action":"skip","Package":"m/a"}` + "\n", counts{}, "", "m/a"},
		{"not JSON", "go: no such tool", counts{}, "go: no such tool", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			got, err := report(strings.NewReader(tt.in), &out)
			if got != tt.want || err != nil {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
			if !strings.Contains(out.String(), tt.says) || tt.silent != "" && strings.Contains(out.String(), tt.silent) {
				t.Errorf("it says %q", out.String())
			}
		})
	}
	if got := (counts{3, 1, 2}).String(); got != "3 passed, 1 failed" {
		t.Error(got)
	}
}
