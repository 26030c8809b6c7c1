package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/proxy/client"
)

// A way is a transport by which the test's own client connects.
type way int

const (
	framed way = iota // frames on the Unix socket
	webUnix
	webTCP
	rawUnix
	rawTCP
)

func (by way) String() string {
	return [...]string{"frames", "WebSocket on a Unix socket", "WebSocket on TCP", "raw WebSocket on a Unix socket", "raw WebSocket on TCP"}[by]
}

// doors are the addresses of a proxy, for clients that the test implements itself.
type doors struct {
	*world
	c              *client.Client // for all other requests
	address, token string
	relinks        bool // the supervisor is replaced, so that the proxy may ask a client to send input again
}

// doors starts a proxy with a web address.
func (w *world) doors() *doors {
	w.T.Helper()
	address, token := w.webProxy()
	return &doors{world: w, c: w.connect(client.Options{Name: "e2e"}), address: address, token: token}
}

// open opens a WebSocket to a target, which is a path with a query.
func (d *doors) open(by way, target string) (*webSocket, error) {
	if by == webTCP || by == rawTCP {
		return openWebSocket("tcp", d.address, target)
	}
	return openWebSocket("unix", d.Path("proxy.web.sock"), target)
}

// greeted returns a connection to the api after hello and welcome.
func (d *doors) greeted(by way) (*peer, error) {
	if by == framed {
		p, err := d.peer("proxy.sock")
		if err != nil {
			return nil, err
		}
		return p, p.greet("")
	}
	s, err := d.open(by, "/v1/api")
	if err != nil {
		return nil, err
	}
	p := &peer{s, frame.NewReader(s, frame.Max)}
	return p, p.greet(d.token)
}

// A terminal is a connection that is attached to one session. Write sends input.
type terminal interface {
	Write(p []byte) (int, error)
	SetDeadline(time.Time) error
	Close() error
	// printed returns the next output. It fails if the connection can tell that a byte is missing or comes
	// twice.
	printed() ([]byte, error)
}

// terminal attaches to a session.
func (d *doors) terminal(by way, id string, mode protocol.Mode) (terminal, error) {
	if by == rawUnix || by == rawTCP {
		target := "/v1/sessions/" + id + "/raw?mode=" + string(mode)
		if by == rawTCP {
			ticket, err := d.c.Ticket(d.ctx(), protocol.SessionID(id))
			if err != nil {
				return nil, err
			}
			target += "&ticket=" + ticket
		}
		s, err := d.open(by, target)
		return rawTerminal{s}, err
	}
	p, err := d.greeted(by)
	if err != nil {
		return nil, err
	}
	a, err := p.attach(protocol.AttachSpec{SessionID: protocol.SessionID(id), Mode: mode})
	if err != nil {
		return nil, err
	}
	a.relinks = d.relinks
	return a, nil
}

// An attached is an attachment of the test's own client.
type attached struct {
	*peer
	pos      uint64
	snapshot int  // bytes of the snapshot that are still to come
	relinks  bool // copied from doors

	mu    sync.Mutex
	typed uint64
	kept  []byte // the last bytes of the input, which were not acknowledged yet
}

// attach makes the only attachment of the connection.
func (p *peer) attach(spec protocol.AttachSpec) (*attached, error) {
	if err := p.send(api.Attach{Attachment: 1, AttachSpec: spec}); err != nil {
		return nil, err
	}
	m, err := p.receive()
	if err != nil {
		return nil, err
	}
	info, ok := m.(*api.Attached)
	if !ok {
		return nil, fmt.Errorf("attach answered by %+v", m)
	}
	return &attached{peer: p, pos: info.Offset, typed: info.InputOffset, snapshot: info.SnapshotBytes}, nil
}

// Write sends p as one input frame, in two parts, so that now and then a handoff begins in the middle of a
// frame.
func (a *attached) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kept = append(a.kept, p...)
	return len(p), a.write(a.input(p))
}

func (a *attached) write(f []byte) error {
	if _, err := a.peer.Write(f[:len(f)/2]); err != nil {
		return err
	}
	_, err := a.peer.Write(f[len(f)/2:])
	return err
}

// accepted drops the input before offset, which need not be sent again.
func (a *attached) accepted(offset uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if from := a.typed - uint64(len(a.kept)); offset > from {
		a.kept = a.kept[min(uint64(len(a.kept)), offset-from):]
	}
}

// again sends the input that was not acknowledged.
func (a *attached) again(offset uint64) error {
	a.accepted(offset)
	a.mu.Lock()
	defer a.mu.Unlock()
	if from := a.typed - uint64(len(a.kept)); offset != from {
		return fmt.Errorf("the proxy asks for input from offset %d, but has accepted all input before %d", offset, from)
	}
	if len(a.kept) == 0 {
		return nil
	}
	return a.write(frame.AppendData(nil, frame.Input, 1, offset, a.kept))
}

// input returns the next input frame.
func (a *attached) input(p []byte) []byte {
	f := frame.AppendData(nil, frame.Input, 1, a.typed, p)
	a.typed += uint64(len(p))
	return f
}

