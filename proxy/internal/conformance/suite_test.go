package conformance

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// patience ends what hangs; a client without mistakes never waits for it.
const patience = 30 * time.Second

// passes runs the suite against a client, which must pass all scenarios. It returns how many were skipped.
func passes(t *testing.T, o Options) (lacks map[string]int) {
	t.Helper()
	lacks = make(map[string]int)
	count := 0
	err := Run(t.Context(), o, func(r Result) {
		count++
		if testing.Verbose() {
			t.Log(r)
		}
		if r.Lacks != "" {
			lacks[r.Lacks]++
		}
		if len(r.Faults) > 0 {
			t.Errorf("%v", r)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d scenarios, lacks %v", count, lacks)
	return lacks
}

// A client that is written from SPEC.md alone passes.
func TestPlain(t *testing.T) {
	t.Parallel()
	passes(t, Options{Start: plainStart("", new(net.Dialer).DialContext), Patience: patience})
}

// The client passes with fake connections and a fake clock, too, so it is its mistakes that TestMistakes catches.
func TestPlainInMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		memory := newMemoryNet()
		passes(t, Options{Start: plainStart("", memory.dial), Patience: patience, listen: memory.listen})
	})
}
