package client

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/shared/config"
	"holdfast/shared/tail"
	"holdfast/shared/version"
)

// SSHOptions name another host, and how ssh reaches the proxy there.
type SSHOptions struct {
	Host    string   // as for ssh: HOST, USER@HOST, or a name of ~/.ssh/config
	Command []string // ssh and its options; default the setting ssh_command
	Program string   // the program of the proxy on the host; default "proxy", which is also looked for in ~/.local/bin
	Dir     string   // directory of Holdfast's files on the host; default the user's directories there
	Proxy   string   // name of the proxy on the host; default "proxy"
	Start   bool     // start a proxy and a supervisor on the host if none runs
}

// ErrNotInstalled tells that the program of the proxy was not found on the host.
var ErrNotInstalled = errors.New("not installed")

// StdioGreeting begins the line that "proxy stdio" prints before the frames of the api. The number of
// the format and the release of the program follow, separated by spaces. Whatever a shell's start-up
// files print before that line is ignored.
const StdioGreeting = "holdfast-stdio"

// StdioFormat is the number of the format behind StdioGreeting.
const StdioFormat = "1"

const (
	maxGreeting = 64 << 10 // bytes before and in the greeting
	maxSSHText  = 4 << 10  // bytes of ssh's messages that are kept, for errors
	// sshPauseMin and sshPauseMax are how long a dial waits after a dial that failed. Hosts may
	// shut out an address that fails to connect very often.
	sshPauseMin = time.Second
	sshPauseMax = 10 * time.Second
	// sshEnd is how long ssh may take to send its last bytes after its input was closed, and to
	// report its exit code after its output has ended.
	sshEnd = 2 * time.Second
)

// hostPath are directories in which the shell of an ssh command often does not look for programs.
const hostPath = "$HOME/.local/bin:/usr/local/bin:/opt/homebrew/bin:/opt/homebrew/opt/holdfast/libexec/holdfast"

// packagePath is the directory in which a Debian package has the proxy. It precedes the PATH, because another
// package may have a program with the name proxy.
const packagePath = "/usr/libexec/holdfast"

// An sshDialer runs ssh for each connection. The first ones may ask the user for a password or about
// the key of the host. After a connection was lost, ssh asks nothing (BatchMode), because the user's
// terminal then belongs to a session.
type sshDialer struct {
	o SSHOptions

	mu       sync.Mutex
	hasBegun bool // a connection has succeeded
	hasLost  bool // a connection has ended that the client had not closed
	pause    time.Duration
}

func newSSHDialer(o SSHOptions) (*sshDialer, error) {
	if o.Host == "" || o.Host[0] == '-' || strings.ContainsFunc(o.Host, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return nil, fmt.Errorf("%.60q is no name of a host", o.Host)
	}
	if len(o.Command) == 0 {
		o.Command = config.DefaultSSHCommand()
	}
	o.Program = cmp.Or(o.Program, config.DefaultProxy)
	return &sshDialer{o: o}, nil
}

// dial runs ssh and returns when "proxy stdio" on the host is connected with the proxy there.
func (d *sshDialer) dial(ctx context.Context) (net.Conn, error) {
	d.mu.Lock()
	wait, isLater, isQuiet := d.pause, d.hasBegun, d.hasLost
	d.mu.Unlock()
	if err := pause(ctx, wait); err != nil {
		return nil, err
	}
	c, err := d.start(ctx, isLater, isQuiet)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.pause = min(max(2*d.pause, sshPauseMin), sshPauseMax)
		return nil, err
	}
	d.pause, d.hasBegun = 0, true
	return c, nil
}

