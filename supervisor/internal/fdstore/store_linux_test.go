package fdstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"holdfast/shared/machine"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/vault"
)

const roleEnv = "FDSTORE_TEST"

// TestMain is, in a child process, a service that was started again: it prints the entries that it has inherited,
// with the first bytes of each file.
func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) == "" {
		os.Exit(testkit.Run(m))
	}
	_ = os.Setenv(envPID, strconv.Itoa(os.Getpid())) // as systemd does between fork and exec
	all := Inherited()
	slices.SortFunc(all, func(a, b vault.Entry) int { return strings.Compare(a.ID, b.ID) })
	for _, r := range all {
		fmt.Printf("%s %d %s:", r.ID, r.PID, r.Meta)
		for _, fd := range r.FDs {
			b := make([]byte, 10)
			n, _ := unix.Pread(fd, b, 0)
			fmt.Printf(" %s", b[:n])
		}
		fmt.Println()
	}
	entries, _ := os.ReadDir("/proc/self/fd")
	files := 0
	for _, e := range entries {
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.Contains(to, "memfd") || strings.Contains(to, "stored") {
			files++
		}
	}
	fmt.Println("files", files, os.Getenv(envCount))
}

// A manager is the part of systemd that stores descriptors.
type manager struct {
	t      *testing.T
	conn   *net.UnixConn
	mu     sync.Mutex
	stored map[string]*os.File
	heard  chan string // messages that do not store or remove descriptors
	still  chan struct{}
}

