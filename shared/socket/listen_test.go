//go:build unix

package socket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/testkit"
)

// roles are the programs that the test binary runs as a child of a test; see spawn.
var roles = map[string]func(args []string) error{
	"dial":   dialRole,
	"full":   fullRole,
	"listen": listenRole,
}

const roleEnv = "SOCKET_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := roles[role](os.Args[1:]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// dialRole connects without a check of the peer, sends a byte, and prints the answer.
func dialRole(args []string) error {
	conn, err := net.Dial("unix", args[0])
	if err != nil {
		return err
	}
	_, _ = conn.Write([]byte("x")) // it fails if the connection was refused and closed
	got, err := io.ReadAll(conn)
	fmt.Printf("uid %d got %q reset %v\n", os.Getuid(), got, errors.Is(err, syscall.ECONNRESET))
	return nil
}

// listenRole listens, prints "won" or "lost", and keeps the listener until its standard input ends.
func listenRole(args []string) error {
	ln, err := Listen(args[0], Options{})
	var inUse *InUseError
	switch {
	case errors.As(err, &inUse):
		fmt.Println("lost")
	case err != nil:
		return err
	default:
		fmt.Println("won")
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	if ln != nil {
		return ln.Close()
	}
	return nil
}

// spawn returns a command that runs the test binary in a role. The path is in /proc, so that another user can
// run it even from a directory that is closed to this user.
func spawn(t *testing.T, role string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	testkit.Must(t, err)
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		exe = "/proc/self/exe"
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), roleEnv+"="+role, "GORACE=atexit_sleep_ms=0")
	cmd.Dir = "/"
	return cmd
}

// spawnAsNobody is like spawn, for a command that runs as another user. The test must run as root. The binary of the
// tests is not executable for others if the umask is 077.
func spawnAsNobody(t *testing.T, role string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := spawn(t, role, args...)
	exe, err := os.Executable()
	testkit.Must(t, errors.Join(err, os.Chmod(exe, 0o755)))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}

// testDir returns a short private directory, because the path of t.TempDir is too long for a socket.
func testDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "hfs")
	testkit.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func mustListen(t *testing.T, path string, opts Options) *Listener {
	t.Helper()
	ln, err := Listen(path, opts)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// echoOne accepts one connection and sends hello on it.
func echoOne(t *testing.T, ln *Listener) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		conn, _, err := ln.Accept()
		if err == nil {
			_, err = conn.Write([]byte("hello"))
			err = errors.Join(err, conn.Close())
		}
		done <- err
	}()
	conn, peer, err := Dial(t.Context(), ln.Path())
	testkit.Must(t, err)
	defer conn.Close()
	got, err := io.ReadAll(conn)
	if string(got) != "hello" || err != nil || peer.UID != os.Geteuid() {
		t.Fatalf("got %q from %+v, %v", got, peer, err)
	}
	testkit.Must(t, <-done)
}

func TestListenModesAndPeer(t *testing.T) {
	path := filepath.Join(testDir(t), "a.sock")
	ln := mustListen(t, path, Options{})
	for name, want := range map[string]fs.FileMode{
		path:               fs.ModeSocket | 0o600,
		path + ".lock":     0o600,
		filepath.Dir(path): fs.ModeDir | 0o700,
	} {
		if fi, err := os.Lstat(name); err != nil || fi.Mode() != want {
			t.Errorf("%s: mode %v, want %v (%v)", name, fi.Mode(), want, err)
		}
	}
	echoOne(t, ln)
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if err := ln.Close(); err != nil {
		t.Error("a second Close:", err)
	}
	left, _ := os.ReadDir(filepath.Dir(path))
	if len(left) != 1 || left[0].Name() != "a.sock.lock" {
		t.Errorf("Close has left %v, want only the lock", left)
	}
	if _, _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
}

