package bus

import (
	"bytes"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"holdfast/shared/testkit"
)

// A received is a message that a gate has received over a cluster.
type received struct {
	from      string
	to        Direction
	key, kind string
	data      string
}

// connectCluster connects a gate with a server of NATS, and returns what it receives and what it refuses.
func connectCluster(t *testing.T, url, self string, key byte) (c *Cluster, in chan received, refused chan error) {
	t.Helper()
	in, refused = make(chan received, 64), make(chan error, 64)
	connected := make(chan bool, 16)
	c, err := ConnectCluster(ClusterOptions{URL: url}, self, bytes.Repeat([]byte{key}, 32), ClusterHandlers{
		Connected: func() { connected <- true }, Lost: func(error) {}, Failed: func(error) {}, Refused: func(err error) { refused <- err },
		Receive: func(from string, to Direction, key, kind string, data []byte) {
			in <- received{from, to, key, kind, string(data)}
		},
	})
	testkit.Must(t, err)
	t.Cleanup(c.Close)
	testkit.Within(t, limit, "the gate connects", connected)
	testkit.Must(t, c.conn.Flush())
	return c, in, refused
}

// Gates of the same key receive each other's messages. A program of the same account that subscribes to
// everything reads nothing, and what it publishes, or repeats on another subject, is refused; so are the
// messages of gates with another key.
func TestClusterSecret(t *testing.T) {
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true})
	testkit.Must(t, err)
	srv.Start()
	defer srv.Shutdown()
	if !srv.ReadyForConnections(limit) {
		t.Fatal("the server does not start")
	}
	a, inA, _ := connectCluster(t, srv.ClientURL(), "a:1", 1)
	b, inB, refusedB := connectCluster(t, srv.ClientURL(), "b:1", 1)
	_, inC, _ := connectCluster(t, srv.ClientURL(), "b:1", 2)
	spy, err := nats.Connect(srv.ClientURL())
	testkit.Must(t, err)
	defer spy.Close()
	seen := make(chan *nats.Msg, 64)
	if _, err := spy.ChanSubscribe(">", seen); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, spy.Flush())

	const word = "workspace-of-ann"
	for _, tt := range []struct {
		send func() error
		in   chan received
		want received
	}{
		{func() error { return a.Announce("KEY", "change", []byte(word)) }, inB, received{"a:1", Up, "KEY", "change", word}},
		{func() error { return a.To("b:1").Publish("KEY", "dial", []byte(word)) }, inB, received{"a:1", Down, "KEY", "dial", word}},
		{func() error { return b.To("a:1").Tell("members", []byte(word+"\n")) }, inA, received{"b:1", Gates, "", "members", word + "\n"}},
	} {
		testkit.Must(t, tt.send())
		if got := testkit.Within(t, limit, "the message", tt.in); got != tt.want {
			t.Errorf("got %+v, want %+v", got, tt.want)
		}
		m := testkit.Within(t, limit, "the message at the spy", seen)
		for _, secret := range []string{word, "KEY", "a:1", "b:1", tt.want.kind} {
			if bytes.Contains(m.Data, []byte(secret)) || strings.Contains(m.Subject, secret) {
				t.Errorf("the spy reads %q", secret)
			}
		}
		forged := bytes.Clone(m.Data)
		forged[len(forged)-1] ^= 1
		for _, try := range []*nats.Msg{
			{Subject: a.subjectOf("b:1"), Data: forged},
			{Subject: a.subjectOf("b:1"), Data: []byte(`{"from":"a:1","to":"gates","kind":"members"}` + "\n{}")},
			{Subject: a.subjectOf("b:1")},
			{Subject: a.subjectOf("b:1"), Data: append(bytes.Clone(m.Data), 0)},
		} {
			testkit.Must(t, spy.PublishMsg(try))
			testkit.Within(t, limit, "the refusal", refusedB)
			<-seen // its own message
		}
		if tt.want.to == Up { // a message to all gates is none to one gate
			testkit.Must(t, spy.Publish(a.subjectOf("b:1"), m.Data))
			testkit.Within(t, limit, "the refusal", refusedB)
			<-seen
		}
	}
	if len(inA)+len(inB)+len(inC) > 0 {
		t.Error("a gate has received a message of a stranger")
	}
}

// FuzzCluster: whatever bytes come, no panic, and the header of an accepted message is within its limits.
func FuzzCluster(f *testing.F) {
	f.Add([]byte(`{"from":"a:1","to":"up","key":"K","kind":"change"}` + "\n{}"))
	f.Add([]byte(`{"from":"a:1","to":"gates","kind":"members"}` + "\n{}"))
	f.Add([]byte(`{"from":"a:1","to":"down","key":"a.>","kind":"dial"}` + "\n"))
	f.Fuzz(func(t *testing.T, plain []byte) {
		h, data, err := parseCluster(plain)
		if err != nil {
			return
		}
		if strings.ContainsAny(h.Key+h.Kind, ".*> \t\r\n") || len(h.Key) > 128 || len(h.Kind) > 64 || len(data) >= len(plain) {
			t.Errorf("accepted %+v with %d bytes", h, len(data))
		}
	})
}
