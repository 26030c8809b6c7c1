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

	"holdfast/proxy/internal/daemon"
)

// drain is how long the program's output is read after its end. The program's own output is in
// the pipe by then, but a child that has left its process group may hold the other end open.
const drain = time.Second

// A program is the policy's process, and go-plugin's runner for it.
//
// The library's own runner is not used, for three reasons. It would give the program the proxy's
// standard input. It would not notice the program's death while a child of the program holds its
// output open. And it panics at a line on standard error like {"@message":1}. Therefore the
// library receives only the first line of standard output, which is the handshake, and all other
// output goes to says.
type program struct {
	cmd  *exec.Cmd
	cfg  Config
	says *says
	dir  string // directory of the socket, made by the library

	stdin          *os.File // never written to: when it is closed, the program learns that the proxy has ended
	stdout, stderr *os.File
	first          *io.PipeReader         // the handshake line, for the library
	printed        atomic.Pointer[string] // the first line of standard output
	hello          atomic.Pointer[hello]  // the parsed first line; nil if it is no handshake
	output         sync.WaitGroup         // the goroutines that read the output

	mu        sync.Mutex
	pid       int  // 0 before the start
	isStopped bool // it must not be started any more
	isReaped  bool // the pid is free, or belongs to another process

	ctx  context.Context // canceled when the process has ended
	dead context.CancelFunc
}

// lastWords returns the last line of the program's output in quotes, for an error text, or
// "nothing".
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

// prepare stores the library's directory, and creates the command with the library's environment
// variables.
func (p *program) prepare(env []string, dir string) {
	p.dir = dir
	p.cmd = exec.Command(p.cfg.Path)
	p.cmd.Env = append(environment(os.Environ(), p.cfg.ConfigFile), env...)
	p.cmd.Dir = root
	p.cmd.SysProcAttr = attributes()
}

// errStopped means that Kill was called before the program was started.
var errStopped = errors.New("the start was given up")

// Start implements runner.Runner.
func (p *program) Start(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isStopped {
		return errStopped
	}
	programEnds, err := p.pipes()
	if err != nil {
		return err
	}
	daemon.CloseInherited()
	started := make(chan error)
	go p.runProcess(started)
	err = <-started
	for _, f := range programEnds {
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

// live starts the program and waits for its end, in one locked thread. If the kernel ends a child
// with its parent (see attributes), the parent is the thread that started the child, so this
// thread must not end before the program.
func (p *program) runProcess(started chan<- error) {
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

// Kill implements runner.Runner. It kills the program's children, too.
func (p *program) Kill(context.Context) error { return p.signal(syscall.SIGKILL) }

func (p *program) terminate() { _ = p.signal(syscall.SIGTERM) }

func (p *program) signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isStopped = p.isStopped || s == syscall.SIGKILL
	if p.pid == 0 || p.isReaped {
		return nil
	}
	return signalGroup(p.cmd.Process, s)
}

// join returns when the killed program has ended and its output is read.
func (p *program) join() {
	if p.ID() == "" {
		return
	}
	<-p.ctx.Done()
	_ = p.first.Close()
	p.output.Wait()
}

// remove removes the directory of the socket, because the library does not if the program could
// not be started.
func (p *program) remove() {
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}

// exitStatus returns how the program ended; it must have ended.
func (p *program) exitStatus() string { return p.cmd.ProcessState.String() }

// hasEnded reports whether the program was started and ended without a SIGKILL.
func (p *program) hasEnded() bool {
	if p.cmd == nil || p.cmd.ProcessState == nil {
		return false
	}
	w, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return !(ok && w.Signaled() && w.Signal() == syscall.SIGKILL)
}
