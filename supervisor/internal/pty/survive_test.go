//go:build linux

package pty

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"holdfast/shared/testkit"
)

// Opened is called before there is a child, and Ended before the child is reaped. So a caller can keep the terminal
// and the status.
func TestHandedOnBefore(t *testing.T) {
	var kept *os.File
	statuses := make(chan Status, 2)
	spec := script("kill -USR1 $$")
	spec.Opened = func(p *PTY) (err error) {
		if p.PID() != 0 {
			t.Error("the child was started before Opened was called")
		}
		kept, err = p.Master()
		return err
	}
	spec.Ended = func(s Status) {
		statuses <- s
	}
	p := run(t, spec)
	defer kept.Close()
	want := Status{Code: 128 + 10, Signal: "SIGUSR1"}
	if s := ended(t, p); s != want {
		t.Errorf("ended as %+v", s)
	}
	if s := <-statuses; s != want || len(statuses) != 0 {
		t.Errorf("Ended was called with %+v, and %d more times", s, len(statuses))
	}
}

func TestNotOpened(t *testing.T) {
	spec := script("exit 0")
	refused := errors.New("the keeper refused the terminal")
	spec.Opened = func(*PTY) error { return refused }
	if _, err := Start(spec); !errors.Is(err, refused) {
		t.Errorf("started, %v", err)
	}
}

// Adopt finds the child by its terminal, because the process that started it may have died before it could store the
// pid.
func TestFindsChild(t *testing.T) {
	p := bash(t, "echo READY; exec sleep 1000")
	master, err := p.Master()
	testkit.Must(t, err)
	st := p.State()
	st.PID, st.Start = 0, 0
	exit := make(chan Status)
	q, err := Adopt(st, master, reportedBy(exit), nil)
	testkit.Must(t, err)
	defer q.Close()
	defer close(exit)
	if q.PID() != p.PID() || q.State().Start != p.State().Start {
		t.Errorf("Adopt found %+v, want %+v", q.State(), p.State())
	}
	empty, slave, err := open(80, 24)
	testkit.Must(t, err)
	defer empty.Close()
	if master, err = empty.Master(); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, slave.Close())
	if _, err := Adopt(State{}, master, reportedBy(exit), nil); !errors.Is(err, ErrNoChild) {
		t.Errorf("a terminal without a child was adopted: %v", err)
	}
}

// Adopt waits for a child that was forked and has not made its session yet, because its terminal could not have
// another one.
func TestFindsLateChild(t *testing.T) {
	p, slave, err := open(80, 24)
	testkit.Must(t, err)
	defer p.Close()
	goOn, write, err := os.Pipe()
	testkit.Must(t, err)
	late := exec.Command(os.Args[0])
	late.Env = append(os.Environ(), "PTY_TEST_ROLE=late")
	late.Stdin, late.ExtraFiles = slave, []*os.File{goOn}
	testkit.Must(t, late.Start())
	defer func() {
		_ = late.Process.Kill()
		_ = late.Wait()
	}()
	testkit.Must(t, errors.Join(slave.Close(), goOn.Close()))
	master, err := p.Master()
	testkit.Must(t, err)
	exit := make(chan Status)
	defer close(exit)
	adopted := make(chan error, 1)
	var q *PTY
	go func() {
		var err error
		q, err = Adopt(State{}, master, reportedBy(exit), nil)
		adopted <- err
	}()
	testkit.Must(t, write.Close())
	testkit.Must(t, <-adopted)
	defer q.Close()
	if q.PID() != late.Process.Pid {
		t.Errorf("Adopt found %d, want %d", q.PID(), late.Process.Pid)
	}
}
