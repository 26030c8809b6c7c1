package apiserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
)

// Clients with a share link may use only a part of each limit, so that the owner and clients with other links find
// room.
func TestShareLimits(t *testing.T) {
	w := newWorld(t, nil)
	newVault(w, map[protocol.SessionID]string{"mine": "", "other": ""})
	link, second := sharing("mine", "life-mine", time.Hour), sharing("mine", "life-mine", 2*time.Hour)
	attach := func(c *client, n uint32) {
		c.send(api.Attach{Request: req("a"), Attachment: n, AttachSpec: protocol.AttachSpec{SessionID: "mine", Mode: protocol.ModeReadOnly}})
	}
	var clients []*client
	for n := range uint32(maxLinkAttachments) { // on several connections
		if n%4 == 0 {
			clients = append(clients, w.by(link))
		}
		c := clients[len(clients)-1]
		attach(c, n)
		expect[*api.Attached](c)
	}
	c := w.by(link)
	attach(c, 1)
	c.wantError(protocol.CodeLimitExceeded)
	other := w.by(second)
	attach(other, 1)
	expect[*api.Attached](other)
	clients[0].send(api.Detach{Request: req("d"), Attachment: 0})
	expect[*api.Detached](clients[0])
	attach(c, 1)
	expect[*api.Attached](c)

	// The limits of connections: those of one link, and those of all links.
	for w.server.Clients() < maxLinkConns+1 { // one of these connections has the second link
		w.by(link)
	}
	w.connect(link).wantError(protocol.CodeLimitExceeded)
	for n := 3; w.server.Clients() < maxLinksConns; n++ {
		from := sharing("mine", "life-mine", time.Duration(n)*time.Hour)
		for range min(maxLinkConns, maxLinksConns-w.server.Clients()) {
			w.by(from)
		}
	}
	w.connect(sharing("mine", "life-mine", time.Minute)).wantError(protocol.CodeLimitExceeded)
	giver := w.connect(Origin{Transport: TransportWeb, Trusted: true, Cookie: true})
	giver.hello()
}

// After a handoff that has failed, every viewer of a share link sees its session again, although the old connections still
// occupy all places of the link.
func TestShareViewersAfterFailedHandoff(t *testing.T) {
	w := newWorld(t, nil)
	v := newVault(w, map[protocol.SessionID]string{"mine": ""})
	w.Answer(func(st *link.Stream, m protocol.Message) {
		attach, ok := m.(*wire.Attach)
		if !ok {
			v.answer(st, m)
			return
		}
		info := protocol.AttachInfo{Session: v.sessions["mine"], Replay: protocol.ReplayExact, Writer: attach.Writer}
		for err := st.Send(wire.Attached{AttachInfo: info}); err == nil; m, err = st.Receive() {
			if _, ok := m.(*wire.Pause); ok {
				_ = st.Send(wire.Paused{})
			}
		}
	})
	from := sharing("mine", "life-mine", time.Hour)
	clients := make([]*client, maxLinkAttachments)
	for i := range clients {
		clients[i] = w.by(from)
		clients[i].send(api.Attach{Request: req("a"), Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "mine", Mode: protocol.ModeReadOnly}})
		expect[*api.Attached](clients[i])
	}
	failure := errors.New("the successor is gone")
	owned := make(chan struct{})
	close(owned)
	var ready sync.WaitGroup
	closed, err := w.server.Freeze(testkit.Soon(t), maxLinkAttachments, func(frozen []*Frozen) error {
		for _, f := range frozen {
			nc, err := f.TakeBack()
			if err != nil {
				t.Error(err)
				continue
			}
			ready.Add(1)
			w.wg.Go(func() {
				w.server.Restore(context.Background(), NewStream(nc, f.Record.In), &f.Record, sync.OnceFunc(ready.Done), owned)
			})
		}
		return failure
	})
	if closed != 0 || !errors.Is(err, failure) {
		t.Fatalf("%d connections closed, %v", closed, err)
	}
	ready.Wait()
	w.server.Forget()
	for i, c := range clients {
		number := uint32(1)
		c.send(api.Resize{Request: req("r"), Attachment: &number, Cols: 80, Rows: 24})
		m := c.mustNext()
		if _, ok := m.(*api.Accepted); ok { // tells where the attachment continues
			m = c.mustNext()
		}
		if _, ok := m.(*api.OK); !ok {
			t.Errorf("viewer %d has no attachment any more: it receives %+v", i, m)
		}
	}
}

