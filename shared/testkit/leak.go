package testkit

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// leakLimit is how long goroutines and descriptors may take to go after a test.
const leakLimit = 5 * time.Second

// CheckLeaks fails the test if, after its other clean-ups, goroutines run or
// descriptors are open that were not there when it was called. Call it first.
// It cannot tell whose they are, so not in a test that runs in parallel.
func CheckLeaks(t testing.TB) {
	t.Helper()
	before := openThings()
	t.Cleanup(func() {
		var left map[string]string
		if poll(leakLimit, func() bool { left = leaked(before, openThings()); return len(left) == 0 }) {
			return
		}
		t.Errorf("left behind:\n%s", strings.Join(slices.Sorted(maps.Values(left)), "\n"))
	})
}

// leaked returns what is in now but was not before.
func leaked(before, now map[string]string) map[string]string {
	left := map[string]string{}
	for id, what := range now {
		old, known := before[id]
		// A goroutine is the same wherever it stands by now; a descriptor's
		// number may have been given anew.
		if !known || strings.HasPrefix(what, "descriptor") && old != what {
			left[id] = what
		}
	}
	return left
}

// openThings returns goroutines and descriptors by what names them, with what
// to print of them.
func openThings() map[string]string {
	things := map[string]string{}
	for _, g := range stacks() {
		if id := goroutineID.FindString(g); id != "" && !isRuntimes(g) {
			things[id] = g
		}
	}
	// Elsewhere than on Linux there is no list of descriptors with names.
	fds, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range fds {
		to, err := os.Readlink(fd)
		if err == nil && !isPollers(to) { // Glob's own is closed by now
			things[fd] = "descriptor " + fd + " → " + to
		}
	}
	return things
}

var goroutineID = regexp.MustCompile(`^goroutine \d+`)

func stacks() []string {
	buf := make([]byte, 64<<10)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			return strings.Split(string(buf[:n]), "\n\n")
		}
		buf = make([]byte, 2*len(buf))
	}
}

// isRuntimes tells goroutines that start once and stay for the process.
func isRuntimes(stack string) bool {
	for _, s := range []string{"os/signal.signal_recv", "os/signal.loop", "testing.(*M).", "runtime.ensureSigM", "testing.tRunner("} {
		if strings.Contains(stack, s) {
			return true
		}
	}
	return false
}

// isPollers tells the descriptors of Go's network poller, open from the first
// use on.
func isPollers(to string) bool {
	return to == "anon_inode:[eventpoll]" || to == "anon_inode:[eventfd]"
}
