//go:build linux

package e2e

import (
	"io"
	"syscall"
	"testing"
	"time"

	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// If a gate is stopped and another one serves, an attachment at the stopped gate continues at the other one, also if its
// host was connected to the stopped gate, and each byte arrives once. When the gate continues, it serves clients again.
// demand: S9
func TestStoppedGate(t *testing.T) {
	t.Parallel()
	f := newGates(t, 2, "blue")
	c := f.enter("blue")
	echo := f.echo(c, "echo")
	_ = c.Close() // the attachment has a connection of its own
	rounds := 1
	if isLong {
		rounds = 5 // so that the host is at the stopped gate in some, which takes 20 s longer
	}
	for round := range rounds {
		var stopped *gatehouse
		testkit.Eventually(t, limit, func() bool {
			count := 0
			for _, g := range f.all {
				if connectionsTo(t, g.listen) > 0 {
					stopped = g
					count++
				}
			}
			return count == 1
		}, "the client has a connection to one gate")
		hasHost := f.at(stopped, "blue").Gate == stopped.listen
		stopped.daemon.Signal(syscall.SIGSTOP)
		defer stopped.daemon.Signal(syscall.SIGCONT)
		began := time.Now()
		if _, err := io.WriteString(echo, "x"); err != nil {
			t.Fatal(err)
		}
		for got := ""; got != "x"; {
			m, err := echo.Receive(2 * limit)
			if err != nil {
				t.Fatalf("round %d: the echo is %q, %v; nothing came for %v", round, got, err, echo.Stalled())
			}
			if m.Kind == client.Output {
				got += string(m.Data)
			}
		}
		t.Logf("the host was connected to the stopped gate: %v; the echo came after %v", hasHost, time.Since(began))
		stopped.daemon.Signal(syscall.SIGCONT)
		if err := echoOnce(echo.Attachment, "y"); err != nil {
			t.Error(err)
		}
		f.place("blue")
	}
}
