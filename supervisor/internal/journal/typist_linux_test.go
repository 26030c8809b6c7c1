package journal

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readerRole copies the input of a terminal until that is hung up.
func readerRole() error {
	b := make([]byte, 4096)
	for {
		n, err := syscall.Read(0, b)
		if errors.Is(err, syscall.EIO) || err == nil && n == 0 {
			return nil
		}
		for p := b[:max(0, n)]; len(p) > 0; {
			k, err := syscall.Write(1, p)
			if err != nil {
				return err
			}
			p = p[k:]
		}
	}
}

// kernel is the descriptor of a terminal.
type kernel int

func (k kernel) SpliceFrom(pipe uintptr, n int) (delivered int, err error) {
	for delivered < n {
		m, err := unix.Splice(int(pipe), nil, int(k), nil, n-delivered, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return delivered, nil
		case err != nil:
			return delivered, err
		}
		delivered += int(m)
	}
	return delivered, nil
}

func (k kernel) TryWrite(p []byte) (int, error) { return 0, errors.ErrUnsupported }

// awaitWritable fails if the reader has ended, which ends the test.
func awaitWritable(fd int) error {
	polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for {
		_, err := unix.Poll(polled, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil && polled[0].Revents&unix.POLLHUP != 0:
			return io.EOF
		default:
			return err
		}
	}
}

// A typist is a client and the process that holds the journal in one: it asks how much of each writer's input was
// accepted, and sends the remainder.
type typist struct {
	rnd   *rand.Rand
	j     *Journal
	mem   []byte
	sent  [killed]uint64
	paste int  // bytes of writer 0's paste that were not sent yet
	calm  bool // waits until all input is written, so that keys do not have to wait
}

func typistRole(last bool) error {
	seed, err := strconv.ParseUint(os.Args[1], 10, 64)
	if err != nil {
		return err
	}
	t := &typist{rnd: rand.New(rand.NewPCG(seed, 0))}
	if t.mem, err = unix.Mmap(fdRoom, 0, RoomBytes+4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return err
	}
	files := Files{Pipe: fdPipe, Queue: -1}
	if os.Args[2] == "queue" {
		files.Queue = fdQueue
	}
	t.j, err = Adopt(t.mem[:RoomBytes], files, Config{Max: killedMax, step: t.dies(last), Made: func(f Files) {
		if err := unix.Sendmsg(fdControl, []byte{'q'}, unix.UnixRights(f.Queue), nil, 0); err != nil {
			panic(err)
		}
	}})
	if err != nil {
		return err
	}
	if err := t.ask(); err != nil {
		return err
	}
	if _, err := unix.Write(fdControl, []byte{'t'}); err != nil {
		return err
	}
	if last {
		return t.finish()
	}
	how := t.rnd.IntN(4)
	t.calm = t.rnd.IntN(2) == 0
	for {
		if err := t.turn(how); err != nil {
			return err
		}
	}
}

// dies returns a function that ends every other process at one of its steps. Kills from outside seldom hit a step,
// because most of the time is spent in the kernel.
func (t *typist) dies(last bool) func() {
	if last || t.rnd.IntN(2) == 0 {
		return nil
	}
	left := 1 + t.rnd.IntN(3000)
	return func() {
		if left--; left == 0 {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {} // the signal is on its way
		}
	}
}

// acknowledged returns the place of the offset that was acknowledged to a writer.
func (t *typist) acknowledged(w int) *uint64 { return (*uint64)(unsafe.Pointer(&t.mem[RoomBytes+8*w])) }

func (t *typist) ask() error {
	for w := range t.sent {
		accepted, _, err := t.j.Writer(strconv.Itoa(w))
		if err != nil {
			return err
		}
		if had := *t.acknowledged(w); accepted < had {
			return fmt.Errorf("writer %d: %d accepted, %d were acknowledged", w, accepted, had)
		}
		t.sent[w] = accepted
	}
	return nil
}

// turn sends one piece, and writes as much as the terminal accepts.
func (t *typist) turn(how int) error {
	w, n := t.rnd.IntN(killed), 1
	switch {
	case how == 1:
		n = 1 + t.rnd.IntN(200)
	case how == 2:
		n = 1 + t.rnd.IntN(20_000)
	case how == 3: // pastes, and now and then a key of another writer
		if t.rnd.IntN(8) == 0 {
			break
		}
		if t.paste <= 0 {
			t.paste = aPaste
		}
		w, n = 0, min(32<<10, t.paste)
	}
	if err := t.send(w, n); err != nil {
		return err
	}
	return t.flush()
}

// send sends input that was accepted before, and n bytes more.
func (t *typist) send(w, n int) error {
	from := t.sent[w] - min(t.sent[w], uint64(t.rnd.IntN(3)))
	p := make([]byte, t.sent[w]-from+uint64(n))
	for i := range p {
		p[i] = pattern(w, from+uint64(i))
	}
	var accepted uint64
	var err error
	if k := len(p) - n; n < 10 && t.rnd.IntN(8) == 0 { // sends the new bytes by Replace
		if _, err = t.j.Replace(strconv.Itoa(w), n, p[k:]); err == nil {
			accepted, _, err = t.j.Writer(strconv.Itoa(w))
		}
	} else {
		accepted, _, err = t.j.Accept(strconv.Itoa(w), from, p)
	}
	if w == 0 {
		t.paste -= int(accepted - t.sent[w])
	}
	t.sent[w] = accepted
	*t.acknowledged(w) = accepted
	return err
}

// flush writes to the terminal, and waits if it must.
func (t *typist) flush() error {
	for {
		done, err := t.j.Flush(kernel(fdMaster))
		if err != nil || done || !t.calm && t.j.Room() > killedMax/2 {
			return err
		}
		if err := awaitWritable(fdMaster); err != nil {
			return err
		}
	}
}

// finish sends some more, and writes everything that waits.
func (t *typist) finish() error {
	for range 200 {
		if err := t.turn(1); err != nil {
			return err
		}
	}
	for t.j.Pending() > 0 {
		if _, err := t.j.Flush(kernel(fdMaster)); err != nil {
			return err
		}
		if err := awaitWritable(fdMaster); err != nil {
			return err
		}
	}
	return nil
}
