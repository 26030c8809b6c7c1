package link

import (
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/frame"
	"holdfast/protocol/link"
	"holdfast/shared/testkit"
)

// A link with a thousand attachments must end at once. With yamux alone this takes seconds or minutes, during
// which all processors are busy.
func TestEndOfMany(t *testing.T) {
	for name, end := range map[string]func(proxy, supervisor *Conn){
		"closed here":      func(proxy, _ *Conn) { proxy.Close() },
		"closed there":     func(_, supervisor *Conn) { supervisor.Close() },
		"closed on a whim": func(proxy, supervisor *Conn) { go supervisor.Close(); proxy.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.CheckLeaks(t)
			proxy, supervisor := linked(t)
			var there, here sync.WaitGroup
			answer(t, supervisor, func(st *Stream, request protocol.Message) {
				_ = st.Send(link.OK{})
				there.Go(func() {
					for {
						if _, err := st.Next(); err != nil {
							st.Abort()
							return
						}
					}
				})
				if _, ok := request.(*link.Attach); ok { // the stream is not read, so its window becomes full
					there.Go(func() {
						for st.SendRaw(frame.AppendData(nil, frame.Output, 1, 0, make([]byte, frame.MaxData))) == nil {
						}
					})
				}
			})
			for i := range 1000 {
				var request protocol.Message = link.Status{}
				if i%50 == 0 {
					request = link.Attach{}
				}
				st, _, err := proxy.Open(testkit.Soon(t), request)
				testkit.Must(t, err)
				if i%50 != 0 {
					here.Go(func() {
						if _, err := st.Next(); !errors.Is(err, io.EOF) {
							t.Errorf("a reader got %v", err)
						}
					})
				}
			}
			begun := time.Now()
			end(proxy, supervisor)
			done := make(chan struct{})
			go func() { defer close(done); here.Wait(); there.Wait() }()
			testkit.Within(t, patience, "all streams have ended", done)
			if took := time.Since(begun); took > silence {
				t.Errorf("the end of the link took %v", took)
			}
		})
	}
}

// Messages that came before the end of the link must be readable after it.
func TestLastWords(t *testing.T) {
	testkit.CheckLeaks(t)
	for range 50 {
		proxy, supervisor := linked(t)
		said := make(chan struct{})
		answer(t, supervisor, func(st *Stream, _ protocol.Message) {
			_ = st.Send(link.OK{})
			for i := range 10 {
				_ = st.Send(link.Event{Seq: uint64(i)})
			}
			close(said)
		})
		st, _, err := proxy.Open(testkit.Soon(t), link.Events{})
		testkit.Must(t, err)
		<-said
		supervisor.Close()
		<-proxy.Done()
		for i := range 10 {
			if m, ok := receiveMessage(t, st).(*link.Event); !ok || m.Seq != uint64(i) {
				t.Fatalf("received %+v, want event %d", m, i)
			}
		}
		if _, err := st.Receive(); !errors.Is(err, io.EOF) {
			t.Fatalf("after the last message: %v, want EOF", err)
		}
		proxy.Close()
	}
}

// A proxy that reads late, because it was stopped or its viewer's terminal is paused, must receive all of a stream that
// the supervisor has closed. The stream is closed for longer than a proxy keeps a stream that it has closed itself.
func TestLateReader(t *testing.T) {
	testkit.CheckLeaks(t)
	proxy, supervisor := linked(t)
	closed := make(chan struct{})
	answer(t, supervisor, func(st *Stream, _ protocol.Message) {
		_ = st.Send(link.OK{})
		for range 4 { // more than Open reads ahead
			_ = st.SendRaw(frame.AppendData(nil, frame.Output, 1, 0, make([]byte, frame.MaxData)))
		}
		_ = st.Send(link.Event{Seq: 1})
		_ = st.Close()
		close(closed)
	})
	st, _, err := proxy.Open(testkit.Soon(t), link.Events{})
	testkit.Must(t, err)
	<-closed
	time.Sleep(proxyCloseTimeout + time.Second)
	if m, ok := receiveMessage(t, st).(*link.Event); !ok || m.Seq != 1 {
		t.Errorf("received %+v, want the event", m)
	}
	if _, err := st.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last message: %v, want EOF", err)
	}
}
