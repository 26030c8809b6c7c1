//go:build linux

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// A terminal is a PTY with a program in it. The test acts as the user.
//
//	read   reads the output; closes ended
type terminal struct {
	t      testing.TB
	master *os.File
	slave  *os.File // kept open, so that the attributes stay readable after the program has ended
	before unix.Termios
	cmd    *exec.Cmd
	piped  *os.File // if not nil, the output is read from here instead of from master

	mu      sync.Mutex
	out     []byte
	seen    int           // how many bytes of out expect has consumed
	changed chan struct{} // closed, and replaced, when out grows
	ended   chan struct{}
}

// open runs a proxy command in a terminal of 80 by 24.
func (w *world) open(args ...string) *terminal {
	w.T.Helper()
	return w.openSize(80, 24, exec.Command(filepath.Join(w.Bin, "proxy"), args...))
}

func (w *world) openSize(cols, rows uint16, cmd *exec.Cmd) *terminal {
	w.T.Helper()
	p := w.terminal(cols, rows, cmd)
	cmd.Stdout = p.slave
	w.start(p, p.master)
	return p
}

// openPipe is like openSize, for a program whose output goes into a pipe.
func (w *world) openPipe(cmd *exec.Cmd) *terminal {
	w.T.Helper()
	p := w.terminal(80, 24, cmd)
	r, out, err := os.Pipe()
	testkit.Must(w.T, err)
	p.piped, cmd.Stdout = r, out
	w.start(p, r)
	_ = out.Close() // the program has its own duplicate
	return p
}

func (w *world) terminal(cols, rows uint16, cmd *exec.Cmd) *terminal {
	w.T.Helper()
	p := &terminal{t: w.T, cmd: cmd, changed: make(chan struct{}), ended: make(chan struct{})}
	testkit.Must(w.T, p.make(cols, rows))
	return p
}

// start starts the program. Its output is read from out.
func (w *world) start(p *terminal, out *os.File) {
	w.T.Helper()
	cmd := p.cmd
	cmd.Stdin, cmd.Stderr = p.slave, p.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if cmd.Env == nil {
		cmd.Env = w.Env
	}
	cmd.Dir = w.Dir
	testkit.Must(w.T, cmd.Start())
	go p.read(out)
	w.T.Cleanup(p.close)
}

// make makes the PTY. It sets attributes that no program would choose, so that a test notices if a program
// sets defaults instead of the earlier attributes.
func (p *terminal) make(cols, rows uint16) error {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open a PTY: %w", err)
	}
	p.master = os.NewFile(uintptr(fd), "/dev/ptmx")
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err := errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)); err != nil {
		return err
	}
	if p.slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return err
	}
	attr := p.attributes()
	attr.Iflag &^= unix.IXON
	attr.Lflag &^= unix.ECHOCTL
	attr.Cc[unix.VERASE] = 8
	if err := unix.IoctlSetTermios(int(p.slave.Fd()), unix.TCSETS, &attr); err != nil {
		return err
	}
	p.before = p.attributes()
	return p.resize(cols, rows)
}

func (p *terminal) attributes() unix.Termios {
	attr, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	testkit.Must(p.t, err)
	return *attr
}

func (p *terminal) resize(cols, rows uint16) error {
	return unix.IoctlSetWinsize(int(p.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: cols, Row: rows})
}

func (p *terminal) read(from *os.File) {
	defer close(p.ended)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		p.out = append(p.out, buf[:n]...)
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// close closes the terminal, so that the program receives SIGHUP, and then kills the program.
func (p *terminal) close() {
	_ = p.master.Close() // the test has already checked the output
	_ = p.slave.Close()
	if p.piped != nil {
		_ = p.piped.Close()
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	<-p.ended
}

// text returns the whole output.
func (p *terminal) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.out)
}

// expect waits until want appears after the text that was expected before.
func (p *terminal) expect(want string) {
	p.t.Helper()
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		p.mu.Lock()
		i := bytes.Index(p.out[p.seen:], []byte(want))
		if i >= 0 {
			p.seen += i + len(want)
		}
		rest, changed := p.out[p.seen:], p.changed
		p.mu.Unlock()
		if i >= 0 {
			return
		}
		select {
		case <-changed:
		case <-late.C:
			p.t.Fatalf("%s: waiting for %q: got %q", p.cmd, want, rest[max(0, len(rest)-2000):])
		}
	}
}

// typ types text. A terminal accepts input only as fast as the program reads it.
func (p *terminal) typ(text string) {
	p.t.Helper()
	testkit.Must(p.t, p.master.SetWriteDeadline(time.Now().Add(limit)))
	if _, err := p.master.WriteString(text); err != nil {
		p.t.Fatal(err)
	}
}

// ask types a line for a shell and waits for the answer.
func (p *terminal) ask(line, answer string) {
	p.t.Helper()
	p.typ(line + "\r")
	p.expect(answer)
}

// wait waits for the end of the program, and returns its exit code.
func (p *terminal) wait() int {
	p.t.Helper()
	late := time.AfterFunc(limit, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait() // the exit code contains the result
	if !late.Stop() {
		text := p.text()
		p.t.Fatalf("%s does not end; its output is %q", p.cmd, text[max(0, len(text)-2000):])
	}
	return p.cmd.ProcessState.ExitCode()
}

// ends waits for the end of the program, and checks the exit code, the output, and that attributes and modes
// of the terminal are restored.
func (p *terminal) ends(code int, says string) {
	p.t.Helper()
	if got := p.wait(); got != code {
		p.t.Errorf("exit code %d, want %d", got, code)
	}
	if says != "" {
		p.expect(says)
	}
	p.drain()
	if got := p.attributes(); got != p.before {
		p.t.Errorf("the terminal's attributes are\n%+v, want\n%+v", got, p.before)
	}
	if left := leftOn(p.text()); len(left) > 0 {
		p.t.Errorf("modes that are left on: %q", left)
	}
}

// drain reads the remaining output of the program, up to a mark that it writes itself.
func (p *terminal) drain() {
	p.t.Helper()
	const mark = "\x1e and that was all"
	if p.piped != nil {
		return
	}
	if _, err := p.slave.WriteString(mark); err != nil {
		p.t.Fatal(err)
	}
	p.expect(mark)
}

var setting = regexp.MustCompile(`\x1b\[([?<>=]?)([\d;]*)([hlu])|\x1b([=>])`)

// leftOn returns the modes that the output has switched on and not off. It knows only the sequences of these
// tests.
func leftOn(out string) (left []string) {
	on, kitty := map[string]bool{"?25": true}, 0
	for _, m := range setting.FindAllStringSubmatch(out, -1) {
		switch prefix, final := m[1], m[3]; {
		case m[4] != "":
			on["keypad"] = m[4] == "="
		case final == "u" && prefix == ">":
			kitty++
		case final == "u" && prefix == "<":
			kitty--
		case final != "u":
			for _, n := range strings.Split(m[2], ";") {
				on[prefix+n] = final == "h"
			}
		}
	}
	for name, is := range on {
		if is != (name == "?25" || name == "?7") {
			left = append(left, name)
		}
	}
	if kitty != 0 {
		left = append(left, fmt.Sprintf("%d kitty flags", kitty))
	}
	slices.Sort(left)
	return left
}
