//go:build linux || darwin

package pty

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// A child on its terminal outlives the program that started it: the process executes another program, which reads on,
// sends input, resizes, sends signals, and learns how the child ended, even if it ended during the exec.
func TestAdoptAfterExec(t *testing.T) {
	for name, tt := range map[string]struct{ code, want string }{
		"lives on":        {`stty -echo; echo READY; read x; echo "got $x at $(stty size)"; exit 7`, "got hello at 33 99; code 7"},
		"is hung up":      {`stty -echo; trap '' INT; echo READY; exec sleep 1000`, "; code 129 SIGHUP"},
		"ended meanwhile": {`stty -echo; echo READY; echo last; exit 9`, "last; code 9"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := asRole("hands-on", "")
			spec.Env = append(spec.Env, "PTY_TEST_CODE="+tt.code, "PTY_TEST_NAME="+name)
			got := strings.TrimSpace(rest(t, run(t, spec)))
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// handsOnRole starts a child, and executes this binary in the next role.
func handsOnRole() error {
	p, err := Start(script(os.Getenv("PTY_TEST_CODE")))
	if err != nil {
		return err
	}
	isEnd := os.Getenv("PTY_TEST_NAME") == "ended meanwhile"
	if isEnd {
		p.reaping.Lock() // for good: Spec.Ended would have to save the status of a child that this program reaps before it executes the next one
	}
	var said strings.Builder
	for b := make([]byte, 1); !strings.HasSuffix(said.String(), "READY\r\n"); { // reads no further
		n, err := p.Read(b)
		if err != nil {
			return err
		}
		said.Write(b[:n])
	}
	if isEnd {
		for { // waits for a zombie
			q, err := readProc(p.pid)
			if err != nil {
				return err
			}
			if q.isZombie {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	master, err := p.Master()
	if err != nil {
		return err
	}
	state, err := json.Marshal(p.State())
	if err != nil {
		return err
	}
	fd := master.Fd()
	if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
		return err
	}
	for name, value := range map[string]string{"ROLE": "adopts", "STATE": string(state), "FD": strconv.Itoa(int(fd))} {
		if err := os.Setenv("PTY_TEST_"+name, value); err != nil {
			return err
		}
	}
	return syscall.Exec(os.Args[0], os.Args[:1], os.Environ())
}

func adoptsRole() error {
	var st State
	if err := json.Unmarshal([]byte(os.Getenv("PTY_TEST_STATE")), &st); err != nil {
		return err
	}
	fd, err := strconv.Atoi(os.Getenv("PTY_TEST_FD"))
	if err != nil {
		return err
	}
	p, err := Adopt(st, os.NewFile(uintptr(fd), "ptmx"), nil, nil)
	if err != nil {
		return err
	}
	switch os.Getenv("PTY_TEST_NAME") {
	case "lives on":
		if err := p.Resize(99, 33, 0, 0); err != nil {
			return err
		}
		if _, err := p.Write([]byte("hello\n")); err != nil {
			return err
		}
	case "is hung up":
		p.Hangup(unix.SIGHUP, time.Minute)
	}
	said, err := io.ReadAll(p)
	if err != nil {
		return err
	}
	<-p.Done()
	fmt.Printf("%s; code %s\n", strings.TrimSpace(string(said)), strings.TrimSpace(fmt.Sprint(p.Status().Code, " ", p.Status().Signal)))
	return p.Close()
}

// If another process has to wait for the child, Adopt learns its end from a channel.
func TestAdoptTold(t *testing.T) {
	p := bash(t, "echo READY; exec sleep 1000")
	exit := make(chan Status, 1)
	master, err := p.Master()
	testkit.Must(t, err)
	q, err := Adopt(p.State(), master, reportedBy(exit), nil)
	testkit.Must(t, err)
	defer q.Close()
	hung := make(chan bool, 1)
	go func() {
		hard, _ := q.Hangup(unix.SIGTERM, forever)
		hung <- hard
	}()
	exit <- ended(t, p)
	if hard := <-hung; hard || q.Status() != (Status{Code: 143, Signal: "SIGTERM"}) || q.PID() != p.PID() {
		t.Errorf("hard %v, %+v", hard, q.Status())
	}

	// A PTY whose child had ended needs no master, and knows the status.
	st := p.State()
	if st.Ended == nil || *st.Ended != p.Status() {
		t.Fatalf("the state is %+v", st)
	}
	gone, err := Adopt(st, nil, nil, nil)
	if err != nil || gone.Status() != p.Status() || gone.Close() != nil {
		t.Errorf("the adopted PTY is %+v, %v", gone, err)
	}
	if _, err := gone.Read(make([]byte, 1)); err == nil {
		t.Error("a PTY without a master can be read")
	}
	if _, err := Adopt(State{PID: 1}, nil, nil, nil); err == nil {
		t.Error("a PTY without a master was adopted although its child lives")
	}
	noReport := make(chan Status) // of its own, because q may have learned its end from the kernel, and not from its channel
	close(noReport)
	unreported, err := Adopt(State{PID: st.PID}, pipeEnd(t), reportedBy(noReport), nil)
	testkit.Must(t, err)
	defer unreported.Close()
	<-unreported.Done()
	if s := unreported.Status(); s.Code != -1 || s.Err == nil {
		t.Errorf("without a report the status is %+v", s)
	}
}

// pipeEnd returns a pipe in the place of a master. It has no output.
func pipeEnd(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	testkit.Must(t, err)
	t.Cleanup(func() { w.Close() })
	return r
}

// reportedBy returns an awaiter of exits that reads them from a channel.
func reportedBy(exit <-chan Status) func(int) <-chan Status {
	return func(int) <-chan Status { return exit }
}

// If no process reports how the child ended, the adopted PTY still learns that it ended.
func TestAdoptNobodys(t *testing.T) {
	p := bash(t, "echo READY; exec sleep 1000")
	master, err := p.Master()
	testkit.Must(t, err)
	q, err := Adopt(p.State(), master, func(int) <-chan Status { return nil }, nil)
	testkit.Must(t, err)
	defer q.Close()
	if st := q.State(); !st.Foreign || st.Ended != nil {
		t.Errorf("the state is %+v", st)
	}
	testkit.Must(t, q.Signal(unix.SIGTERM))
	<-q.Done()
	// The kernel tells the status since Linux 6.15.
	if s := q.Status(); s.Code != 143 && (s.Code != -1 || s.Err == nil) {
		t.Errorf("ended as %+v", s)
	}
	if s := ended(t, p); s.Code != 143 {
		t.Errorf("the parent learned %+v", s)
	}
}

// If the process executed another program after it had noted the end of a child and before it had reaped it, the next
// program reaps the child, and no other process.
func TestAdoptNoted(t *testing.T) {
	child, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "exit 7"}, &os.ProcAttr{})
	testkit.Must(t, err)
	defer child.Release()
	var q proc
	for q, err = readProc(child.Pid); err == nil && !q.isZombie; q, err = readProc(child.Pid) {
		time.Sleep(time.Millisecond)
	}
	testkit.Must(t, err)
	for _, tt := range []struct {
		name  string
		start uint64
		left  bool
	}{{"another process", q.start + 1, true}, {"the child", q.start, false}, {"reaped", q.start, false}} {
		p, err := Adopt(State{PID: child.Pid, Start: tt.start, Ended: &Status{Code: 7}}, nil, nil, nil)
		testkit.Must(t, err)
		<-p.Done()
		if status := p.Status(); status.Code != 7 || status.Err != nil {
			t.Errorf("%s: the child ended with %+v", tt.name, status)
		}
		if _, err := readProc(child.Pid); (err == nil) != tt.left {
			t.Errorf("%s: the child is still a zombie: %v, want %v", tt.name, err == nil, tt.left)
		}
	}
}
