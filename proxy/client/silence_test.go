package client

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/shared/testkit"
)

// gatesOfTest are two gates. Connections that were made before stop answer no more after it, and do not end.
type gatesOfTest struct {
	t      *testing.T
	mu     sync.Mutex
	made   []*atomic.Bool // for each connection: it is stopped
	pings  atomic.Int64
	ponged protocol.Message // the answer to a ping
}

func (g *gatesOfTest) options() Options {
	o := piped(g.serve)
	o.Gate = &GateOptions{Addresses: []string{"one", "other"}}
	return o
}

func (g *gatesOfTest) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, isStopped := range g.made {
		isStopped.Store(true)
	}
}

func (g *gatesOfTest) connections() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.made)
}

func (g *gatesOfTest) serve(nc net.Conn) {
	isStopped := new(atomic.Bool)
	g.mu.Lock()
	g.made = append(g.made, isStopped)
	g.mu.Unlock()
	p := &peer{Conn: nc, t: g.t, r: frame.NewReader(nc, frame.Max)}
	for m := p.next(); m != nil; m = p.next() {
		if isStopped.Load() {
			continue
		}
		var answer protocol.Message
		switch m := m.(type) {
		case *api.Hello:
			answer = welcome(m)
		case *api.Ping:
			g.pings.Add(1)
			answer = g.ponged
		case *api.List:
			answer = api.Sessions{Request: m.Request, Sessions: []protocol.SessionInfo{session}}
		case *api.Attach:
			answer = api.Attached{Attachment: number, AttachInfo: exact(0)}
		case *api.Events:
			answer = api.Subscribed{Instance: "v", Seq: 3}
		default:
			continue
		}
		if p.write(p.control(answer)) != nil {
			return
		}
	}
}

// If a gate is stopped and another one serves, requests, attachments and subscriptions leave it, also if no input is written.
// demand: S9
func TestStoppedGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gatesOfTest{t: t, ponged: api.OK{Request: protocol.Request{RequestID: pingID}}}
		c, err := Dial(t.Context(), g.options())
		testkit.Must(t, err)
		defer func() { _ = c.Close() }()
		a, err := c.Attach(t.Context(), "s", AttachOptions{})
		testkit.Must(t, err)
		defer func() { _ = a.Close() }()
		events, err := c.Events(t.Context())
		testkit.Must(t, err)
		defer func() { _ = events.Close() }()
		go func() { _, _ = events.Next() }()
		waits := make(chan error, 1)
		go func() {
			_, err := c.Wait(t.Context(), "s", time.Hour)
			waits <- err
		}()
		g.stop()
		began := time.Now()
		if all, err := c.List(t.Context(), ""); err != nil || len(all) != 1 {
			t.Errorf("list: %v, %v", all, err)
		}
		if took := time.Since(began); took > 3*silentTime {
			t.Errorf("the list came after %v", took)
		}
		stalled := time.Duration(0)
		for g.connections() < 3+4 && time.Since(began) < time.Minute { // the list took one, and each subscription takes two
			stalled = max(stalled, a.Stalled())
			time.Sleep(time.Second)
		}
		if n := g.connections(); n != 3+4 || stalled < 3*time.Second {
			t.Errorf("there were %d connections, and the attachment reported a stall of %v", n, stalled)
		}
		if took := time.Since(began); took > calmTime+3*silentTime {
			t.Errorf("the others took %v", took)
		}
		synctest.Wait()
		select {
		case err := <-waits:
			t.Errorf("the wait has ended: %v", err)
		default:
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.conn == nil || a.ended {
			t.Errorf("the attachment has the connection %v", a.conn)
		}
	})
}

// A connection that is silent and answers pings stays, also if its proxy does not know them. A client of a single gate sends none.
func TestCalmConnection(t *testing.T) {
	for _, ponged := range []protocol.Message{
		api.OK{Request: protocol.Request{RequestID: pingID}},
		api.Error{Request: protocol.Request{RequestID: pingID}, Error: protocol.Error{Code: protocol.CodeUnsupported}},
	} {
		for _, addresses := range [][]string{{"one"}, {"one", "other"}} {
			synctest.Test(t, func(t *testing.T) {
				g := &gatesOfTest{t: t, ponged: ponged}
				o := g.options()
				o.Gate.Addresses = addresses
				c, err := Dial(t.Context(), o)
				testkit.Must(t, err)
				defer func() { _ = c.Close() }()
				a, err := c.Attach(t.Context(), "s", AttachOptions{})
				testkit.Must(t, err)
				defer func() { _ = a.Close() }()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				_, err = c.Wait(ctx, "s", -1)
				wantErr(t, "wait", err, context.DeadlineExceeded)
				if n := g.connections(); n != 2 || a.Stalled() != 0 || (g.pings.Load() > 0) != slices.Contains(addresses, "other") {
					t.Errorf("%d connections, stalled for %v, %d pings", n, a.Stalled(), g.pings.Load())
				}
				if _, err := a.Receive(0); err != ErrTimeout {
					t.Errorf("the attachment received %v", err)
				}
			})
		}
	}
}