func TestListenRefusesPlaces(t *testing.T) {
	dir := testDir(t)
	mk := func(name string, mode fs.FileMode) string {
		d := filepath.Join(dir, name)
		testkit.Must(t, errors.Join(os.Mkdir(d, 0o700), os.Chmod(d, mode)))
		return d
	}
	real := mk("real", 0o700)
	testkit.Must(t, os.Symlink(real, filepath.Join(dir, "link")))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(real, "plain.sock"), []byte("precious"), 0o600))
	tests := []struct {
		name, path string
		err        error
		says       string
	}{
		{"symlinked directory", filepath.Join(dir, "link", "a.sock"), ErrUnsafeDir, "symbolic link"},
		{"no directory", filepath.Join(dir, "none", "a.sock"), fs.ErrNotExist, "mkdir -m 700"},
		{"a file for a directory", filepath.Join(dir, "file", "a.sock"), ErrUnsafeDir, "not a directory"},
		{"open to the group", filepath.Join(mk("group", 0o750), "a.sock"), ErrUnsafeDir, "chmod 700"},
		{"open to others to pass", filepath.Join(mk("others", 0o711), "a.sock"), ErrUnsafeDir, "chmod 700"},
		{"path too long", filepath.Join(real, strings.Repeat("x", MaxPath)), ErrPathTooLong, "HOLDFAST_DIR"},
		{"relative", "a.sock", nil, "absolute"},
		{"a file for a socket", filepath.Join(real, "plain.sock"), nil, "is not a socket"},
	}
	if os.Geteuid() == 0 {
		theirs := mk("theirs", 0o700)
		testkit.Must(t, os.Chown(theirs, 65534, 65534))
		tests = append(tests, tests[0])
		last := &tests[len(tests)-1]
		last.name, last.path, last.says = "another user's directory", filepath.Join(theirs, "a.sock"), "belongs to uid 65534"
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ln, err := Listen(tt.path, Options{})
			if err == nil {
				_ = ln.Close()
				t.Fatal("Listen succeeded")
			}
			if tt.err != nil && !errors.Is(err, tt.err) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %v with %q", err, tt.err, tt.says)
			}
		})
	}
	if got, _ := os.ReadFile(filepath.Join(real, "plain.sock")); string(got) != "precious" {
		t.Error("Listen has changed the file at the path")
	}
}

func TestLongestPath(t *testing.T) {
	dir := testDir(t)
	path := filepath.Join(dir, strings.Repeat("x", MaxPath-len(dir)-1))
	if len(path) != MaxPath {
		t.Fatal(len(path))
	}
	echoOne(t, mustListen(t, path, Options{}))
	if _, _, err := Dial(t.Context(), path+"x"); !errors.Is(err, ErrPathTooLong) {
		t.Errorf("Dial with a path that is one byte too long: %v", err)
	}
}

// stale makes the socket of a killed listener, which exists but is not served.
func stale(t *testing.T, path string) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	testkit.Must(t, err)
	ln.SetUnlinkOnClose(false)
	_ = ln.Close()
}

func TestStaleSocket(t *testing.T) {
	path := filepath.Join(testDir(t), "a.sock")
	stale(t, path)
	stale(t, (&Listener{path: path}).tmpPath()) // the file of a listener that died before the rename

	lock, err := acquire(path)
	testkit.Must(t, err)
	writePID(lock)
	before, _ := idOf(path)
	var inUse *InUseError
	if _, err := Listen(path, Options{}); !errors.As(err, &inUse) || inUse.PID != os.Getpid() {
		t.Errorf("Listen while the lock is held: %v", err)
	}
	if after, err := idOf(path); err != nil || after != before {
		t.Error("Listen has changed the stale socket without the lock")
	}
	_ = lock.Close()
	echoOne(t, mustListen(t, path, Options{}))
}

// Check must write to the lock file only if it contains another pid or is old, because the file may be on a
// disk.
func TestCheckLetsTheDiskRest(t *testing.T) {
	l := mustListen(t, filepath.Join(testDir(t), "a.sock"), Options{})
	for _, tt := range []struct {
		name   string
		text   string
		age    time.Duration
		writes bool
	}{
		{"own pid, young", strconv.Itoa(os.Getpid()), renewEvery / 2, false},
		{"own pid, old", strconv.Itoa(os.Getpid()), 2 * renewEvery, true},
		{"another pid, young", "1", renewEvery / 2, true},
		{"a longer pid, young", "12345678901", renewEvery / 2, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			at := time.Now().Add(-tt.age).Truncate(time.Second)
			name := lockPath(l.path)
			testkit.Must(t, errors.Join(os.WriteFile(name, []byte(tt.text), 0o600), os.Chtimes(name, at, at)))
			if _, err := l.Check(); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(name)
			text, _ := os.ReadFile(name)
			if err != nil || info.ModTime().Equal(at) == tt.writes || string(text) != strconv.Itoa(os.Getpid()) {
				t.Errorf("the time of the lock file was %v; now it is %v (%v); the file contains %q", at, info.ModTime(), err, text)
			}
		})
	}
}