func (d *sshDialer) start(ctx context.Context, isLater, isQuiet bool) (*sshConn, error) {
	cmd := exec.Command(d.o.Command[0], d.args(isLater, isQuiet)...)
	c := &sshConn{cmd: cmd, dialer: d, text: tail.Tail{Max: maxSSHText}, exited: make(chan struct{})}
	cmd.Stderr, cmd.WaitDelay = &c.text, sshEnd
	if isQuiet {
		ownGroup(cmd) // an interrupt of the terminal is not meant for this ssh
	}
	if err := c.run(); err != nil {
		return nil, fmt.Errorf("run %s: %w", d.o.Command[0], err)
	}
	stop := context.AfterFunc(ctx, c.kill)
	err := c.greeting()
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		c.kill()
		<-c.exited
		return nil, err
	}
	return c, nil
}

// args returns the arguments of ssh.
func (d *sshDialer) args(isLater, isQuiet bool) []string {
	args := append([]string{}, d.o.Command[1:]...)
	args = append(args, "-T")
	if isQuiet {
		args = append(args, "-o", "BatchMode=yes")
	}
	stdio := []string{d.o.Program, "stdio", "--proxy", cmp.Or(d.o.Proxy, config.DefaultProxy)}
	if d.o.Dir != "" {
		stdio = append(stdio, "--dir", d.o.Dir)
	}
	switch {
	case isLater:
		stdio = append(stdio, "--again")
	case d.o.Start:
		stdio = append(stdio, "--start")
	}
	return append(args, "--", d.o.Host, HostCommand(stdio))
}

// HostCommand returns the command line that runs argv on a host by ssh, also if its program is in a
// directory in which the shell there does not look for programs. The shell may be any shell that knows
// single quotes.
func HostCommand(argv []string) string {
	line := `sh -c 'PATH="` + packagePath + `:$PATH:` + hostPath + `"; export PATH; exec "$0" "$@"'`
	for _, arg := range argv {
		line += " '" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return line
}

// An sshConn is a connection over the input and output of ssh.
type sshConn struct {
	cmd     *exec.Cmd
	dialer  *sshDialer
	in      *os.File
	out     *os.File
	reader  *bufio.Reader // of out
	text    tail.Tail     // ssh's messages
	release string        // of Holdfast on the host
	exited  chan struct{} // closed when ssh has ended

	mu       sync.Mutex
	isClosed bool
	deadline *time.Timer
}

// run starts ssh.
func (c *sshConn) run() error {
	stdin, in, err := os.Pipe()
	if err != nil {
		return err
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		return errors.Join(err, stdin.Close(), in.Close())
	}
	c.in, c.out, c.reader = in, out, bufio.NewReader(out)
	c.cmd.Stdin, c.cmd.Stdout = stdin, stdout
	err = errors.Join(c.cmd.Start(), stdin.Close(), stdout.Close())
	if c.cmd.Process == nil {
		return errors.Join(err, in.Close(), out.Close())
	}
	go func() {
		_ = c.cmd.Wait() // ProcessState has the result
		close(c.exited)
	}()
	return err
}

// greeting reads up to the end of the line that begins with StdioGreeting.
func (c *sshConn) greeting() error {
	for read := 0; read <= maxGreeting; {
		line, err := c.reader.ReadSlice('\n')
		read += len(line)
		fields := strings.Fields(string(line))
		switch {
		case len(fields) == 3 && fields[0] == StdioGreeting && fields[1] == StdioFormat:
			c.release = fields[2]
			return nil
		case len(fields) > 1 && fields[0] == StdioGreeting:
			return fmt.Errorf("%s: proxy stdio there speaks format %.20q, and this program speaks %s: install the same release of Holdfast on both", c.host(), fields[1], StdioFormat)
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return c.failure()
		}
	}
	return fmt.Errorf("%s: the first %d bytes of its output have no greeting of proxy stdio", c.host(), maxGreeting)
}

func (c *sshConn) host() string { return c.dialer.o.Host }

// failure returns the reason why ssh has ended without a connection.
func (c *sshConn) failure() error {
	select {
	case <-c.exited:
	case <-time.After(sshEnd):
		return fmt.Errorf("%s: ssh has closed its output", c.host())
	}
	text := lastLine(c.text.String())
	switch code := c.cmd.ProcessState.ExitCode(); {
	case c.isRefused(): // further tries would fail as well, and might shut the user out
		return protocol.Errorf(protocol.CodeUnauthorized, "%s: %s", c.host(), text)
	case code == 127:
		return fmt.Errorf("%s: the program %s is %w there", c.host(), c.dialer.o.Program, ErrNotInstalled)
	case strings.Contains(text, `no command "stdio"`), strings.Contains(text, "unknown flag: --start"): // the flags are parsed first
		return fmt.Errorf("%s: Holdfast there is too old to be reached by ssh: %s has no command stdio; this program is of %s", c.host(), c.dialer.o.Program, version.String())
	case text == "":
		return fmt.Errorf("%s: ssh ended with code %d", c.host(), code)
	case code != 255: // a message of proxy stdio
		text = strings.TrimPrefix(text, "proxy: ")
	}
	return fmt.Errorf("%s: %s", c.host(), text)
}

// isRefused reports whether ssh has said that the host refuses this user, or is another host.
func (c *sshConn) isRefused() bool {
	text := c.text.String()
	return strings.Contains(text, "Permission denied") || strings.Contains(text, "Host key verification failed")
}

// Read implements net.Conn.
func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.reader.Read(p)
	if err != nil {
		c.mu.Lock()
		isClosed := c.isClosed
		c.mu.Unlock()
		c.dialer.mu.Lock()
		defer c.dialer.mu.Unlock()
		c.dialer.hasLost = c.dialer.hasLost || !isClosed
	}
	return n, err
}

