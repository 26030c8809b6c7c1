//go:build unix

package gate

import (
	"context"
	"errors"
	"net"
	"testing"

	"holdfast/proxy/internal/fleet/bus"
	"holdfast/proxy/internal/fleet/member"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/shared/testkit"
)

// A host whose file was restored from an older one is reachable, because its agent begins an epoch that the gate does not
// know.
func TestRestoredEpoch(t *testing.T) {
	b := newBench(t)
	a, state := joinedHouse(b, "x")
	pair, key := pairOf(t, state)
	before, err := bus.Connect(testkit.Soon(t), bus.HostOptions{Key: key, Receive: func(string, []byte) {}, LinkOptions: bus.LinkOptions{
		Dial:      func(context.Context) (net.Conn, string, error) { return b.prove(key, pair) },
		Connected: func() {}, Lost: func(error) {}, Failed: func(error) {},
	}})
	testkit.Must(t, err)
	last := record.Encode(record.Host{Stamp: record.Stamp{Epoch: 7, Seq: 1000}, Link: 1, Sum: record.Sum{}.String()})
	testkit.Eventually(t, limit, func() bool { return before.Publish(record.KindHost, last) == nil }, "the agent of before publishes")
	testkit.Eventually(t, limit, func() bool { return b.info("x").IsReachable }, "the host is reachable")
	before.Close()
	for _, tt := range []struct {
		name         string
		stored, want uint64
	}{
		{"the epoch of the agent is that of the agent of before", 6, 8},
		{"the epoch of the agent is an older one", 2, 9},
		{"the file has the last epoch", 9, 10},
	} {
		testkit.Eventually(t, limit, func() bool { return !b.info("x").IsReachable }, "the host is not reachable")
		state.Epoch = tt.stored
		testkit.Must(t, state.Save(a.path()))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := member.Run(ctx, a.options())
			ended <- err
		}()
		testkit.Eventually(t, limit, func() bool { return b.info("x").IsReachable }, "the host is reachable: "+tt.name)
		written, err := member.Load(a.path())
		cancel()
		if err := errors.Join(err, testkit.Within(t, limit, "the agent ends", ended)); err != nil || written.Epoch != tt.want {
			t.Errorf("%s: the epoch is %d, %v, want %d", tt.name, written.Epoch, err, tt.want)
		}
	}
}
