package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// A stream is a session whose child prints numbered lines and repeats the numbered lines that it reads as
// input, in bursts with pauses, together with an attachment that checks each byte of the output. A test replaces,
// stops or kills processes meanwhile.
//
// Three goroutines work on it:
//
//	read   reads the attachment; owns line, all and from
//	feed   grants the child lines to print, up to linesAhead more than were read
//	type_  types the next line if fewer than typedAhead lines are without an answer
type stream struct {
	w       *world
	c       *client.Client
	spawned *client.Spawned
	a       *client.Attachment
	fifo    *os.File

	mu      sync.Mutex
	changed *sync.Cond
	granted int // lines that the child may have printed
	printed int // lines read
	typed   int // lines typed
	heard   int // typed lines that the child has repeated
	stopped bool
	ended   bool
	err     error

	line []byte       // the beginning of a line; owned by read
	all  bytes.Buffer // the output that was read last; owned by read until it has ended
	from uint64       // the offset of the first byte of all
	wg   sync.WaitGroup
}

// linesAhead limits how far the child runs ahead of the reader, typedAhead how many typed lines are without
// an answer. The child prints perGrant lines for each byte in the fifo.
const (
	linesAhead = 1500
	typedAhead = 8
	perGrant   = 25
)

// The child prints in bursts with pauses, so that the processes under test meet output at its full speed
// as well as its begin and end, and so that a stream does not keep a processor busy as long as its test
// runs. In the long mode, streams do not pause.
const (
	grantsPerBurst = 4
	burstInterval  = 20 * time.Millisecond
)

// mostRead is the number of bytes of output that a stream remembers at least. It is more than any ring of
// these tests holds. Up to twice as much is in memory.
const mostRead = 72 << 20

func newStream(t testing.TB, w *world, id string) *stream {
	t.Helper()
	path := w.Path(id + ".fifo")
	testkit.Must(t, unix.Mkfifo(path, 0o600))
	fifo, err := os.OpenFile(path, os.O_RDWR, 0)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = fifo.Close() })
	s := &stream{w: w, c: w.dial(client.Options{}), fifo: fifo}
	s.changed = sync.NewCond(&s.mu)
	s.spawned = w.spawn(s.c, id, role("printer", path))
	v := w.attach(s.c, id, client.AttachOptions{})
	v.until("ready\n")
	if len(v.buf) > 0 {
		t.Fatalf("the child printed %q without a grant", v.buf)
	}
	s.a = v.Attachment
	s.wg.Go(s.read)
	s.wg.Go(s.feed)
	s.wg.Go(s.type_)
	return s
}

// printer is the child: it prints perGrant lines for each byte of the fifo, and repeats each line of its
// input.
func printer(args []string) error {
	if err := raw(os.Stdin); err != nil {
		return err
	}
	fifo, err := os.OpenFile(args[0], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	fmt.Print("ready\n")
	go func() {
		typed := bufio.NewScanner(os.Stdin)
		for typed.Scan() {
			fmt.Printf("typed %s\n", typed.Text()) // in one write(2), so that lines do not mix
		}
	}()
	grant := make([]byte, 1)
	for n := 0; ; {
		if _, err := fifo.Read(grant); err != nil {
			return err
		}
		var lines bytes.Buffer
		for range perGrant {
			n++
			fmt.Fprintf(&lines, "line %08d\n", n)
		}
		if _, err := os.Stdout.Write(lines.Bytes()); err != nil {
			return err
		}
	}
}

// raw makes a terminal pass on all bytes unchanged.
func raw(f *os.File) error {
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag, t.Oflag = 0, 0
	t.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t)
}

// read checks that each byte of the output comes at its offset, and that each line continues the numbers.
func (s *stream) read() {
	const begin = uint64(len("ready\n"))
	s.all.WriteString("ready\n")
	pos := begin
	for {
		m, err := s.a.Receive(limit)
		if err != nil {
			s.fail(fmt.Errorf("receive after offset %d: %w", pos, err))
			return
		}
		switch m.Kind {
		case client.Output:
			if m.Offset != pos {
				s.fail(fmt.Errorf("output at offset %d, want offset %d", m.Offset, pos))
				return
			}
			pos += uint64(len(m.Data))
			s.all.Write(m.Data)
			if more := s.all.Len() - mostRead; more > mostRead {
				s.all.Next(more)
				s.from += uint64(more)
			}
			if err := s.take(m.Data); err != nil {
				s.fail(err)
				return
			}
		case client.Resized: // a resume repeats the size
			if m.Size != s.spawned.Session.Size {
				s.fail(fmt.Errorf("the size became %v after offset %d", m.Size, pos))
				return
			}
		case client.Exited:
			s.mu.Lock()
			s.ended = true
			s.changed.Broadcast()
			s.mu.Unlock()
			return
		default:
			s.fail(fmt.Errorf("unexpected message after offset %d: %+v", pos, m))
			return
		}
	}
}