// fullRole uses a listener while the process cannot write to files, as on a full disk. It prints the first step
// that fails, or "served".
func fullRole(args []string) error {
	signal.Ignore(unix.SIGXFSZ)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	fill := limit
	fill.Cur = 0
	isFull := func() error { return unix.Setrlimit(unix.RLIMIT_FSIZE, &fill) }
	hasSpace := func() error { return unix.Setrlimit(unix.RLIMIT_FSIZE, &limit) }
	path := args[0]
	old := time.Now().Add(-2 * renewEvery)

	ln, err := Listen(path, Options{})
	if err := errors.Join(err, os.Chtimes(lockPath(path), old, old), os.Remove(path), isFull()); err != nil {
		return err
	}
	if rebound, err := ln.Check(); !rebound || err != nil {
		return fmt.Errorf("Check of a removed path: %v, %w", rebound, err)
	}
	if pid := Holder(path); pid != os.Getpid() {
		return fmt.Errorf("after Check the lock's file names process %d", pid)
	}
	files, err := ln.Files()
	if err := errors.Join(err, hasSpace(), os.WriteFile(lockPath(path), []byte("1"), 0o600), isFull()); err != nil {
		return err
	}
	next, err := Adopt(path, files, Options{})
	if err != nil {
		return err
	}
	if pid := Holder(path); pid != 0 {
		return fmt.Errorf("the lock's file names process %d, which does not hold the lock", pid)
	}
	if err := errors.Join(ln.Release(), next.Close()); err != nil {
		return err
	}
	if ln, err = Listen(path, Options{}); err != nil {
		return err
	}
	lock, err := Acquire(path + ".other")
	if err != nil {
		return err
	}
	fmt.Println("served")
	return errors.Join(lock.Close(), ln.Close())
}

// A process must serve although it cannot write its pid into the lock's file.
func TestFullDisk(t *testing.T) {
	out, err := spawn(t, "full", filepath.Join(testDir(t), "a.sock")).CombinedOutput()
	if err != nil || string(out) != "served\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// Listen must not replace a socket that a program serves without a lock.
func TestLiveSocketWithoutLock(t *testing.T) {
	path := filepath.Join(testDir(t), "a.sock")
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	testkit.Must(t, err)
	defer old.Close()
	var inUse *InUseError
	if _, err := Listen(path, Options{}); !errors.As(err, &inUse) || inUse.PID != os.Getpid() {
		t.Errorf("got %v", err)
	}
	if _, err := net.Dial("unix", path); err != nil {
		t.Error("the served socket is gone:", err)
	}
}

func TestRaceOfGoroutines(t *testing.T) {
	path := filepath.Join(testDir(t), "a.sock")
	for round := range 10 {
		if round%2 == 0 {
			stale(t, path)
		}
		var wg sync.WaitGroup
		won := make(chan *Listener, 32)
		start := make(chan struct{})
		for range cap(won) {
			wg.Go(func() {
				<-start
				ln, err := Listen(path, Options{})
				var inUse *InUseError
				if err == nil {
					won <- ln
				} else if !errors.As(err, &inUse) {
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%d calls of Listen succeeded, want 1", len(won))
		}
		ln := <-won
		echoOne(t, ln)
		testkit.Must(t, ln.Close())
	}
}

func TestRaceOfProcesses(t *testing.T) {
	path := filepath.Join(testDir(t), "a.sock")
	stale(t, path)
	const n = 8
	says := make(chan string, n)
	var stop []io.Closer
	var cmds []*exec.Cmd
	for range n {
		cmd := spawn(t, "listen", path)
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		testkit.Must(t, cmd.Start())
		stop, cmds = append(stop, in), append(cmds, cmd)
		go func() {
			line := make([]byte, 64)
			k, _ := out.Read(line)
			says <- strings.TrimSpace(string(line[:k]))
		}()
	}
	count := map[string]int{}
	for range n {
		count[<-says]++
	}
	if count["won"] != 1 || count["lost"] != n-1 {
		t.Errorf("got %v, want one winner of %d", count, n)
	}
	for i, cmd := range cmds {
		_ = stop[i].Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// demand: S11
func TestAnotherUserIsRefused(t *testing.T) {
	t.Run("by number", func(t *testing.T) {
		type refusal struct {
			peer Peer
			err  error
		}
		refused := make(chan refusal, 1)
		ln := mustListen(t, filepath.Join(testDir(t), "a.sock"), Options{
			UID:      os.Geteuid() + 1,
			OnRefuse: func(p Peer, err error) { refused <- refusal{p, err} },
		})
		ended := make(chan error, 1)
		go func() {
			_, _, err := ln.Accept()
			ended <- err
		}()
		conn, _, err := Dial(t.Context(), ln.Path())
		testkit.Must(t, err)
		defer conn.Close()
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("read %d, %v", n, err)
		}
		var perr *PeerError
		if r := <-refused; r.peer != (Peer{os.Geteuid(), os.Getpid()}) || !errors.As(r.err, &perr) || perr.Want != os.Geteuid()+1 {
			t.Errorf("the refused connection is %+v", r)
		}
		_ = ln.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept ended with %v", err)
		}
	})
	t.Run("in truth", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root can run a process of another user")
		}
		refused := make(chan Peer, 1)
		path := filepath.Join(testDir(t), "a.sock")
		ln := mustListen(t, path, Options{OnRefuse: func(p Peer, _ error) { refused <- p }})
		// Open the directory and the socket, whose modes otherwise refuse other users first.
		testkit.Must(t, errors.Join(os.Chmod(filepath.Dir(path), 0o711), os.Chmod(path, 0o666)))
		cmd := spawnAsNobody(t, "dial", path)
		accepted := make(chan Peer, 1)
		go func() {
			conn, peer, err := ln.Accept()
			if err == nil {
				_, _ = conn.Write([]byte("hello"))
				_ = conn.Close()
			}
			accepted <- peer
		}()
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), `uid 65534 got "" `) {
			t.Fatalf("the client of the other user printed %q (%v)", out, err)
		}
		if p := <-refused; p != (Peer{65534, cmd.Process.Pid}) {
			t.Errorf("the refused peer is %+v", p)
		}
		// The listener must still accept connections of its own user.
		conn, err := net.Dial("unix", path)
		testkit.Must(t, err)
		defer conn.Close()
		if got, _ := io.ReadAll(conn); string(got) != "hello" {
			t.Errorf("the own user's connection received %q", got)
		}
		if p := <-accepted; p.UID != 0 {
			t.Errorf("the accepted peer is %+v", p)
		}
	})
}

