package bus

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/record"
)

// clusterRetry is the longest pause before a gate tries again to connect with a cluster that is gone.
const clusterRetry = time.Second

// ClusterOptions name a NATS cluster of others, over which gates exchange their messages.
type ClusterOptions struct {
	URL         string // of NATS, such as tls://nats.example:4222; several are separated by commas
	Credentials string // path of a credentials file of NATS, or ""
	CA          string // path of a file with the authorities of the servers' certificates, or "" for those of the system
}

// A Cluster is the connection of a gate with a NATS cluster. Other people run the cluster, and may read all
// messages that cross it and publish their own. So each message is encrypted and authenticated with a key
// that only the gates have. The subjects still show how many gates there are and how much they publish.
type Cluster struct {
	conn   *nats.Conn
	lane   *lane
	isUp   atomic.Bool
	seal   cipher.AEAD
	self   string // address of this gate
	prefix string // of the subjects
}

// ClusterHandlers are called by a Cluster. The first three are as in LinkOptions.
type ClusterHandlers struct {
	Connected func()
	Lost      func(error)
	Failed    func(error)
	// Refused is called for a message that no gate of these hosts has made.
	Refused func(error)
	// Receive is called for each message of another gate, one after the other. key is that of a host, or "" for
	// a message between gates.
	Receive func(from string, to Direction, key, kind string, data []byte)
}

// A Direction tells which receivers a message has.
type Direction string

// The directions.
const (
	Up    Direction = "up"    // to all gates, from or about a host of the gate that sends it
	Down  Direction = "down"  // to a host of the gate that receives it
	Gates Direction = "gates" // to the gate that receives it
)

// A clusterHeader precedes the data of a message. A line feed separates them.
type clusterHeader struct {
	From string    `json:"from"` // address of the gate that sends it
	To   Direction `json:"to"`
	Key  string    `json:"key,omitempty"` // of the host, unless it is a message between gates
	Kind string    `json:"kind"`
}

// maxClusterHeader bounds the bytes of a header.
const maxClusterHeader = 1 << 10

