//go:build linux

package cli

import (
	"net"
	"testing"
)

// Until a command has attached, the terminal makes SIGQUIT of the first detach key. It must end the command as other
// signals do, and not by the default action, which prints all goroutines.
func TestDetachKeysBeforeAttach(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"attach", "s"}, {"attach"}, {"new"}, {"reopen", "s"}, {"revive", "s"}} {
		t.Run(args[0], func(t *testing.T) {
			w := newWorld(t)
			w.mkdir("")
			l, err := net.Listen("unix", w.Path("proxy.sock")) // a proxy that does not answer
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			p := w.open(args...)
			nc, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = nc.Close() }()
			p.typ("\x1cd")
			p.ends(131, "")
		})
	}
}