func newManager(t *testing.T) *manager {
	path := filepath.Join(testkit.Dir(t), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	testkit.Must(t, err)
	t.Setenv(envNotify, path)
	m := &manager{t: t, conn: conn, stored: map[string]*os.File{}, heard: make(chan string), still: make(chan struct{})}
	t.Cleanup(func() {
		_ = conn.Close()
		<-m.still
		for _, f := range m.stored {
			_ = f.Close()
		}
	})
	return m
}

// hear returns the next message that does not store or remove descriptors. All messages before it have been executed.
func (m *manager) hear() string {
	m.t.Helper()
	select {
	case text := <-m.heard:
		return text
	case <-time.After(20 * time.Second):
		m.t.Fatal("no message arrived")
		return ""
	}
}

// serve executes messages.
func (m *manager) serve() {
	defer close(m.still)
	for {
		b, oob := make([]byte, 4096), make([]byte, 1024)
		n, oobn, _, _, err := m.conn.ReadMsgUnix(b, oob)
		if err != nil {
			return
		}
		var fds []int
		if all, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(all) > 0 {
			fds, _ = unix.ParseUnixRights(&all[0]) // a missing descriptor shows in the case below
		}
		text := string(b[:n])
		_, name, _ := strings.Cut(text, "\nFDNAME=")
		m.mu.Lock()
		other := false
		switch {
		case strings.HasPrefix(text, "FDSTORE=1\nFDPOLL=0\n") && len(fds) == 1 && m.stored[name] == nil:
			m.stored[name] = os.NewFile(uintptr(fds[0]), name)
		case strings.HasPrefix(text, "FDSTOREREMOVE=1\n"):
			if f := m.stored[name]; f != nil {
				_ = f.Close()
			}
			delete(m.stored, name)
		default:
			for _, fd := range fds {
				_ = unix.Close(fd)
			}
			other = true
		}
		m.mu.Unlock()
		if other {
			m.heard <- text
		}
		if strings.ContainsAny(name, ": \n") || len(name) > 255 {
			m.t.Errorf("not a valid name of a descriptor: %q", name)
		}
	}
}

// restart starts the service with everything that is stored, and returns its output.
func (m *manager) restart() string {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	cmd := exec.Command(os.Args[0])
	names := slices.Sorted(maps.Keys(m.stored))
	slices.Reverse(names) // the order is not guaranteed
	for _, name := range names {
		cmd.ExtraFiles = append(cmd.ExtraFiles, m.stored[name])
	}
	cmd.Env = append(os.Environ(), roleEnv+"=1", envNames+"="+strings.Join(names, ":"), fmt.Sprintf("%s=%d", envCount, len(names)))
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func (m *manager) ready() {
	m.t.Helper()
	testkit.Must(m.t, Ready())
	if got := m.hear(); got != "READY=1" {
		m.t.Errorf("the manager received %q", got)
	}
}

// A keeper is a Vault that succeeds or returns err.
type keeper struct{ err error }

func (k *keeper) Put(context.Context, vault.Entry) error    { return k.err }
func (k *keeper) SetPID(context.Context, string, int) error { return k.err }
func (k *keeper) Delete(context.Context, string) error      { return k.err }
func holding(t *testing.T, contents ...string) (fds []int) {
	t.Helper()
	for _, c := range contents {
		f, err := os.Create(filepath.Join(t.TempDir(), "stored"))
		testkit.Must(t, err)
		t.Cleanup(func() { _ = f.Close() })
		if _, err := f.WriteString(c); err != nil {
			t.Fatal(err)
		}
		testkit.Must(t, machine.Control(f, func(fd int) error { fds = append(fds, fd); return nil }))
	}
	return fds
}

func TestStore(t *testing.T) {
	m, k := newManager(t), &keeper{}
	go m.serve()
	v := Over(k, []string{"before"}, zerolog.New(zerolog.NewTestWriter(t)))
	defer func() { _ = v.(*Store).Close() }()
	do := func(want string, steps ...error) {
		t.Helper()
		testkit.Must(t, errors.Join(steps...))
		m.ready()
		if got := m.restart(); got != want {
			t.Errorf("after a restart:\n%swant\n%s", got, want)
		}
	}
	ctx := t.Context()
	put := func(id, meta string, contents ...string) error {
		return v.Put(ctx, vault.Entry{ID: id, Meta: []byte(meta), FDs: holding(t, contents...)})
	}
	do("files 0 \n")
	do("a b:c\n 0 x: 1 2\nfiles 2 \n", put("a b:c\n", "x", "1", "2"))
	do("a b:c\n 7 x: 1 2\nb 0 y:\nfiles 2 \n", put("b", "y"), v.SetPID(ctx, "a b:c\n", 7))
	do("a b:c\n 0 z: 3\nb 0 y:\nfiles 1 \n", put("a b:c\n", "z", "3"))
	do("b 0 y:\nfiles 0 \n", v.Delete(ctx, "a b:c\n"), v.SetPID(ctx, "a b:c\n", 8))
	do("b 0 y:\nbefore 0 z: 4\nfiles 1 \n", put("before", "z", "4"))

	k.err = errors.New("full")
	if err := put("c", "x"); !errors.Is(err, k.err) {
		t.Errorf("an entry that the keeper refused: %v", err)
	}
	k.err = nil
	do("b 0 y:\nbefore 0 z: 4\nfiles 1 \n")

	// An entry without one of its files, and a file that does not belong to an entry.
	f, err := os.Create(filepath.Join(t.TempDir(), "stored"))
	testkit.Must(t, err)
	m.mu.Lock()
	_ = m.stored[fileName("before", "0")].Close()
	delete(m.stored, fileName("before", "0"))
	m.stored["else"] = f
	m.mu.Unlock()
	do("b 0 y:\nfiles 0 \n")
}

// TestNobody checks that the keeper alone is used if there is no manager, or one that does not react.
func TestNobody(t *testing.T) {
	k := &keeper{}
	t.Setenv(envNotify, "")
	if v := Over(k, nil, zerolog.Nop()); v != Vault(k) {
		t.Errorf("got %T", v)
	}
	t.Setenv(envNotify, filepath.Join(t.TempDir(), "none"))
	if v := Over(k, nil, zerolog.Nop()); v != Vault(k) {
		t.Errorf("got %T", v)
	}
	close(newManager(t).still) // the manager reads nothing
	v := Over(k, nil, zerolog.Nop())
	defer func() { _ = v.(*Store).Close() }()
	v.(*Store).patience = time.Millisecond
	for range 1000 {
		testkit.Must(t, v.Put(t.Context(), vault.Entry{ID: "a", FDs: []int{0}}))
	}
}

// TestLate checks that only one call waits for a manager that does not read, and that the manager receives the last
// state of all entries once it reads.
func TestLate(t *testing.T) {
	m := newManager(t)
	var log bytes.Buffer
	s := Over(&keeper{}, nil, zerolog.New(&log)).(*Store)
	s.patience, s.retryEvery = 300*time.Millisecond, 20*time.Millisecond
	put := func(id, meta string, contents ...string) {
		t.Helper()
		testkit.Must(t, s.Put(t.Context(), vault.Entry{ID: id, Meta: []byte(meta), FDs: holding(t, contents...)}))
	}
	count := fill(t, s.conn)
	began := time.Now()
	for i := range 100 {
		put(fmt.Sprint("gone", i), "")
	}
	put("a", "old", "1", "2")
	put("a", "new", "3")
	put("b", "", "4")
	testkit.Must(t, s.SetPID(t.Context(), "b", 7))
	for i := range 100 {
		testkit.Must(t, s.Delete(t.Context(), fmt.Sprint("gone", i)))
	}
	s.mu.Lock()
	for id := range s.owed { // of gone0, and of each entry that an attempt to pay has chosen, a part may have been sent
		if id != "a" && id != "b" && s.held[id] == nil {
			t.Errorf("the removal of %s is owed, although nothing of it was sent", id)
		}
	}
	s.mu.Unlock()
	// Each attempt to pay may take a tenth of the patience. 203 calls that wait would take a minute.
	if took := time.Since(began); took > 20*s.patience {
		t.Errorf("203 calls took %v", took)
	}
	go m.serve()
	for range count {
		m.hear()
	}
	testkit.Eventually(t, 20*time.Second, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.owed) == 0 && s.retry == nil
	}, "the manager has all entries")
	m.ready()
	if got, want := m.restart(), "a 0 new: 3\nb 7 : 4\nfiles 2 \n"; got != want {
		t.Errorf("after a restart:\n%swant\n%s", got, want)
	}
	if n := openFiles(t, "stored"); n != 4+2 {
		t.Errorf("%d files are open, want the test's four and the manager's two", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 2 {
		t.Errorf("%d lines of log, want 2: %s", lines, log.String())
	}
}

// openFiles returns how many descriptors of this process have a file of that name.
func openFiles(t *testing.T, name string) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	testkit.Must(t, err)
	for _, e := range entries {
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); filepath.Base(to) == name {
			n++
		}
	}
	return n
}