func TestDialRefusesAnotherUsersListener(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can listen as another user")
	}
	dir := testDir(t)
	testkit.Must(t, os.Chown(dir, 65534, 65534))
	path := filepath.Join(dir, "a.sock")
	cmd := spawnAsNobody(t, "listen", path)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	testkit.Must(t, cmd.Start())
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	said := make([]byte, 8)
	if n, _ := out.Read(said); string(said[:n]) != "won\n" {
		t.Fatalf("the listener of the other user printed %q", said[:n])
	}
	var perr *PeerError
	if _, peer, err := Dial(t.Context(), path); !errors.As(err, &perr) || peer.UID != 65534 {
		t.Errorf("got %+v, %v", peer, err)
	}
}

func TestDialNobody(t *testing.T) {
	path := filepath.Join(testDir(t), "a.sock")
	if _, _, err := Dial(t.Context(), path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Dial without a socket: %v", err)
	}
	stale(t, path)
	if _, _, err := Dial(t.Context(), path); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("Dial to a stale socket: %v", err)
	}
}

// If the backlog is full, as in a long handoff, Dial must wait, and Listen must regard the socket as served.
func TestFullBacklog(t *testing.T) {
	path := filepath.Join(testDir(t), "a.sock")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	testkit.Must(t, err)
	defer unix.Close(fd)
	testkit.Must(t, errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)))
	first, err := net.Dial("unix", path)
	testkit.Must(t, err)
	defer first.Close()
	if _, err := net.Dial("unix", path); !errors.Is(err, unix.EAGAIN) {
		t.Skipf("this system answers differently to a full backlog: %v", err)
	}
	var inUse *InUseError
	if _, err := Listen(path, Options{}); !errors.As(err, &inUse) {
		t.Errorf("Listen: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, _, err := Dial(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial with a full backlog: %v", err)
	}
	dialed := make(chan error, 1)
	go func() {
		conn, _, err := Dial(t.Context(), path)
		if err == nil {
			err = conn.Close()
		}
		dialed <- err
	}()
	accepted, _, err := unix.Accept(fd)
	testkit.Must(t, err)
	defer unix.Close(accepted)
	if err := <-dialed; err != nil {
		t.Errorf("Dial after an accept: %v", err)
	}
}

