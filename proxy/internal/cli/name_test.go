package cli

import (
	"os"
	"testing"
)

// A text names the program that the user has called wherever it names a command, and nowhere else.
func TestNamed(t *testing.T) {
	called := os.Args[0]
	t.Cleanup(func() { os.Args[0] = called })
	const text = "no proxy runs; proxy ls lists, (proxy --handoff) replaces the proxy, `proxy help`, --proxy new, /bin/proxy new, a proxy that serves, Links of proxy\nshare"
	os.Args[0] = "/bin/proxy"
	if got := Named(text); got != text {
		t.Errorf("called as proxy: %q", got)
	}
	os.Args[0] = "holdfast"
	const want = "no proxy runs; holdfast ls lists, (holdfast --handoff) replaces the proxy, `holdfast help`, --proxy new, /bin/proxy new, a proxy that serves, Links of holdfast\nshare"
	if got := Named(text); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