// Write implements net.Conn.
func (c *sshConn) Write(p []byte) (int, error) { return c.in.Write(p) }

// Close closes ssh's input, so that ssh sends the bytes that it has read and ends. If it does not end
// within sshEnd, it is killed.
func (c *sshConn) Close() error {
	c.mu.Lock()
	if c.isClosed {
		c.mu.Unlock()
		return net.ErrClosed
	}
	c.isClosed = true
	if c.deadline != nil {
		c.deadline.Stop()
	}
	c.mu.Unlock()
	err := c.in.Close()
	go func() {
		select {
		case <-c.exited:
		case <-time.After(sshEnd):
			_ = c.cmd.Process.Kill() // it may have ended just now
		}
	}()
	return errors.Join(err, c.out.Close())
}

func (c *sshConn) kill() {
	_ = c.cmd.Process.Kill() // it may have ended just now
	_ = c.out.Close()        // a process that ssh has started may hold the other end
	_ = c.in.Close()
}

// SetDeadline ends the connection at a time. A deadline of one read or write alone is not possible,
// because not all systems have deadlines for the pipes of a process.
func (c *sshConn) SetDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return net.ErrClosed
	}
	if c.deadline != nil {
		c.deadline.Stop()
		c.deadline = nil
	}
	if !at.IsZero() {
		c.deadline = time.AfterFunc(time.Until(at), c.kill)
	}
	return nil
}

// SetReadDeadline implements net.Conn as SetDeadline does.
func (c *sshConn) SetReadDeadline(at time.Time) error { return c.SetDeadline(at) }

// SetWriteDeadline implements net.Conn as SetDeadline does.
func (c *sshConn) SetWriteDeadline(at time.Time) error { return c.SetDeadline(at) }

// LocalAddr implements net.Conn.
func (c *sshConn) LocalAddr() net.Addr { return sshAddr("localhost") }

// RemoteAddr implements net.Conn.
func (c *sshConn) RemoteAddr() net.Addr { return sshAddr(c.host()) }

// sshAddr is the name of a host as ssh knows it.
type sshAddr string

func (sshAddr) Network() string  { return "ssh" }
func (a sshAddr) String() string { return string(a) }

// lastLine returns the last line of a text, without the empty lines behind it.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