// ConnectCluster connects a gate with a cluster, now and after each loss, until Close is called. It returns
// after the first attempt, also if that has failed. key has 32 bytes.
func ConnectCluster(o ClusterOptions, self string, key []byte, h ClusterHandlers) (*Cluster, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	seal, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	sum := sha256.Sum256(append([]byte("subjects of the cluster\n"), key...))
	c := &Cluster{seal: seal, self: self, prefix: "holdfast." + hex.EncodeToString(sum[:8]) + "."}
	options := []nats.Option{
		nats.Name("holdfast-gate"), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort(),
		nats.CustomReconnectDelay(func(attempts int) time.Duration { return min(delay(attempts), clusterRetry) }),
		nats.ReconnectBufSize(-1), // as between gates that are connected directly
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(maxPings), nats.FlusherTimeout(writeLimit),
		nats.ConnectHandler(func(*nats.Conn) { c.isUp.Store(true); h.Connected() }),
		nats.ReconnectHandler(func(*nats.Conn) { c.isUp.Store(true); h.Connected() }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { c.isUp.Store(false); h.Lost(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { h.Lost(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { h.Failed(err) }),
	}
	if o.Credentials != "" {
		options = append(options, nats.UserCredentials(o.Credentials))
	}
	if o.CA != "" {
		options = append(options, nats.RootCAs(o.CA))
	}
	if c.conn, err = nats.Connect(o.URL, options...); err != nil {
		return nil, fmt.Errorf("bus: NATS cluster: %w", err)
	}
	c.lane = newLane(c.conn)
	for _, subject := range []string{c.prefix + "all", c.subjectOf(self)} {
		s, err := c.conn.Subscribe(subject, func(m *nats.Msg) {
			header, data, err := c.open(m.Subject, m.Data)
			if err != nil {
				h.Refused(err)
				return
			}
			if header.From != c.self {
				h.Receive(header.From, header.To, header.Key, header.Kind, data)
			}
		})
		if err == nil {
			err = s.SetPendingLimits(maxQueue, maxQueue*(4<<10))
		}
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("bus: NATS cluster: %w", err)
		}
	}
	return c, nil
}

// subjectOf returns the subject of the messages to one gate.
func (c *Cluster) subjectOf(address string) string {
	sum := sha256.Sum256([]byte(c.prefix + address))
	return c.prefix + hex.EncodeToString(sum[:8])
}

// Announce sends a message from or about a host of this gate to all other gates.
func (c *Cluster) Announce(key, kind string, data []byte) error {
	return c.publish(c.prefix+"all", clusterHeader{c.self, Up, key, kind}, data)
}

// To returns the way to another gate.
func (c *Cluster) To(address string) ClusterGate { return ClusterGate{c, address} }

// A ClusterGate is another gate of the cluster. It has the methods of a Peer for messages.
type ClusterGate struct {
	c       *Cluster
	address string
}

// Publish sends a message to a host of the other gate.
func (g ClusterGate) Publish(key, kind string, data []byte) error {
	return g.c.publish(g.c.subjectOf(g.address), clusterHeader{g.c.self, Down, key, kind}, data)
}

// Tell sends a message to the other gate.
func (g ClusterGate) Tell(kind string, data []byte) error {
	return g.c.publish(g.c.subjectOf(g.address), clusterHeader{g.c.self, Gates, "", kind}, data)
}

func (c *Cluster) publish(subject string, h clusterHeader, data []byte) error {
	if !c.isUp.Load() {
		return errNotConnected
	}
	head, err := json.Marshal(h)
	if err != nil {
		return err
	}
	nonce := make([]byte, c.seal.NonceSize(), c.seal.NonceSize()+len(head)+1+len(data)+c.seal.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return err
	}
	data = c.seal.Seal(nonce, nonce, bytes.Join([][]byte{head, data}, []byte{'\n'}), []byte(subject))
	return c.lane.add(outgoing{subject: subject, data: data})
}

// open decrypts a message, and checks its header.
func (c *Cluster) open(subject string, sealed []byte) (h clusterHeader, data []byte, err error) {
	n := c.seal.NonceSize()
	if len(sealed) < n || len(sealed) > n+maxClusterHeader+record.MaxMessage+c.seal.Overhead() {
		return h, nil, fmt.Errorf("a message of the NATS cluster has %d bytes", len(sealed))
	}
	plain, err := c.seal.Open(nil, sealed[:n], sealed[n:], []byte(subject))
	if err != nil {
		return h, nil, errors.New("a message of the NATS cluster was not made by a gate of these hosts")
	}
	return parseCluster(plain)
}

// parseCluster parses a message that was decrypted.
func parseCluster(plain []byte) (h clusterHeader, data []byte, err error) {
	head, data, ok := bytes.Cut(plain, []byte{'\n'})
	if !ok || len(head) > maxClusterHeader {
		return h, nil, errors.New("a message of the NATS cluster has no header")
	}
	if err := json.Unmarshal(head, &h); err != nil {
		return h, nil, fmt.Errorf("a message of the NATS cluster has no header: %w", err)
	}
	isKey := len(h.Key) <= 128 && !strings.ContainsAny(h.Key, ".*> \t\r\n") && (h.Key == "") == (h.To == Gates)
	isKind := len(h.Kind) > 0 && len(h.Kind) <= 64 && !strings.ContainsAny(h.Kind, ".*> \t\r\n")
	if !gate.ValidAddress(h.From) || !isKey || !isKind || h.To != Up && h.To != Down && h.To != Gates {
		return h, nil, fmt.Errorf("a message of the NATS cluster has the header %.200q", head)
	}
	return h, data, nil
}

// IsConnected reports whether the gate is connected with the cluster.
func (c *Cluster) IsConnected() bool { return c.isUp.Load() }

// Close ends the connection.
func (c *Cluster) Close() {
	c.lane.close()
	c.conn.Close()
}
