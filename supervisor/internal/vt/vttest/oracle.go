package vttest

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"holdfast/supervisor/internal/vt"
)

// requireVariable is the environment variable that makes a missing tool a failure instead of a skip.
// It should be set if all tools are installed.
const requireVariable = "HOLDFAST_REQUIRE_ORACLE"

// callTimeout is the time limit of one command. The slowest streams take a second.
const callTimeout = 60 * time.Second

// Unavailable skips a test because a tool is missing. If HOLDFAST_REQUIRE_ORACLE is set, the
// test fails instead.
func Unavailable(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv(requireVariable) == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// An Oracle is a process that runs the real xterm.js. It serves any number of terminals,
// executes one command at a time, and must be used by one goroutine only.
type Oracle struct {
	dir     string
	process *process // nil before the first command, and after a command that hung
	next    byte
}

// process is a running oracle program.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr *strings.Builder
}

// Open returns an oracle that ends with the test. If Node or its packages are missing, the
// test is skipped.
func Open(t testing.TB) *Oracle {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		Unavailable(t, "no oracle: %v", err)
	}
	dir := filepath.Join(root(t), "scripts", "oracle")
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		Unavailable(t, "no oracle: %v; run npm ci in scripts/oracle", err)
	}
	o := &Oracle{dir: dir}
	t.Cleanup(o.kill)
	return o
}

// root returns the directory of go.mod.
func root(t testing.TB) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) { // the program was built with -trimpath
		file, _ = filepath.Abs("x")
	}
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatalf("no go.mod above %s", file)
		}
	}
}

func (o *Oracle) start() error {
	cmd := exec.Command("node", "oracle.mjs")
	cmd.Dir = o.dir
	stderr := new(strings.Builder)
	cmd.Stderr = stderr
	cmd.WaitDelay = time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	o.process = &process{cmd, stdin, bufio.NewReaderSize(stdout, 1<<16), stderr}
	return nil
}

// kill ends the process and waits for it. The next call of New starts another one.
func (o *Oracle) kill() {
	if p := o.process; p != nil {
		o.process = nil
		_ = p.stdin.Close()
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// call sends a command and returns the result. If the command fails, the oracle can still be
// used.
func (o *Oracle) call(command byte, number byte, body []byte) ([]byte, error) {
	p := o.process
	if p == nil {
		return nil, errors.New("oracle: its process is gone")
	}
	// A process that hangs is killed, so that reading and writing its pipes fails.
	timer := time.AfterFunc(callTimeout, func() { _ = p.cmd.Process.Kill() })
	status, result, err := p.exchange(command, number, body)
	hung := !timer.Stop()
	if err != nil {
		o.kill() // stderr is complete only after the process has ended
		return nil, fmt.Errorf("oracle: %c (hung: %t): %w; it says %q", command, hung, err, p.stderr.String())
	}
	if status != 0 {
		return nil, &Thrown{string(result)}
	}
	return result, nil
}

func (p *process) exchange(command, number byte, body []byte) (status byte, result []byte, err error) {
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(body)+2))
	frame = append(append(frame, command, number), body...)
	if _, err := p.stdin.Write(frame); err != nil {
		return 0, nil, err
	}
	var head [5]byte
	if _, err := io.ReadFull(p.stdout, head[:]); err != nil {
		return 0, nil, err
	}
	result = make([]byte, binary.BigEndian.Uint32(head[:])-1)
	_, err = io.ReadFull(p.stdout, result)
	return head[4], result, err
}

// Thrown is an error that xterm.js has thrown. Its terminal must not be used afterwards.
type Thrown struct{ Stack string }

func (e *Thrown) Error() string { return "xterm.js: " + e.Stack }

// Config describes a new terminal. If a field is zero, its default is used.
type Config struct {
	Cols    int    `json:"cols"`       // default 80
	Rows    int    `json:"rows"`       // default 24
	History int    `json:"scrollback"` // lines of history; default 0
	Unicode string `json:"unicode"`    // "15-graphemes", "2027" (either, by mode 2027), or "11", which is the default
}

func (c Config) withDefaults() Config {
	c.Cols, c.Rows = cmp.Or(c.Cols, 80), cmp.Or(c.Rows, 24)
	c.Unicode = cmp.Or(c.Unicode, "11")
	return c
}

// A Screen is a terminal of xterm.js. Write and Resize keep the first error, which State and
// the other methods return.
type Screen struct {
	oracle *Oracle
	number byte
	err    error
}

// New makes a terminal. There may be 256 terminals at a time; the next one replaces the
// oldest.
func (o *Oracle) New(c Config) *Screen {
	s := &Screen{oracle: o, number: o.next}
	o.next++
	if o.process == nil {
		if s.err = o.start(); s.err != nil {
			return s
		}
	}
	s.command('N', c.withDefaults())
	return s
}

func (s *Screen) command(command byte, args any) {
	body, err := json.Marshal(args)
	if err != nil {
		s.err = err
	}
	s.call(command, body)
}

func (s *Screen) call(command byte, body []byte) (result []byte) {
	if s.err == nil {
		result, s.err = s.oracle.call(command, s.number, body)
	}
	return result
}

// Write writes one chunk.
func (s *Screen) Write(chunk []byte) {
	body := binary.BigEndian.AppendUint32(nil, uint32(len(chunk)))
	s.call('W', append(body, chunk...))
}

// Resize changes the size. xterm.js has at least 2 columns.
func (s *Screen) Resize(cols, rows int) {
	s.command('R', map[string]int{"cols": cols, "rows": rows})
}

// State returns the state of the terminal.
func (s *Screen) State() (*vt.State, error) {
	result := s.call('S', nil)
	if s.err != nil {
		return nil, s.err
	}
	state := new(vt.State)
	if err := json.Unmarshal(result, state); err != nil {
		return nil, fmt.Errorf("oracle: state: %w", err)
	}
	return state, nil
}

// Replies returns the answers of the terminal since the last call.
func (s *Screen) Replies() ([]byte, error) {
	replies := s.call('A', nil)
	return replies, s.err
}

// Defects returns the names of the defects of xterm.js that have occurred, or "" if there were
// none. After a defect, the state and the errors of the terminal must not be compared.
func (s *Screen) Defects() (string, error) {
	var thrown *Thrown
	if s.err != nil && !errors.As(s.err, &thrown) {
		return "", s.err
	}
	defects, err := s.oracle.call('D', s.number, nil)
	if err == nil && len(defects) == 0 {
		err = s.err
	}
	return string(defects), err
}

// Close frees the terminal.
func (s *Screen) Close() { s.call('C', nil) }

// Benchmark describes a measurement: the content of a file is written a number of times to a
// terminal whose history is full.
type Benchmark struct {
	File    string `json:"file"`
	Times   int    `json:"times"`
	Unicode string `json:"unicode"`
}

// Spent is the processor time of a benchmark.
type Spent struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"cpu_seconds"`
}

// Bench measures writes of 4 KiB to a terminal of 80x24 with 10,000 lines of history. It must
// finish within callTimeout.
func (o *Oracle) Bench(b Benchmark) (spent Spent, err error) {
	if o.process == nil {
		if err := o.start(); err != nil {
			return spent, err
		}
	}
	b.File, err = filepath.Abs(b.File)
	if err != nil {
		return spent, err
	}
	b.Unicode = cmp.Or(b.Unicode, "11")
	body, err := json.Marshal(b)
	if err != nil {
		return spent, err
	}
	result, err := o.call('B', 0, body)
	if err != nil {
		return spent, err
	}
	return spent, json.Unmarshal(result, &spent)
}
