package policyhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// drain is how long what is printed may outlast the program: what it has said is
// in the pipe, but a child that has left its group may hold the other end.
const drain = time.Second

// A program is the process, and go-plugin's runner of it.
//
// The library's own runner would give it our standard input, would not learn of
// its death while a child of it holds its output, and the library panics at a
// line on standard error like {"@message":1}. So the library gets the first line
// of standard output, which is the handshake, and the rest goes to says.
type program struct {
	cmd  *exec.Cmd
	cfg  Config
	says *says
	dir  string // of the socket; made by the library

	stdin          *os.File // never written to: its end tells the program of ours
	stdout, stderr *os.File
	first          *io.PipeReader         // the handshake, for the library
	printed        atomic.Pointer[string] // the first line
	hello          atomic.Pointer[hello]  // the same, understood
	output         sync.WaitGroup         // who reads it

	mu      sync.Mutex
	pid     int  // 0 until it is started
	stopped bool // not to be started
	reaped  bool // the pid is nobody's, or another's

	ctx  context.Context // ends with the process
	dead context.CancelFunc
}

// lastWords is the last line that the program said, for an error.
func (p *program) lastWords() string {
	if line := p.says.lastLine(); line != "" {
		return fmt.Sprintf("%.300q", line)
	}
	return "nothing"
}

func newProgram(cfg Config, says *says) *program {
	p := &program{cfg: cfg, says: says}
	p.ctx, p.dead = context.WithCancel(context.Background())
	return p
}

// prepare is told what the library adds to the environment, and its directory.
func (p *program) prepare(env []string, dir string) {
	p.dir = dir
	p.cmd = exec.Command(p.cfg.Path)
	p.cmd.Env = append(environment(os.Environ(), p.cfg.ConfigFile), env...)
	p.cmd.Dir = root
	p.cmd.SysProcAttr = attributes()
}

// errStopped is of a program that was given up before it was started.
var errStopped = errors.New("it was given up")

// Start implements runner.Runner.
func (p *program) Start(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return errStopped
	}
	theirs, err := p.pipes()
	if err != nil {
		return err
	}
	closeOnExec()
	started := make(chan error)
	go p.live(started)
	err = <-started
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		p.closePipes()
		return err
	}
	p.pid = p.cmd.Process.Pid
	var to *io.PipeWriter
	p.first, to = io.Pipe()
	p.output.Go(func() { p.readStdout(to) })
	p.output.Go(func() { p.readStderr() })
	return nil
}

// live is the program's life. Where the kernel ends a child with its parent
// (attributes), the parent is the thread that started it, so that this one must
// not end before.
func (p *program) live(started chan<- error) {
	defer p.dead()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.wait()
	_ = p.stdin.Close()
	until := time.Now().Add(drain)
	_ = p.stdout.SetReadDeadline(until)
	_ = p.stderr.SetReadDeadline(until)
}

// Wait implements runner.Runner.
func (p *program) Wait(context.Context) error {
	<-p.ctx.Done()
	if s := p.cmd.ProcessState; s != nil && !s.Success() {
		return &exec.ExitError{ProcessState: s}
	}
	return nil
}

// Kill implements runner.Runner. It ends the children, too.
func (p *program) Kill(context.Context) error { return p.signal(syscall.SIGKILL) }

func (p *program) terminate() { _ = p.signal(syscall.SIGTERM) }

func (p *program) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = p.stopped || s == syscall.SIGKILL
	if p.pid == 0 || p.reaped {
		return nil
	}
	return signalGroup(p.cmd.Process, s)
}

// join returns when the program, which was killed, is gone and all that it said
// is read.
func (p *program) join() {
	if p.ID() == "" {
		return
	}
	<-p.ctx.Done()
	_ = p.first.Close()
	p.output.Wait()
}

// remove removes the directory of the socket. The library does not when the
// program could not be started.
func (p *program) remove() {
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}

// how says how it ended, which it must have.
func (p *program) how() string { return p.cmd.ProcessState.String() }

// ended reports whether it ran and ended by itself.
func (p *program) ended() bool {
	if p.cmd == nil || p.cmd.ProcessState == nil {
		return false
	}
	w, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return !(ok && w.Signaled() && w.Signal() == syscall.SIGKILL)
}
