package mcp

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/apiserver"
	"holdfast/proxy/internal/linkclient"
	"holdfast/shared/testkit"
	"holdfast/shared/testkit/fakelink"
)

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }

// connect returns a client of a proxy whose supervisor is a fake.
func connect(t *testing.T, w *fakelink.Supervisor) *client.Client {
	t.Helper()
	w.Listen()
	links := linkclient.New(linkclient.Config{Dial: w.Dial, Hello: func() wire.Hello { return wire.Hello{Protocol: protocol.Supported(), Name: "test"} }, Log: zerolog.Nop()})
	proxy := apiserver.New(apiserver.Config{Link: links, Log: zerolog.Nop()})
	ln, err := net.Listen("unix", filepath.Join(filepath.Dir(w.Path), "proxy"))
	testkit.Must(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if nc, err := ln.Accept(); err == nil {
			proxy.Accept(context.Background(), apiserver.NewStream(nc, nil), apiserver.Origin{Transport: apiserver.TransportUnix, Trusted: true})()
		}
	}()
	c, err := client.Dial(testkit.Soon(t), client.Options{Name: "test", Dial: func(context.Context) (net.Conn, error) { return net.Dial("unix", ln.Addr().String()) }})
	testkit.Must(t, err)
	t.Cleanup(func() {
		_ = c.Close()
		_ = ln.Close()
		<-served
		_ = links.Close()
	})
	return c
}

// Changes of which the agent gets no answer, because a request for it fails or because it has cancelled its call, are in the
// next answer.
func TestReadAgain(t *testing.T) {
	w := fakelink.New(t)
	ctx, cancel := context.WithCancel(testkit.Soon(t))
	histories := 0
	w.Reply(func(m protocol.Message) (protocol.Message, error) {
		switch m := m.(type) {
		case *wire.Info:
			return wire.Session{Session: protocol.SessionInfo{ID: "s", State: protocol.StateExited, Exit: &protocol.ExitRecord{}}}, nil
		case *wire.Changes:
			changes := protocol.ChangesContent{Mark: []byte("mark"), LineNumbers: protocol.LineNumbers{Next: 6}}
			if len(m.Since) == 0 {
				changes.Whole, changes.From = true, 5
				changes.Lines = []protocol.ChangedLines{{Line: 5, Texts: []string{"the result"}}}
			}
			return wire.ChangesContent{ChangesContent: changes}, nil
		case *wire.Away:
			return wire.AwayContent{}, nil
		case *wire.History:
			switch histories++; histories {
			case 1:
				return nil, protocol.Errorf(protocol.CodeBusy, "the session is busy")
			case 2:
				cancel()
			}
			return wire.HistoryContent{}, nil
		}
		return wire.OK{}, nil
	})
	s := &server{Options: Options{Client: connect(t, w)}, read: map[protocol.SessionID]reading{}}
	in := readInput{Session: "s", MaxBytes: 1000}
	for range 2 {
		if text, err := s.readNew(ctx, in); err == nil {
			t.Errorf("the answer is %q, want an error", text)
		}
	}
	for _, want := range []bool{true, false} {
		if text, err := s.readNew(testkit.Soon(t), in); err != nil || strings.Contains(text, "the result") != want {
			t.Errorf("the answer is %q, %v; want the result: %v", text, err, want)
		}
	}
}

// A send that waits for the prompt of the shell ends when the program that runs waits for input, and not while it works. Without
// that, each line for an interpreter takes as long as the timeout.
func TestSendUntilInput(t *testing.T) {
	const checks = 3 // until the program waits for input
	w := fakelink.New(t)
	var awaits, screens atomic.Int64
	w.Reply(func(m protocol.Message) (protocol.Message, error) {
		switch m.(type) {
		case *wire.Mark:
			return wire.Marked{MarkInfo: protocol.MarkInfo{Mark: []byte("mark")}}, nil
		case *wire.Write:
			return wire.Accepted{}, nil
		case *wire.Await:
			awaits.Add(1)
			return nil, protocol.ErrTimeout
		case *wire.Info:
			info := protocol.SessionInfo{ID: "s", State: protocol.StateRunning, LastIOAt: time.Now(), Command: &protocol.CommandInfo{Line: "python3", StartedAt: time.Now()}}
			if awaits.Load() == checks {
				info.LastIOAt = info.LastIOAt.Add(-settled)
			}
			return wire.Session{Session: info}, nil
		case *wire.Screen:
			screens.Add(1)
			return wire.ScreenContent{ScreenContent: protocol.ScreenContent{Cols: 80, Rows: 24, Input: protocol.InputKeys, Cursor: protocol.Cursor{X: 4}, Cells: cells(">>> ")}}, nil
		case *wire.Changes:
			return wire.ChangesContent{ChangesContent: protocol.ChangesContent{Mark: []byte("mark")}}, nil
		case *wire.Away:
			return wire.AwayContent{}, nil
		}
		return wire.OK{}, nil
	})
	s := &server{Options: Options{Client: connect(t, w), Control: ControlAll}, read: map[protocol.SessionID]reading{}}
	text, err := s.send(testkit.Soon(t), sendInput{Session: "s", Enter: true, TimeoutS: 60})
	if want := `"python3" runs; may need input, cursor behind ">>>"`; err != nil || text != want || awaits.Load() != checks {
		t.Errorf("the answer after %d checks is %q, %v; want %q after %d", awaits.Load(), text, err, want, checks)
	}
	if n := screens.Load(); n != 2 { // for the check that the silent program waits, and for the answer
		t.Errorf("the screen was requested %d times, want 2", n)
	}
	text, err = s.send(testkit.Soon(t), sendInput{Session: "s", Enter: true, TimeoutS: 0.1})
	if want := "\"python3\" runs\nthe time is over, and it has not happened"; err != nil || text != want || awaits.Load() != checks+1 {
		t.Errorf("the answer after %d more checks is %q, %v; want %q after one", awaits.Load()-checks, text, err, want)
	}
}

// A send with a wrong argument sends nothing, because the agent repeats its call with the text.
func TestSendWrong(t *testing.T) {
	w := fakelink.New(t)
	w.Reply(func(m protocol.Message) (protocol.Message, error) {
		switch m := m.(type) {
		case *wire.Mark:
			return wire.Marked{MarkInfo: protocol.MarkInfo{Mark: []byte("mark")}}, nil
		case *wire.Write:
			return wire.Accepted{Offset: m.Offset + uint64(len(m.Data))}, nil
		}
		return wire.OK{}, nil
	})
	s := &server{Options: Options{Client: connect(t, w), Control: ControlAll}, read: map[protocol.SessionID]reading{}}
	for name, in := range map[string]sendInput{
		"key":                {Keys: []string{"Hyper"}},
		"pattern":            {WaitText: "("},
		"silence":            {IdleMS: -1},
		"pattern or silence": {WaitText: "done", IdleMS: 100},
	} {
		in.Session, in.Text = "s", "half of it"
		_, err := s.send(testkit.Soon(t), in)
		if sent := w.Requests("write"); protocol.CodeOf(err) != protocol.CodeInvalidArgument || len(sent) > 0 {
			t.Errorf("%s: %v; sent: %+v", name, err, sent)
		}
	}
}