// A viewer that does not read its answers does not stop the other viewers of its link.
func TestShareViewerThatDoesNotRead(t *testing.T) {
	w := newWorld(t, nil)
	newVault(w, map[protocol.SessionID]string{"mine": ""})
	link := sharing("mine", "life-mine", time.Hour)
	good, bad := w.by(link), w.by(link)
	payload, err := protocol.Encode(api.Info{Request: req(strings.Repeat("x", 4000)), SessionID: "mine"})
	testkit.Must(t, err)
	raw := frame.Append(nil, frame.Control, payload)
	blocked := make(chan struct{})
	go func() {
		defer close(blocked)
		for range 1000 { // until the proxy does not read any more, because its answers are not read
			_ = bad.nc.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			if _, err := bad.nc.Write(raw); err != nil {
				return
			}
		}
	}()
	testkit.Within(t, patience, "the proxy reads no more of the viewer", blocked)
	good.send(api.Info{Request: req("1"), SessionID: "mine"})
	if m := expect[*api.Session](good); m.RequestID != "1" {
		t.Errorf("received %+v", m)
	}
}

// Two requests of one link may be in progress at a time, and one search of all links.
func TestShareRequests(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ask   func(n int) protocol.Message
		other bool // half of the clients have another link
		want  int32
	}{
		{"screens", func(n int) protocol.Message {
			return api.Screen{Request: req(fmt.Sprint(n)), ScreenSpec: protocol.ScreenSpec{SessionID: "mine"}}
		}, false, maxLinkRequests},
		{"searches by two links", func(n int) protocol.Message {
			return api.Search{Request: req(fmt.Sprint(n)), SearchSpec: protocol.SearchSpec{SessionID: "mine", Pattern: "x"}}
		}, true, 1},
		{"screens of another size", func(n int) protocol.Message {
			return api.Screen{Request: req(fmt.Sprint(n)), ScreenSpec: protocol.ScreenSpec{SessionID: "mine", Cols: 80, Rows: 24}}
		}, true, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			v := newVault(w, map[protocol.SessionID]string{"mine": ""})
			var busy, most atomic.Int32
			release := make(chan struct{})
			var begun sync.WaitGroup
			begun.Add(int(tt.want))
			var once atomic.Int32
			v.between = func(m protocol.Message) {
				switch m.(type) {
				case *wire.Screen, *wire.Search:
				default:
					return
				}
				if n := busy.Add(1); n > most.Load() {
					most.Store(n)
				}
				if once.Add(1) <= tt.want {
					begun.Done()
				}
				<-release
				busy.Add(-1)
			}
			link := sharing("mine", "life-mine", time.Hour)
			clients := []*client{w.by(link), w.by(link)}
			if tt.other {
				clients[1] = w.by(sharing("mine", "life-mine", 2*time.Hour))
			}
			giver := w.client()
			for n := range 3 {
				for _, c := range clients {
					c.send(tt.ask(n))
				}
			}
			begun.Wait()
			for range 100 { // enough time for more requests to begin, if they could
				giver.send(api.Info{Request: req("i"), SessionID: "mine"})
				expect[*api.Session](giver)
			}
			close(release)
			for range 3 {
				for _, c := range clients {
					if e, ok := c.mustNext().(*api.Error); ok {
						t.Errorf("received %+v", e)
					}
				}
			}
			if got := most.Load(); got != tt.want {
				t.Errorf("%d were in progress at once, want %d", got, tt.want)
			}
		})
	}
}
