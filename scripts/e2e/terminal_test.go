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

// A way is how a client by hand connects.
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

// doors are what a proxy lets clients by hand in at.
type doors struct {
	*world
	c              *client.Client // for all else
	address, token string
	relinks        bool // the supervisor is replaced: what is typed meanwhile may have to be typed again
}

// doors starts a proxy.
func (w *world) doors() *doors {
	w.T.Helper()
	address, token := w.webProxy()
	return &doors{world: w, c: w.connect(client.Options{Name: "e2e"}), address: address, token: token}
}

// open opens a WebSocket.
func (d *doors) open(by way, target string) (*webSocket, error) {
	if by == webTCP || by == rawTCP {
		return openWebSocket("tcp", d.address, target)
	}
	return openWebSocket("unix", d.Path("proxy.web.sock"), target)
}

// greeted returns a connection of the api with its hello said and answered.
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

// A terminal is a session as one connection sees it. What is written is typed.
type terminal interface {
	Write(p []byte) (int, error)
	SetDeadline(time.Time) error
	Close() error
	// printed returns what is printed next; it fails where a byte is missing or
	// comes twice, as far as the connection can tell.
	printed() ([]byte, error)
}

// terminal connects to a session.
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

// An attached is an attachment by hand.
type attached struct {
	*peer
	pos      uint64
	snapshot int  // bytes of it that are to come
	relinks  bool // as of its doors

	mu    sync.Mutex
	typed uint64
	kept  []byte // the last of what was written: nobody has accepted it yet
}

// attach makes the connection's only attachment.
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

// Write types one frame, in two parts, so that a move finds half of it now and
// then.
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

// accepted forgets what need not be typed again.
func (a *attached) accepted(offset uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if from := a.typed - uint64(len(a.kept)); offset > from {
		a.kept = a.kept[min(uint64(len(a.kept)), offset-from):]
	}
}

// again types what nobody has accepted.
func (a *attached) again(offset uint64) error {
	a.accepted(offset)
	a.mu.Lock()
	defer a.mu.Unlock()
	if from := a.typed - uint64(len(a.kept)); offset != from {
		return fmt.Errorf("it is to be typed from offset %d on, and up to %d all was accepted", offset, from)
	}
	if len(a.kept) == 0 {
		return nil
	}
	return a.write(frame.AppendData(nil, frame.Input, 1, offset, a.kept))
}

// input returns the next frame to type.
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
			case *api.Resized: // the same size again, after a resume
				if a.relinks && m.Cols == 80 && m.Rows == 24 {
					continue
				}
			}
			return nil, fmt.Errorf("told %+v, %w", m, err)
		}
		_, offset, data, err := frame.ParseData(payload)
		switch {
		case err != nil || offset != a.pos:
			return nil, fmt.Errorf("kind %d at %d, want %d: %w", kind, offset, a.pos, err)
		case kind == frame.Snapshot:
			if a.snapshot -= len(data); a.snapshot < 0 {
				return nil, errors.New("the snapshot is too long")
			}
			continue
		case a.snapshot > 0:
			return nil, fmt.Errorf("output with %d bytes of snapshot to come", a.snapshot)
		}
		a.pos += uint64(len(data))
		return data, nil
	}
}

// until reads until text has come; what is before it may be the snapshot of a raw
// WebSocket. It returns what came behind.
func until(s terminal, text string) ([]byte, error) {
	var seen []byte
	for {
		if _, after, ok := bytes.Cut(seen, []byte(text)); ok {
			return after, nil
		}
		data, err := s.printed()
		if err != nil {
			return nil, fmt.Errorf("%q does not come, but %q: %w", text, last(string(seen), 100), err)
		}
		seen = append(seen, data...)
	}
}

// flowing prints lines with their numbers, once a line is typed.
var flowing = shell(`stty -opost -echo; echo ready; read go; i=0; while :; do i=$((i+1)); echo line $i; [ $((i % 50)) = 0 ] && sleep 0.01; done`)

// followsFlow reads a session that flows, from its first line on.
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

// A stroke is what was typed, and when.
type stroke struct {
	text []byte
	at   time.Time
}

// typesAndReads types numbers into a session that echoes, one each pace whether
// or not the one before has come back, and reads them. longest is how long that
// took at most.
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

// begins types a mark, and reads it.
func begins(s terminal) error {
	const mark = "<begin>"
	if _, err := s.Write([]byte(mark)); err != nil {
		return err
	}
	rest, err := until(s, mark)
	if len(rest) > 0 {
		err = fmt.Errorf("%q is read behind all that was typed", rest)
	}
	return err
}

// readsStrokes reads what is typed, and nothing else.
func readsStrokes(s terminal, strokes <-chan stroke, longest *time.Duration) error {
	var data []byte
	for k := range strokes {
		for want := k.text; len(want) > 0; {
			if len(data) == 0 {
				var err error
				if data, err = s.printed(); err != nil {
					return fmt.Errorf("before %q: %w", last(string(want), 100), err)
				}
			}
			n := min(len(want), len(data))
			if !bytes.Equal(data[:n], want[:n]) {
				return fmt.Errorf("%q is read, want %q", last(string(data), 100), last(string(want), 100))
			}
			data, want = data[n:], want[n:]
		}
		*longest = max(*longest, time.Since(k.at))
	}
	if len(data) > 0 {
		return fmt.Errorf("%q is read behind all that was typed", data)
	}
	return nil
}