// If no descriptor is free, Accept must wait for one instead of returning.
func TestAcceptOutlivesShortage(t *testing.T) {
	ln := mustListen(t, filepath.Join(testDir(t), "a.sock"), Options{})
	conn, err := net.Dial("unix", ln.Path()) // the connection waits in the backlog
	testkit.Must(t, err)
	defer conn.Close()

	var was unix.Rlimit
	testkit.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	free, err := os.Open("/dev/null") // its number is higher than all others
	testkit.Must(t, err)
	defer free.Close()
	testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max}))
	restore := func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was) }
	defer restore()
	if _, err := unix.Dup(0); !errors.Is(err, unix.EMFILE) {
		t.Fatalf("the limit of descriptors has no effect: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		c, _, err := ln.Accept()
		if err == nil {
			err = c.Close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("Accept ended: %v", err)
	case <-time.After(4 * firstWait):
	}
	restore()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestSetDeadlinePausesAccept(t *testing.T) {
	ln := mustListen(t, filepath.Join(testDir(t), "a.sock"), Options{})
	ended := make(chan error, 1)
	go func() {
		_, _, err := ln.Accept()
		ended <- err
	}()
	testkit.Must(t, ln.SetDeadline(time.Unix(1, 0)))
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Accept ended with %v", err)
	}
	testkit.Must(t, ln.SetDeadline(time.Time{}))
	echoOne(t, ln)
}

func TestLocked(t *testing.T) {
	path := filepath.Join(testDir(t), "s.sock")
	if held, err := Locked(path); held || err != nil {
		t.Errorf("Locked without a lock: %v, %v", held, err)
	}
	ln, err := Listen(path, Options{})
	testkit.Must(t, err)
	if held, err := Locked(path); !held || err != nil {
		t.Errorf("Locked with a listener: %v, %v", held, err)
	}
	testkit.Must(t, ln.Close())
	if held, err := Locked(path); held || err != nil {
		t.Errorf("Locked after Close: %v, %v", held, err)
	}
}

// Calls of Locked, which commands make all the time, must not let a process that starts believe that another one serves.
func TestListenWhileAsked(t *testing.T) {
	path := filepath.Join(testDir(t), "s.sock")
	if err := os.WriteFile(lockPath(path), []byte("1"), 0o600); err != nil { // as an earlier holder leaves it
		t.Fatal(err)
	}
	shared := func() *os.File {
		f, err := os.Open(lockPath(path))
		testkit.Must(t, errors.Join(err, flock(f, unix.LOCK_SH|unix.LOCK_NB)))
		return f
	}
	asking := shared()
	time.AfterFunc(20*time.Millisecond, func() { _ = flock(asking, unix.LOCK_UN) })
	ln, err := Listen(path, Options{})
	_ = asking.Close()
	if err != nil {
		t.Fatalf("Listen while a process asks: %v", err)
	}
	begun := time.Now()
	if !isInUse(path) || time.Since(begun) > askedTime/2 {
		t.Errorf("Listen of a served path took %v", time.Since(begun))
	}
	testkit.Must(t, ln.Close())
	stopped := shared() // as if its process was stopped in the middle of Locked
	defer stopped.Close()
	var inUse *InUseError
	if _, err := Listen(path, Options{}); !errors.As(err, &inUse) || inUse.PID != 0 {
		t.Errorf("Listen while a stopped process asks: %v", err)
	}
}

// Of many processes that start at once while others ask, exactly one must win.
func TestRaceWhileAsked(t *testing.T) {
	path := filepath.Join(testDir(t), "s.sock")
	done := make(chan struct{})
	var asking, starting sync.WaitGroup
	for range 2 {
		asking.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_, _ = Locked(path)
					time.Sleep(10 * time.Microsecond)
				}
			}
		})
	}
	for range 100 {
		won := make(chan *Listener, 4)
		for range cap(won) {
			starting.Go(func() {
				if ln, err := Listen(path, Options{}); err == nil {
					won <- ln
				}
			})
		}
		starting.Wait()
		if len(won) != 1 {
			t.Errorf("%d calls of Listen succeeded, want 1", len(won))
			break
		}
		_ = (<-won).Close()
	}
	close(done)
	asking.Wait()
}
