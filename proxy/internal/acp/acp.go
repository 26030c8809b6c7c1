// Package acp stands between an editor and an agent that speak the Agent Client Protocol (ACP), version 1, on
// standard input and output. It answers the agent's requests for terminals (terminal/create and the four other
// methods) with sessions, which outlive the editor, the agent and this process, and which people see and attach to.
// All other messages pass unchanged, except that initialize tells the agent that it has terminals, and that a
// terminal of a session in a tool call, which the editor does not know, is replaced by text.
//
// Invariant: a message that this package does not understand, or that is longer than maxMessage, passes
// byte for byte. A session ends only if the agent asks for it by terminal/kill or terminal/release, or cancels
// terminal/create; never because the agent, the editor or this process ends.
//
// Not here: the start of the agent (package cli), and requests to the proxy (package proxy/client).
package acp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

// maxMessage is the size in bytes of the longest message that is examined. It is the limit of ACP's own library.
const maxMessage = 32 << 20

// Sessions are the requests of a *client.Client that this package makes.
type Sessions interface {
	Spawn(ctx context.Context, r client.SpawnRequest) (*client.Spawned, error)
	SessionInfo(ctx context.Context, id protocol.SessionID) (*protocol.SessionInfo, error)
	History(ctx context.Context, id protocol.SessionID, o client.HistoryOptions) (*protocol.HistoryContent, error)
	Screen(ctx context.Context, id protocol.SessionID, o client.ScreenOptions) (*protocol.ScreenContent, error)
	Wait(ctx context.Context, id protocol.SessionID, timeout time.Duration) (*protocol.ExitRecord, error)
	Terminate(ctx context.Context, id protocol.SessionID, e client.End) error
}

// Options configure Run.
type Options struct {
	Sessions Sessions
	Cwd      string   // directory of a terminal if neither its request nor its conversation names one
	Env      []string // environment of a terminal, as NAME=VALUE

	FromEditor io.Reader
	ToEditor   io.Writer
	FromAgent  io.Reader
	ToAgent    io.WriteCloser // closed when FromEditor ends, so that the agent ends, too
}

// Run passes messages until FromAgent ends, and returns nil then. If ctx is done, it stops answering, but returns
// only when FromAgent ends.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	b := newBridge(ctx, o)
	defer b.requests.Wait()
	defer func() { // an answer may wait for an agent that does not read
		cancel()
		_ = o.ToAgent.Close()
	}()
	go func() { // it ends with FromEditor, which is the standard input of the process
		_ = pass(o.FromEditor, b.toAgent, maxMessage, b.fromEditor) // it fails if the agent has ended, which Run notices, too
		_ = o.ToAgent.Close()
	}()
	return pass(o.FromAgent, b.toEditor, maxMessage, b.fromAgent)
}

// pass passes lines from in to out until in ends. handle returns the line that is sent, or nil if none is. A line
// that is longer than maxMessage is sent without a call of handle, and is never held as a whole.
func pass(in io.Reader, out *lineWriter, most int, handle func(line []byte) []byte) error {
	r := bufio.NewReaderSize(in, 64<<10)
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(line) <= most:
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			if err := out.stream(line, r); err != nil {
				return err
			}
		default: // a whole line, or the end
			sent := line
			if len(line) <= most {
				sent = handle(line)
			}
			if len(sent) > 0 {
				if err := out.write(sent); err != nil {
					return err
				}
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
		if line = line[:0]; cap(line) > 1<<20 {
			line = nil // because most lines are short
		}
	}
}

// A lineWriter writes whole lines from several goroutines.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *lineWriter) write(line []byte) error { return w.writeBy(func() []byte { return line }) }

// writeBy writes the line that f returns, or nothing. No other line is written after the call of f and before this line.
func (w *lineWriter) writeBy(f func() []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := f()
	if line == nil {
		return nil
	}
	_, err := w.w.Write(line)
	return err
}

// stream writes the beginning of a line and then its remainder from r.
func (w *lineWriter) stream(begin []byte, r *bufio.Reader) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.w.Write(begin); err != nil {
		return err
	}
	for {
		part, err := r.ReadSlice('\n')
		if _, err := w.w.Write(part); err != nil {
			return err
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF): // the next read returns it again
			return nil
		default:
			return err
		}
	}
}
