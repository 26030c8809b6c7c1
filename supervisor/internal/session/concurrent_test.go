//go:build linux || darwin

package session

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/pty"
)

// Many callers use a few session ids at the same time. Each call must return one of the errors in mayBe, and all
// sessions must end.
func TestConcurrent(t *testing.T) {
	testkit.CheckLeaks(t)
	tb, by := fakeTable(t, Config{RingBytes: 1, InputBytes: 1000, ExitRecords: 2, MaxSessions: 5, Grace: time.Millisecond})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			c := &caller{tb: tb, by: by, rnd: rand.New(rand.NewPCG(seed, uint64(i)))}
			defer c.closeAll()
			for range 300 {
				if what, err := c.call(); err != nil && !slices.Contains(mayBe, protocol.CodeOf(err)) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
	wg.Wait()
}

// mayBe are the codes that a call may return if other callers use the same session.
var mayBe = []protocol.Code{
	protocol.CodeSessionExists, protocol.CodeSessionNotFound, protocol.CodeSessionExited, protocol.CodeSessionRunning,
	protocol.CodeInstanceMismatch, protocol.CodeAlreadyAttached, protocol.CodeInputFull, protocol.CodeInputGap,
	protocol.CodeNotAttached, protocol.CodePermissionDenied, protocol.CodeLimitExceeded,
}

type caller struct {
	tb  *Table
	by  func(*Session) *fakePTY
	rnd *rand.Rand
	all []*viewer
}

func (c *caller) closeAll() {
	for _, v := range c.all {
		v.a.Close()
	}
}

func (c *caller) call() (what string, err error) {
	id := protocol.SessionID(fmt.Sprint(c.rnd.IntN(7)))
	token := []string{"", "t"}[c.rnd.IntN(2)]
	switch c.rnd.IntN(5) {
	case 0:
		return "Create", second(c.tb.create(id, bash(""), token))
	case 1:
		return "Reopen", second(c.tb.reopen(id, "", protocol.RespawnSpec{KeepScreen: true}, token))
	case 2:
		return "Forget", c.tb.Forget(id, "")
	case 3:
		if c.tb.List(""); c.tb.Live() > 5 {
			return "Live", fmt.Errorf("%d sessions", c.tb.Live())
		}
	}
	s, err := c.tb.Get(id)
	if err != nil {
		return "Get", err
	}
	if len(c.all) > 0 && c.rnd.IntN(2) == 0 {
		return c.view(c.all[c.rnd.IntN(len(c.all))])
	}
	return c.use(s)
}

func (c *caller) use(s *Session) (what string, err error) {
	switch c.rnd.IntN(10) {
	case 0:
		c.by(s).print(make([]byte, c.rnd.IntN(100_000)))
	case 1:
		c.by(s).take(c.rnd.IntN(5000))
	case 2:
		c.by(s).exit(pty.Status{Code: 1})
	case 3:
		return "Terminate", s.Terminate(End{})
	case 4:
		return "Resize", s.Resize(protocol.Size{Cols: c.rnd.IntN(100)})
	case 5:
		return "Type", second(s.Type("", 0, make([]byte, c.rnd.IntN(2000))))
	case 6:
		_, _, _, err := s.Read(c.rnd.Uint64N(1<<20), 1000)
		return "Read", err
	case 7:
		if thaw, err := s.halt(patience, func() {}); err == nil {
			thaw()
		}
	default:
		mode := []protocol.Mode{protocol.ModeShared, protocol.ModeExclusive, protocol.ModeReadOnly}[c.rnd.IntN(3)]
		v, err := attach(s, protocol.AttachSpec{Mode: mode, Steal: c.rnd.IntN(2) == 0, Writer: fmt.Sprint("w", c.rnd.IntN(5)), Cols: c.rnd.IntN(2)}, nil)
		if err == nil {
			c.all = append(c.all, v)
		}
		return "Attach", err
	}
	return "", nil
}

// view reads from an attachment, resizes it and sends input, whether or not it and its session still exist.
func (c *caller) view(v *viewer) (what string, err error) {
	switch c.rnd.IntN(5) {
	case 0:
		return "Attachment.Type", v.a.Type(c.rnd.Uint64N(2)*v.info.InputOffset, make([]byte, c.rnd.IntN(100)))
	case 1:
		return "Attachment.Resize", v.a.Resize(protocol.Size{Rows: c.rnd.IntN(100)})
	case 2:
		return "Attachment.Interrupt", v.a.Interrupt()
	case 3:
		v.a.Close()
	default:
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for range 20 {
			if _, err := v.a.Next(ctx, v.buf); err != nil { // canceled, or at the end of the session
				return "", nil
			}
		}
	}
	return "", nil
}