// fill sends messages to a manager that does not read until it takes no more, and returns their number.
func fill(t *testing.T, conn *net.UnixConn) (n int) {
	t.Helper()
	testkit.Must(t, conn.SetWriteDeadline(time.Now().Add(10*time.Millisecond)))
	for ; ; n++ {
		if _, err := conn.Write([]byte("STATUS=full")); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			return n
		}
	}
}

func TestManaged(t *testing.T) {
	for _, tt := range []struct {
		socket, main string
		want         bool
	}{{"", "", false}, {"/s", "", true}, {"/s", strconv.Itoa(os.Getpid()), true}, {"/s", "1", false}} {
		t.Setenv(envNotify, tt.socket)
		t.Setenv(envMain, tt.main)
		if got := Managed(); got != tt.want || (os.Getenv(envNotify) != "") != tt.want {
			t.Errorf("%+v: %v, and the variable is %q", tt, got, os.Getenv(envNotify))
		}
	}
}

func TestMainProcess(t *testing.T) {
	m := newManager(t)
	go m.serve()
	done := make(chan error)
	go func() { done <- Main(7) }()
	if got := m.hear(); got != "READY=1\nMAINPID=7" {
		t.Errorf("the manager received %q", got)
	}
	if got := m.hear(); got != "BARRIER=1" { // it closes the descriptor of the barrier
		t.Errorf("the manager received %q", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
