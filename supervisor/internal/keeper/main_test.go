//go:build linux

package keeper_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/shared/machine"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/keeper"
	"holdfast/supervisor/internal/keeper/message"
)

// patience is the time after which a test fails if an expected event does not come.
const patience = 20 * time.Second

// roles are the programs that this binary becomes if a test starts it as another process.
var roles = map[string]func() int{"role=keeper": keeperRole, "role=supervisor": supervisorRole, "role=refuse": func() int { return 75 }, "role=terminate": terminateRole}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		syscall.Exit(roles[os.Args[1]]()) // os.Exit would let -race wait and -cover print
	}
	os.Exit(m.Run())
}

// terminateRole requests the end of the keeper that tries this program, and is a keeper like any other.
func terminateRole() int {
	if os.Getenv(message.EnvTrial) != "" {
		unix.Kill(os.Getppid(), unix.SIGTERM)
	}
	return keeperRole()
}

// keeperRole runs a keeper with the Config in the environment.
func keeperRole() int {
	var cfg keeper.Config
	if err := json.Unmarshal([]byte(os.Getenv("KEEPER_TEST_CONFIG")), &cfg); err != nil {
		panic(err)
	}
	if os.Getenv("KEEPER_TEST_PROGRAM") != "" {
		cfg.Argv[0] = "/nonexistent/program"
	}
	cfg.Log = func(line string) { fmt.Fprintln(os.Stderr, "keeper:", line) }
	cfg.Held = func(deaths int) { fmt.Fprintln(os.Stderr, "keeper: held after", deaths) }
	cfg.Chosen = func() string {
		path, _ := os.ReadFile(os.Getenv("KEEPER_TEST_NEXT"))
		return string(path)
	}
	cfg.MemoryFile = machine.MemoryFile
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	n, _ := strconv.Atoi(os.Getenv("KEEPER_TEST_RECORDS"))
	for i := range n {
		id := fmt.Sprint(i)
		fd, err := unix.MemfdCreate(id, 0)
		if err != nil {
			panic(err)
		}
		unix.Pwrite(fd, []byte(content(id, 0)), 0)
		cfg.Entries = append(cfg.Entries, keeper.Entry{ID: id, Meta: []byte("given"), FDs: []int{fd}})
	}
	return keeper.Run(cfg)
}

// A world is a keeper and the supervisors that it starts one after another. All of them read commands from one pipe
// and write events to another.
type world struct {
	t      *testing.T
	cmd    *exec.Cmd
	prog   string // the program that the keeper starts: a link in a directory of its own
	in     *os.File
	events chan event
	logs   chan string
	ended  chan int
	last   int
	keeper int // pid of the present keeper, if it is not the first one
	log    testkit.Log
}

// config returns the configuration of a keeper that never gives up after crashes.
func config() keeper.Config {
	return keeper.Config{Backoff: time.Microsecond, Deaths: 1 << 30}
}

func start(t *testing.T, cfg keeper.Config, role string, env ...string) *world {
	t.Helper()
	w := &world{t: t, prog: filepath.Join(t.TempDir(), "supervisor"), events: make(chan event, 4096), logs: make(chan string, 4096), ended: make(chan int, 1)}
	testkit.Must(t, os.Symlink(self(t), w.prog))
	cfg.Argv = []string{w.prog, role}
	text, err := json.Marshal(struct { // without the functions, which JSON cannot have
		Argv                                                   []string
		Backoff, StartTime, GoodTime, InterruptTime, HeldPause time.Duration
		Deaths                                                 int
	}{cfg.Argv, cfg.Backoff, cfg.StartTime, cfg.GoodTime, cfg.InterruptTime, cfg.HeldPause, cfg.Deaths})
	testkit.Must(t, err)
	w.cmd = exec.Command(self(t), "role=keeper")
	w.cmd.Env = append(append(os.Environ(), env...), "KEEPER_TEST_CONFIG="+string(text))
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL} // kills the keeper if the test process panics
	in, inOurs := packets(t)
	outOurs, out := pipe(t)
	errOurs, errs := pipe(t)
	w.in, w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = inOurs, in, out, errs
	testkit.Must(t, w.cmd.Start())
	for _, f := range []*os.File{in, out, errs} {
		f.Close()
	}
	var reading sync.WaitGroup
	reading.Go(func() { w.readEvents(outOurs) })
	reading.Go(func() { w.readLog(errOurs) })
	go func() {
		w.cmd.Wait()
		w.ended <- exitCode(w.cmd.ProcessState.Sys().(syscall.WaitStatus))
	}()
	t.Cleanup(func() { w.stop(&reading) })
	return w
}

