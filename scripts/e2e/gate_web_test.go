//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// The page of a gate, in a real browser, types into sessions of two hosts while the gate is killed and
// started again. The page's own test, gate.test.mjs, checks the results.
// demand: B6 B9
func TestGateWebPage(t *testing.T) {
	t.Parallel()
	dir := webPage(t)
	bin := testkit.BuildVersion(t, "page", "holdfast/proxy", "holdfast/supervisor") // built after the page
	f := &fleet{gatehouse: &gatehouse{world: newWorld(t), listen: testkit.FreeAddress(t)}, hosts: map[string]*world{}}
	f.Bin = bin
	f.serve()
	f.useGate()
	for _, name := range []string{"blue", "red"} {
		f.join(name, f.gatehouse)
	}
	for name := range f.hosts {
		f.await(name, "idle")
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.browse(filepath.Join(dir, "test", "gate", "gate.test.mjs"))
	}()
	for _, event := range []struct {
		name string
		do   func()
	}{{"gate-dies", f.die}, {"gate-serves", func() { f.serve() }}} {
		path := f.Path(event.name)
		for !exists(path) {
			select {
			case <-ended:
				t.Fatalf("the page's test has ended without %s", event.name)
			case <-time.After(10 * time.Millisecond):
			}
		}
		event.do()
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
	<-ended
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