// printed implements terminal.
func (a *attached) printed() ([]byte, error) {
	for {
		kind, payload, err := a.frames.Next()
		if err != nil {
			return nil, err
		}
		if kind == frame.Control {
			m, _, err := api.Messages.Decode(payload)
			switch m := m.(type) {
			case *api.Accepted:
				a.accepted(m.Offset)
				continue
			case *api.Error:
				if a.relinks && m.Code == protocol.CodeInputGap && m.Offset != nil {
					if err := a.again(*m.Offset); err != nil {
						return nil, err
					}
					continue
				}
			case *api.Resized: // a resume repeats the size
				if a.relinks && m.Cols == 80 && m.Rows == 24 {
					continue
				}
			}
			return nil, fmt.Errorf("unexpected message %+v, %w", m, err)
		}
		_, offset, data, err := frame.ParseData(payload)
		switch {
		case err != nil || offset != a.pos:
			return nil, fmt.Errorf("frame of kind %d at offset %d, want offset %d: %w", kind, offset, a.pos, err)
		case kind == frame.Snapshot:
			if a.snapshot -= len(data); a.snapshot < 0 {
				return nil, errors.New("the snapshot is longer than announced")
			}
			continue
		case a.snapshot > 0:
			return nil, fmt.Errorf("output before the last %d bytes of the snapshot", a.snapshot)
		}
		a.pos += uint64(len(data))
		return data, nil
	}
}

// until reads until text has come, and returns the bytes after it. The bytes before it may include the
// snapshot of a raw WebSocket.
func until(s terminal, text string) ([]byte, error) {
	var seen []byte
	for {
		if _, after, ok := bytes.Cut(seen, []byte(text)); ok {
			return after, nil
		}
		data, err := s.printed()
		if err != nil {
			return nil, fmt.Errorf("waiting for %q, after %q: %w", text, last(string(seen), 100), err)
		}
		seen = append(seen, data...)
	}
}

// flowing prints numbered lines without end, once a line is typed.
var flowing = shell(`stty -opost -echo; echo ready; read go; i=0; while :; do i=$((i+1)); echo line $i; [ $((i % 50)) = 0 ] && sleep 0.01; done`)

// followsFlow checks the output of a flowing session from its first line until over is true, and for at least
// 1,000 lines.
func followsFlow(s terminal, over *atomic.Bool) error {
	seen, err := until(s, "line 1\n")
	if err != nil {
		return err
	}
	for lines := 1; !over.Load() || lines < 1000; {
		data, err := s.printed()
		if err != nil {
			return fmt.Errorf("after line %d: %w", lines, err)
		}
		for seen = append(seen, data...); ; {
			line, rest, ok := bytes.Cut(seen, []byte("\n"))
			if !ok {
				break
			}
			if lines++; string(line) != fmt.Sprint("line ", lines) {
				return fmt.Errorf("line %d is %q", lines, line)
			}
			seen = rest
		}
	}
	return nil
}

// A stroke is a piece of input with the time at which it was sent.
type stroke struct {
	text []byte
	at   time.Time
}

// typesAndReads types numbers into a session that echoes, one per pace, even if the one before has not come
// back. It checks each echo. It sets longest to the longest time that an echo took.
func typesAndReads(s terminal, pace time.Duration, over *atomic.Bool, longest *time.Duration) error {
	if err := begins(s); err != nil {
		return err
	}
	strokes := make(chan stroke, typedAhead)
	stopped := make(chan struct{})
	var wg sync.WaitGroup
	var typing error
	wg.Go(func() {
		defer close(strokes)
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for n := 1; !over.Load() || n < 100; n++ {
			<-tick.C
			k := stroke{fmt.Appendf(nil, "<%d>", n), time.Now()}
			select {
			case strokes <- k:
			case <-stopped:
				return
			}
			if _, typing = s.Write(k.text); typing != nil {
				return
			}
		}
	})
	err := readsStrokes(s, strokes, longest)
	close(stopped)
	wg.Wait()
	return errors.Join(err, typing)
}

// begins types a mark and waits for its echo. No other output may follow.
func begins(s terminal) error {
	const mark = "<begin>"
	if _, err := s.Write([]byte(mark)); err != nil {
		return err
	}
	rest, err := until(s, mark)
	if len(rest) > 0 {
		err = fmt.Errorf("unexpected output %q after the echo", rest)
	}
	return err
}

// readsStrokes checks that the output consists of the echoes of the strokes.
func readsStrokes(s terminal, strokes <-chan stroke, longest *time.Duration) error {
	var data []byte
	for k := range strokes {
		for want := k.text; len(want) > 0; {
			if len(data) == 0 {
				var err error
				if data, err = s.printed(); err != nil {
					return fmt.Errorf("waiting for the echo %q: %w", last(string(want), 100), err)
				}
			}
			n := min(len(want), len(data))
			if !bytes.Equal(data[:n], want[:n]) {
				return fmt.Errorf("output %q, want %q", last(string(data), 100), last(string(want), 100))
			}
			data, want = data[n:], want[n:]
		}
		*longest = max(*longest, time.Since(k.at))
	}
	if len(data) > 0 {
		return fmt.Errorf("unexpected output %q after the last echo", data)
	}
	return nil
}
