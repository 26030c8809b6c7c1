package linkclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/testkit"
)

// A keyboard is the fake session: it accepts input in order and never twice, sometimes only a part of it, and
// sometimes it loses its link.
type keyboard struct {
	s *supervisor

	mu      sync.Mutex
	random  *rand.Rand
	arrived []byte
	want    int
	all     chan struct{} // closed when all input has arrived
	first   chan struct{} // closed when the link may be cut
}

func (k *keyboard) attach(st *link.Stream, m *wire.Attach) {
	k.mu.Lock()
	info := protocol.AttachInfo{Session: protocol.SessionInfo{Instance: life}, Replay: protocol.ReplayExact, Writer: "w", InputOffset: uint64(len(k.arrived))}
	pieces := k.random.IntN(30)
	k.mu.Unlock()
	_ = st.Send(wire.Attached{AttachInfo: info})
	<-k.first
	for ; pieces > 0; pieces-- {
		raw, err := st.Next()
		if err != nil {
			return
		}
		_, offset, data, err := frame.ParseData(raw[frame.HeaderLen:])
		if err != nil {
			k.s.t.Error(err)
			return
		}
		if answer := k.take(offset, data); answer != nil && st.Send(answer) != nil {
			return
		}
	}
	k.s.Cut()
}

func (k *keyboard) take(offset uint64, data []byte) protocol.Message {
	k.mu.Lock()
	defer k.mu.Unlock()
	have := uint64(len(k.arrived))
	if offset > have {
		return wire.Error{Error: protocol.Error{Code: protocol.CodeInputGap, Offset: &have}}
	}
	data = data[min(have-offset, uint64(len(data))):]
	n := len(data)
	if n > 0 && k.random.IntN(8) == 0 {
		n = k.random.IntN(n)
	}
	k.arrived = append(k.arrived, data[:n]...)
	have += uint64(n)
	if int(have) == k.want {
		k.want = -1
		close(k.all)
	}
	switch {
	case n < len(data):
		return wire.Error{Error: protocol.Error{Code: protocol.CodeInputFull, Offset: &have}}
	case k.random.IntN(4) == 0: // acknowledged later, or by the resume
		return nil
	}
	return wire.Accepted{Offset: have}
}

// The input of a Typist arrives once and in order, although the link is cut and the queue is often full.
func TestTyping(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			text := make([]byte, 200_000+random.IntN(1_500_000))
			for i := range text {
				text[i] = byte(i) ^ byte(i>>8)
			}
			s, c := running(t)
			k := &keyboard{s: s, random: rand.New(rand.NewPCG(seed, 2)), want: len(text), all: make(chan struct{}), first: make(chan struct{})}
			s.Answer(func(st *link.Stream, m protocol.Message) { k.attach(st, m.(*wire.Attach)) })
			ctx, cancel := context.WithCancel(testkit.Soon(t))
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			a, info, err := c.Attach(ctx, 1, protocol.AttachSpec{SessionID: "s"})
			testkit.Must(t, err)
			context.AfterFunc(ctx, a.Close)
			close(k.first)
			typist := NewTypist(a, info.InputOffset)
			typist.retryMin, typist.retryMax = time.Millisecond, 5*time.Millisecond
			wg.Go(func() { typist.Run(ctx) })
			wg.Go(func() {
				for {
					item, err := a.Next(ctx)
					if errors.Is(err, io.EOF) {
						return
					}
					if err != nil || !typist.HandleReply(item.Message) {
						t.Errorf("received %+v, %v", item, err)
						return
					}
				}
			})
			for rest := text; len(rest) > 0; {
				n := typist.Add(rest[:min(len(rest), 1+random.IntN(100_000))])
				if rest = rest[n:]; n == 0 {
					testkit.Within(t, patience, "there is room", typist.Room())
				}
			}
			testkit.Within(t, patience, "all of it arrives", k.all)
			k.mu.Lock()
			defer k.mu.Unlock()
			if !bytes.Equal(k.arrived, text) {
				t.Errorf("%d bytes arrived, which differ from the %d sent", len(k.arrived), len(text))
			}
		})
	}
}