func exitCode(s syscall.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}

// stop kills all processes: the keeper first, because it would start others.
func (w *world) stop(reading *sync.WaitGroup) {
	for _, pid := range append([]int{w.pid()}, w.family()...) {
		unix.Kill(pid, unix.SIGKILL)
	}
	w.in.Close()
	reading.Wait() // ends when every process that has the pipes has ended
	if w.t.Failed() {
		w.t.Logf("log:\n%s", w.log.String())
	}
}

// family returns the pids of all descendants of the keeper.
func (w *world) family() (pids []int) {
	for next := []int{w.pid()}; len(next) > 0; next = next[1:] {
		found := children(next[0])
		pids, next = append(pids, found...), append(next, found...)
	}
	return pids
}

func children(pid int) (pids []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for _, field := range strings.Fields(string(text)) {
			child, _ := strconv.Atoi(field)
			pids = append(pids, child)
		}
	}
	return pids
}

func (w *world) readEvents(f *os.File) {
	lines := bufio.NewScanner(f)
	for lines.Buffer(nil, 64<<20); lines.Scan(); {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // a kill has cut the line
		}
		w.events <- e
	}
	close(w.events)
}

func (w *world) readLog(f *os.File) {
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fmt.Fprintln(&w.log, lines.Text())
		select {
		case w.logs <- lines.Text():
		default:
		}
	}
	close(w.logs)
}

// next returns the next event.
func (w *world) next() event {
	w.t.Helper()
	select {
	case e, ok := <-w.events:
		if !ok {
			w.t.Fatal("no more events")
		}
		w.last = e.PID
		return e
	case <-time.After(patience):
		w.t.Fatal("no event")
		return event{}
	}
}

// until skips events, and returns the first one with the name.
func (w *world) until(name string) event {
	w.t.Helper()
	for {
		if e := w.next(); e.Event == name {
			return e
		}
	}
}

// logged waits for a line of the log.
func (w *world) logged(part string) string {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line, ok := <-w.logs:
			if !ok {
				w.t.Fatalf("the log ended without %q", part)
			}
			if strings.Contains(line, part) {
				return line
			}
		case <-deadline:
			w.t.Fatalf("%q is not logged", part)
		}
	}
}

// exit waits for the keeper's end.
func (w *world) exit() int {
	w.t.Helper()
	select {
	case code := <-w.ended:
		return code
	case <-time.After(patience):
		w.t.Fatal("the keeper does not end")
		return 0
	}
}

// do sends a command and returns the event that reports its result.
func (w *world) do(c command) event {
	w.t.Helper()
	w.send(c)
	return w.until("did")
}

func (w *world) send(c command) {
	w.t.Helper()
	line, err := json.Marshal(c)
	testkit.Must(w.t, err)
	if _, err := w.in.Write(append(line, '\n')); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) kill(pid int, s syscall.Signal) {
	w.t.Helper()
	testkit.Must(w.t, unix.Kill(pid, s))
}

// supervisor returns the pid of the supervisor that sent the last event.
func (w *world) supervisor() int { return w.last }

func (w *world) pid() int { return cmp.Or(w.keeper, w.cmd.Process.Pid) }

func descriptors(pid int) int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return -1
	}
	return len(entries)
}

func self(t testing.TB) string {
	path, err := os.Executable()
	testkit.Must(t, err)
	return path
}

// packets returns a pipe that is read one write at a time. A process that dies of SIGKILL has read whole commands
// only.
func packets(t testing.TB) (r, w *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	testkit.Must(t, err)
	r, w = os.NewFile(uintptr(fds[0]), "in"), os.NewFile(uintptr(fds[1]), "in")
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	testkit.Must(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// replace writes a program to the path of another one, as an upgrade does.
func replace(t testing.TB, path string, text []byte) {
	t.Helper()
	testkit.Must(t, os.WriteFile(path+".new", text, 0o755))
	testkit.Must(t, os.Rename(path+".new", path))
}

func limitsOf(t testing.TB, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	testkit.Must(t, err)
	return string(text)
}
