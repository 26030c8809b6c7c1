//go:build linux

package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// connectionsTo returns the number of connections of this process to an IPv4 address.
func connectionsTo(t *testing.T, address string) (count int) {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	testkit.Must(t, err)
	n, err := strconv.Atoi(port)
	testkit.Must(t, err)
	own := map[string]bool{} // inodes of this process's sockets
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, link := range links {
		to, _ := os.Readlink(link) // the descriptor may have been closed
		if inode, ok := strings.CutPrefix(to, "socket:["); ok {
			own[strings.TrimSuffix(inode, "]")] = true
		}
	}
	table, err := os.ReadFile("/proc/self/net/tcp")
	testkit.Must(t, err)
	for line := range strings.Lines(string(table)) {
		const remote, state, inode = 2, 3, 9
		words := strings.Fields(line)
		if strings.HasSuffix(words[remote], fmt.Sprintf(":%04X", n)) && words[state] == "01" && own[words[inode]] {
			count++
		}
	}
	return count
}

// One of three gates is killed repeatedly under many clients. All clients must continue through another gate,
// no byte may be missing or duplicated in either direction, and no session may end. The test logs the times
// until the clients continued, and sets no limit: all programs share one machine, and each client needs two
// TLS handshakes, whose processor time decides. The test needs HOLDFAST_LONG=1; HOLDFAST_CLIENTS=NUMBER and
// HOLDFAST_GATE_KILLS=NUMBER set its size.
// demand: S9
func TestGateKillsUnderManyClients(t *testing.T) {
	if !isLong {
		t.Skip("long mode: set HOLDFAST_LONG=1")
	}
	const hosts = 10
	count, kills := number(t, "HOLDFAST_CLIENTS", 1000), number(t, "HOLDFAST_GATE_KILLS", 100)
	f := newGates(t, 3)
	var names []string
	for i := range hosts {
		names = append(names, fmt.Sprint("host-", i))
		f.join(names[i], f.all[i%len(f.all)], append(restless, "HOLDFAST_SPAWN_RATE=1000")...)
	}
	for _, name := range names {
		f.place(name)
	}
	var callers []*caller
	for i := range count {
		c := f.enter(names[i%hosts])
		callers = append(callers, newCaller(f.world, c, fmt.Sprint("called-", i), 20*time.Second))
		_ = c.Close() // the attachment has a connection of its own
	}
	var shells []map[protocol.SessionID]process
	for _, name := range names {
		shells = append(shells, f.pidsOf(f.enter(name)))
	}
	t.Logf("%d clients are attached", count)

	stopWatch := f.watch()
	var took, all []time.Duration
	for k := range kills {
		g := f.all[k%len(f.all)]
		moved := connectionsTo(t, g.listen)
		since := time.Now()
		g.die()
		waits := resumed(t, callers, since)
		if t.Failed() {
			break
		}
		slowest := waits[len(waits)-min(moved, len(waits)):] // the slowest clients may not be those of the gate, but they are not faster
		took, all = append(took, slowest...), append(all, waits...)
		t.Logf("kill %d: of %d clients that were connected with the gate, all continued after %v (median), %v (99 of 100), %v at most", k, moved, quantile(slowest, 0.5), quantile(slowest, 0.99), quantile(slowest, 1))
		g.serve()
		time.Sleep(rand.N(time.Second)) // so that the gates are sometimes connected and sometimes not
	}
	answers, rows := stopWatch()
	for i, name := range names {
		if now := f.pidsOf(f.enter(name)); !maps.Equal(now, shells[i]) {
			t.Errorf("the shells of %s were %v; now they are %v", name, shells[i], now)
		}
	}
	var lines int64
	for _, x := range callers {
		lines += x.answered.Load()
	}
	slices.Sort(took)
	slices.Sort(all)
	t.Logf("%d kills under %d clients, %d typed lines were answered; %d lists of sessions with %d rows", kills, count, lines, answers, rows)
	t.Logf("the clients of the killed gates continued %d times: after %v (median), %v (99 of 100), %v at most; all clients: %v (99 of 100)", len(took), quantile(took, 0.5), quantile(took, 0.99), quantile(took, 1), quantile(all, 0.99))
}