// take counts the complete lines in data.
func (s *stream) take(data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	s.line = append(s.line, data...)
	for {
		line, rest, ok := bytes.Cut(s.line, []byte("\n"))
		if !ok {
			return nil
		}
		s.line = rest
		switch text := string(line); text {
		case fmt.Sprintf("line %08d", s.printed+1):
			s.printed++
		case fmt.Sprintf("typed %08d", s.heard+1):
			s.heard++
		default:
			return fmt.Errorf("after line %d and typed line %d: unexpected line %q", s.printed, s.heard, text)
		}
	}
}

func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	s.changed.Broadcast()
}

// until waits until cond holds, and reports whether the stream still runs. It calls cond with mu held.
func (s *stream) until(cond func() bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && !cond() {
		s.changed.Wait()
	}
	return s.err == nil
}

func (s *stream) feed() {
	bursts := time.NewTicker(burstInterval)
	defer bursts.Stop()
	for n := 1; s.until(func() bool { return s.stopped || s.granted < s.printed+linesAhead }); n++ {
		if n%grantsPerBurst == 0 && !isLong {
			<-bursts.C
		}
		s.mu.Lock()
		stopped := s.stopped
		if !stopped {
			s.granted += perGrant
		}
		s.mu.Unlock()
		if stopped {
			return
		}
		if _, err := s.fifo.Write([]byte{'.'}); err != nil {
			s.fail(err)
			return
		}
	}
}

func (s *stream) type_() {
	bursts := time.NewTicker(burstInterval)
	defer bursts.Stop()
	for s.until(func() bool { return s.stopped || s.typed < s.heard+typedAhead }) {
		s.mu.Lock()
		stopped := s.stopped
		if !stopped {
			s.typed++
		}
		n := s.typed
		s.mu.Unlock()
		if stopped {
			return
		}
		if n%typedAhead == 0 && !isLong {
			<-bursts.C
		}
		if _, err := fmt.Fprintf(s.a, "%08d\n", n); err != nil {
			s.fail(fmt.Errorf("type line %d: %w", n, err))
			return
		}
	}
}

// flow waits until the child has printed n lines that were not granted before the call, and has repeated the
// lines typed before the call. So output and input both passed after the call.
func (s *stream) flow(t testing.TB, n int) {
	t.Helper()
	s.mu.Lock()
	lines, typed := s.granted+n, s.typed
	s.mu.Unlock()
	if !s.until(func() bool { return s.printed >= lines && s.heard >= typed }) {
		t.Fatal(s.err)
	}
}

// finish waits for the remaining output, ends the child, and compares the bytes that were read with the bytes
// in the supervisor's ring.
func (s *stream) finish(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	s.stopped = true
	s.changed.Broadcast()
	s.mu.Unlock()
	if !s.until(func() bool { return s.printed == s.granted && s.heard == s.typed }) {
		t.Fatal(s.err)
	}
	info, err := s.c.SessionInfo(s.w.ctx(), s.spawned.SessionID)
	testkit.Must(t, err)
	if info.PID != s.spawned.PID || info.Instance != s.spawned.Session.Instance || !lookup(info.PID).Running() {
		t.Errorf("the child was pid %d of instance %s; now it is %d of %s", s.spawned.PID, s.spawned.Session.Instance, info.PID, info.Instance)
	}
	kept, from, err := s.c.Output(s.w.ctx(), s.spawned.SessionID)
	testkit.Must(t, err)
	if err := syscall.Kill(s.spawned.PID, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	if !s.until(func() bool { return s.ended }) {
		t.Fatal(s.err)
	}
	s.wg.Wait()
	read := s.all.Bytes()
	if end := s.from + uint64(len(read)); from < s.from || from > end || !bytes.Equal(kept, read[from-s.from:]) {
		t.Errorf("the %d bytes that were read differ from the supervisor's, which begin at offset %d", end, from)
	}
	if missed := s.a.Missed(); missed != 0 {
		t.Errorf("%d bytes were missed", missed)
	}
	t.Logf("%d lines, %d of them typed, %d bytes", s.printed+s.heard, s.heard, s.from+uint64(len(read)))
}

// hammer connects, sends hello and asks for the list in a loop, until stop is true. It returns how often all
// succeeded, how often a connection was closed before its answer, and the errors of the attempts to connect
// that failed.
func (w *world) hammer(stop *atomic.Bool) (good, cut int, refused error) {
	for !stop.Load() {
		p, err := w.peer("proxy.sock")
		if err != nil {
			refused = errors.Join(refused, err)
			continue
		}
		if p.greet("") == nil && p.list() == nil {
			good++
		} else {
			cut++
		}
		_ = p.Close()
	}
	return good, cut, refused
}

// lines counts the lines of a log that contain all words.
func (w *world) lines(name string, words ...string) int {
	b, _ := os.ReadFile(w.Path(name))
	n := 0
	for line := range strings.Lines(string(b)) {
		has := 0
		for _, word := range words {
			if strings.Contains(line, word) {
				has++
			}
		}
		if has == len(words) {
			n++
		}
	}
	return n
}
