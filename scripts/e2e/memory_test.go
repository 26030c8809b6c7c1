package e2e

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

const (
	memoryPrinted = 10 << 20 // by each session
	memoryViewers = 2        // of each session
	// perConn is how many attachments one connection may have.
	perConn = 256
	// perSession is the memory that one session may cost the supervisor: the ring of 1 MiB and the buffer of
	// one read; 10,000 lines of history, which are not compressed while the session is busy; a screen; and
	// the streams of the viewers.
	perSession = 4 << 10 // KiB
	// perSessionProxy is the same for the proxy: 1 MiB for each of the two viewers, half of it garbage.
	perSessionProxy = 2 << 10
)

// A session that has printed much output and has viewers must cost a bounded amount of memory, which the test
// logs. HOLDFAST_SESSIONS is the number of sessions. The test is not parallel, because it uses all memory and
// processors.
func TestMemoryOfManySessions(t *testing.T) {
	sessions := number(t, "HOLDFAST_SESSIONS", 12)
	w := newWorld(t)
	file := w.Path("log")
	testkit.Must(t, os.WriteFile(file, colouredLog(memoryPrinted), 0o600))
	c := w.dial(client.Options{})
	empty := w.usages()
	begun := time.Now()
	var viewers []*viewers
	for i := range sessions {
		id := protocol.SessionID(fmt.Sprint("s", i))
		w.spawn(c, string(id), shell("stty -opost; cat "+file+"; exec cat"))
		for range memoryViewers {
			if k := len(viewers); k == 0 || viewers[k-1].n == perConn {
				viewers = append(viewers, w.viewers())
			}
			viewers[len(viewers)-1].attach(t, id)
		}
	}
	t.Logf("%d sessions with %d viewers each began within %v", sessions, memoryViewers, time.Since(begun).Round(time.Millisecond))
	testkit.Eventually(t, 60*limit, func() bool { return w.allPrinted(c) == sessions }, "all sessions have printed the log")
	for _, v := range viewers {
		v.caughtUp(t)
	}
	t.Logf("after %v each session has printed %d MiB, and its viewers have read all of it", time.Since(begun).Round(time.Millisecond), memoryPrinted>>20)
	w.checkMemory(empty, sessions)
}

// colouredLog returns lines as a service prints them: a time, a level in colour, a source, a message.
func colouredLog(n int) []byte {
	var b bytes.Buffer
	levels := []string{"\x1b[32mINFO\x1b[0m ", "\x1b[33mWARN\x1b[0m ", "\x1b[1;31mERROR\x1b[0m", "\x1b[36mDEBUG\x1b[0m"}
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "\x1b[2m2026-09-01T12:%02d:%02d.%03dZ\x1b[0m %s \x1b[34mserver.request\x1b[0m: %s /v1/items/%d took \x1b[1m%dms\x1b[0m\r\n",
			i/60000%60, i/1000%60, i%1000, levels[i*7%11%4], []string{"GET", "PUT", "POST"}[i%3], i*2654435761%100000, i*40503%977)
	}
	return b.Bytes()[:n]
}

// allPrinted counts the sessions that have printed the whole log.
func (w *world) allPrinted(c *client.Client) (n int) {
	list, err := c.List(w.T.Context(), "")
	if err != nil {
		return 0
	}
	for _, s := range list {
		if s.OutputOffset >= memoryPrinted {
			n++
		}
	}
	return n
}

// checkMemory logs the memory of both processes, in total and per session. It fails the test if a session costs
// more than its limit. Memory that Go uses independently of the number of sessions does not count.
func (w *world) checkMemory(empty map[string]usage, sessions int) {
	w.T.Helper()
	for name, now := range w.usages() {
		each := (now.RSS - empty[name].RSS) / sessions
		w.T.Logf("the %s uses %d KiB, %d per session", name, now.RSS, each)
		each = (now.RSS - empty[name].RSS - moreRSS()) / sessions
		most := perSession
		if name == "proxy" {
			most = perSessionProxy
		}
		if os.Getenv("HOLDFAST_E2E_RACE") != "1" && each > most {
			w.T.Errorf("the %s uses %d KiB per session, want at most %d", name, each, most)
		}
	}
}

// viewers are many attachments on one connection, which is read without pauses.
type viewers struct {
	*peer
	n int

	mu  sync.Mutex
	pos map[uint32]uint64 // offset by attachment
	err error
}

func (w *world) viewers() *viewers {
	w.T.Helper()
	v := &viewers{peer: w.client(api.Hello{Protocol: protocol.Supported()}), pos: map[uint32]uint64{}}
	if err := v.SetDeadline(time.Time{}); err != nil { // the viewers stay as long as the test needs them
		w.T.Fatal(err)
	}
	go v.read()
	return v
}

func (v *viewers) attach(t *testing.T, id protocol.SessionID) {
	t.Helper()
	v.n++
	err := v.send(api.Attach{Attachment: uint32(v.n), AttachSpec: protocol.AttachSpec{SessionID: id, Mode: protocol.ModeShared}})
	testkit.Must(t, err)
}

// read records the offset of each attachment.
func (v *viewers) read() {
	for {
		kind, payload, err := v.frames.Next()
		if err == nil {
			err = v.note(kind, payload)
		}
		if err != nil {
			v.mu.Lock()
			v.err = err
			v.mu.Unlock()
			return
		}
	}
}

func (v *viewers) note(kind frame.Kind, payload []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch kind {
	case frame.Output:
		n, offset, data, err := frame.ParseData(payload)
		v.pos[n] = offset + uint64(len(data))
		return err
	case frame.Control:
		m, _, err := api.Messages.Decode(payload)
		switch m := m.(type) {
		case *api.Attached:
			v.pos[m.Attachment] = m.Offset
		case *api.Resync:
			v.pos[m.Attachment] = m.Offset
		case *api.Error:
			return &m.Error
		}
		return err
	}
	return nil
}

// caughtUp waits until all attachments have received the whole log.
func (v *viewers) caughtUp(t *testing.T) {
	t.Helper()
	var err error
	testkit.Eventually(t, 10*limit, func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		there := 0
		for _, pos := range v.pos {
			if pos >= memoryPrinted {
				there++
			}
		}
		err = v.err
		return there == v.n || err != nil
	}, "the viewers have read everything")
	testkit.Must(t, err)
}
