package gate

import (
	"fmt"
	"sync/atomic"
	"time"

	"holdfast/proxy/internal/fleet/bus"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/shared/logging"
)

// A gate with a NATS cluster has no connections with other gates: all their messages cross the cluster.
// Hosts are connected to the bus of the gate as without a cluster, and clients and hosts never reach the
// cluster. If it is gone, attachments and the hosts of the gate itself are not affected, and the hosts of
// the other gates cannot be reached through this one.

// greetings is how often a gate greets the others after a connection with the cluster was made, once a
// second. The servers of a cluster that starts again lose messages until they are connected with each other.
const greetings = 5

// A clusterState is the knowledge of a gate about its cluster.
type clusterState struct {
	conn   atomic.Pointer[bus.Cluster] // nil without a cluster, and before the first attempt to connect has ended
	reason atomic.Pointer[string]      // why the last attempt has failed
}

// A clusterLink is the way to another gate over the cluster.
type clusterLink struct {
	g       *Gate
	address string
}

func (l clusterLink) Publish(key, kind string, data []byte) error {
	if c := l.g.cluster.conn.Load(); c != nil {
		return c.To(l.address).Publish(key, kind, data)
	}
	return errNoLink
}

func (l clusterLink) Tell(kind string, data []byte) error {
	if c := l.g.cluster.conn.Load(); c != nil {
		return c.To(l.address).Tell(kind, data)
	}
	return errNoLink
}

func (l clusterLink) IsConnected() bool {
	c := l.g.cluster.conn.Load()
	return c != nil && c.IsConnected()
}

// useCluster connects the gate with its cluster until the gate ends.
func (g *Gate) useCluster() error {
	key, err := g.store.ClusterKey()
	if err != nil {
		return err
	}
	connected := make(chan struct{}, 1)
	c, err := bus.ConnectCluster(g.o.NATS, g.address, key, bus.ClusterHandlers{
		Connected: func() {
			select {
			case connected <- struct{}{}:
			default:
			}
		},
		Lost:   g.lostCluster,
		Failed: func(err error) { g.log.Warn().Err(err).Msg("messages of the NATS cluster lost") },
		Refused: func(err error) {
			g.refusals.Of(g.log).Warn().Bool(logging.Security, true).Err(err).Msg("message of the NATS cluster ignored")
		},
		Receive: g.receiveCluster,
	})
	if err != nil {
		return err
	}
	g.cluster.conn.Store(c)
	g.wg.Go(func() {
		defer c.Close()
		left := 0
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-connected:
				g.cluster.reason.Store(nil)
				g.log.Info().Msg("connected with the NATS cluster")
				left = greetings
			case <-tick.C:
			case <-g.ctx.Done():
				return
			}
			if left > 0 {
				left--
				g.greetCluster(c)
			}
		}
	})
	return nil
}

// greetCluster begins to use a new connection with the cluster: the hosts of this gate and of the others
// publish their records, because the last ones have not crossed the cluster.
func (g *Gate) greetCluster(c *bus.Cluster) {
	if !c.IsConnected() {
		return
	}
	for _, p := range g.allPeers() {
		g.greet(p)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for key := range g.onBus {
		_ = g.bus.Publish(key, record.KindHello, nil) // the host publishes its record soon without it
	}
}

// lostCluster notes that the cluster cannot be reached. It logs the first of several errors with the same
// text.
func (g *Gate) lostCluster(err error) {
	reason := fmt.Sprint(err)
	before := g.cluster.reason.Swap(&reason)
	for _, p := range g.allPeers() {
		g.disconnectPeer(p)
	}
	if (before == nil || *before != reason) && g.ctx.Err() == nil {
		g.log.Warn().Err(err).Msg("NATS cluster not connected; this gate tries again")
	}
}

// receiveCluster takes a message of another gate. Only a gate can have made it, so an unknown gate is added.
func (g *Gate) receiveCluster(from string, to bus.Direction, key, kind string, data []byte) {
	g.mu.Lock()
	isKnown := g.peers[from] != nil || g.isClosed
	g.mu.Unlock()
	if !isKnown {
		if _, err := g.change(func(now time.Time) (record.Members, error) { return g.store.AddGate(from, now) }); err != nil {
			g.refusals.Of(g.log).Warn().Bool(logging.Security, true).Err(err).Str("gate", from).Msg("message of another gate ignored")
			return
		}
	}
	switch to {
	case bus.Up:
		g.receive(from, key, kind, data)
	case bus.Down:
		_ = g.bus.Publish(key, kind, data) // if it is lost, the other gate asks again
	case bus.Gates:
		g.receiveGate(kind, data)
	}
}
