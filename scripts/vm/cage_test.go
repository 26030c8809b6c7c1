//go:build linux

package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

const (
	cgroups = "/sys/fs/cgroup/holdfast-test" // the control group of the supervisor
	limit   = 40 * time.Second               // for each event; the machine has a tenth of the usual speed
)

// A machine is Holdfast in the emulated machine.
type machine struct {
	t *testing.T
	c *client.Client
}

// newMachine makes a control group and starts the supervisor with it.
func newMachine(t *testing.T) *machine {
	m := &machine{t: t}
	t.Setenv("HOLDFAST_DIR", "/tmp/holdfast")
	t.Setenv("HOLDFAST_CAGE", cgroups)
	t.Setenv("HOLDFAST_WEB", "") // no WebSocket address
	testkit.Must(t, errors.Join(os.Mkdir(cgroups, 0o755), os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory +pids +cpu"), 0)))
	m.run("proxy", "new", "-d", "--id", "first", "--", "cat")
	var err error
	if m.c, err = client.Dial(t.Context(), client.Options{Name: "vm"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.c.Close() })
	return m
}

// run runs a command, which must succeed, and returns its output.
func (m *machine) run(args ...string) string {
	m.t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%v: %v, %s", args, err, out)
	}
	return string(out)
}

func (m *machine) spawn(id protocol.SessionID, limits protocol.Limits, argv ...string) *client.Spawned {
	m.t.Helper()
	none := time.Duration(0)
	s, err := m.c.Spawn(m.t.Context(), client.SpawnRequest{ID: id, EarlyExit: &none, SpawnSpec: protocol.SpawnSpec{Argv: argv, Cwd: "/", Limits: limits}})
	if err != nil {
		m.t.Fatalf("spawn %s: %v", id, err)
	}
	return s
}

func (m *machine) info(id protocol.SessionID) *protocol.SessionInfo {
	m.t.Helper()
	i, err := m.c.SessionInfo(m.t.Context(), id)
	testkit.Must(m.t, err)
	return i
}

// sees waits until a session's screen contains a text.
func (m *machine) sees(id protocol.SessionID, text string) {
	m.t.Helper()
	if _, err := m.c.Await(m.t.Context(), protocol.AwaitSpec{SessionID: id, Text: text}, limit); err != nil {
		m.t.Fatalf("the screen of %s does not contain %q: %v", id, text, err)
	}
}

func (m *machine) input(id protocol.SessionID, text string) {
	m.t.Helper()
	testkit.Must(m.t, m.c.Type(m.t.Context(), id, []byte(text)))
}

// cage returns the path of a session's control group.
func (m *machine) cage(id protocol.SessionID) string {
	return filepath.Join(cgroups, "session-"+string(m.info(id).Instance))
}

func (m *machine) awaitEnd(id protocol.SessionID) *protocol.ExitRecord {
	m.t.Helper()
	e, err := m.c.Wait(m.t.Context(), id, limit)
	if err != nil {
		m.t.Fatalf("%s has not ended: %v", id, err)
	}
	return e
}

// answers is a program that repeats its input lines with a prefix.
const answers = "while read x; do echo got-$x; done"

// echoes sends a text to n sessions that run answers, waits for all answers, and returns the longest time of
// an answer.
func (m *machine) echoes(n int, text string) (longest time.Duration) {
	m.t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range n {
		id := protocol.SessionID(fmt.Sprintf("s%d", i))
		all.Go(func() {
			began := time.Now()
			err := m.c.Type(m.t.Context(), id, []byte(text+"\n"))
			if err == nil {
				_, err = m.c.Await(m.t.Context(), protocol.AwaitSpec{SessionID: id, Text: "got-" + text}, limit)
			}
			if err != nil {
				m.t.Errorf("%s does not answer: %v", id, err)
			}
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, time.Since(began))
		})
	}
	all.Wait()
	return longest
}

func processes(dir string) (pids []int) {
	text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for f := range strings.FieldsSeq(string(text)) {
		pid, _ := strconv.Atoi(f)
		pids = append(pids, pid)
	}
	return pids
}

func score(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	return strings.TrimSpace(string(text))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// running counts the processes with a command line.
func running(argv ...string) (n int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		text, _ := os.ReadFile(path)
		if string(text) == strings.Join(argv, "\x00")+"\x00" {
			n++
		}
	}
	return n
}

func of(n uint64) *uint64 { return &n }

// One session uses up its memory, another starts processes without end. The other sessions must not be
// disturbed, the exit records must report the causes with the kernel's counts, and nothing of the two
// sessions may be left.
func TestCages(t *testing.T) { inMachine(t, 1024, 2*time.Minute, cages) }

func cages(t *testing.T) {
	const sessions = 20
	m := newMachine(t)
	for i := range sessions {
		m.spawn(protocol.SessionID(fmt.Sprintf("s%d", i)), protocol.Limits{}, "sh", "-c", answers)
	}
	quiet := m.echoes(sessions, "before")

	own := processes(filepath.Join(cgroups, "holdfast"))
	if len(own) < 2 || len(processes(cgroups)) > 0 {
		t.Errorf("the control group of keeper and supervisor contains %v; the parent group contains %v", own, processes(cgroups))
	}
	for _, pid := range own {
		if got := score(pid); got != "-999" {
			t.Errorf("the OOM score of keeper or supervisor %d is %s", pid, got)
		}
	}
	for _, pid := range processes(m.cage("s0")) {
		if got := score(pid); got != "100" {
			t.Errorf("the OOM score of a session's process is %s", got)
		}
	}

	m.spawn("hog", protocol.Limits{MemoryMax: of(64 << 20)}, "sh", "-c", "read x; dd if=/dev/zero of=/dev/null bs=300M; echo dd ended; read x; exit 3")
	m.spawn("bomb", protocol.Limits{PIDsMax: of(60)}, "/bin/guest", "-spawn")
	m.input("hog", "go\n")
	m.sees("hog", "dd ended") // the shell of the session survives
	testkit.Eventually(t, limit, func() bool { c := m.info("bomb").Cage; return c != nil && c.PIDsDenied > 0 && c.PIDs > 50 }, "a fork fails at the limit")
	busy := m.echoes(sessions, "meanwhile")
	t.Logf("%d sessions echo within %v, and within %v beside a fork bomb", sessions, quiet, busy)

	use := m.info("hog").Cage
	if use == nil || use.OOMKills == 0 || use.OOMs == 0 || use.MemoryPeakBytes < 60<<20 || use.MemoryPeakBytes > 64<<20 {
		t.Errorf("the usage of the hog is %+v", use)
	}
	m.input("hog", "go\n")
	if e := m.awaitEnd("hog"); e.ExitCode != 3 || e.Cage == nil || e.Cage.OOMKills != 1 || len(e.Cage.OOMKilled) != 1 || !strings.HasPrefix(e.Cage.OOMKilled[0], "dd (pid ") {
		t.Errorf("the exit of the hog is %+v, %+v", e, e.Cage)
	}
	if text := m.run("proxy", "why", "hog"); !strings.Contains(text, "memory ran out at its limit of 64M: the kernel killed 1 process, dd (pid ") {
		t.Errorf("why prints\n%s", text)
	}

	cage := m.cage("bomb")
	if n := running("/bin/sleep", "100000"); n < 10 {
		t.Errorf("the bomb has started only %d processes", n)
	}
	m.run("proxy", "kill", "bomb", "--all")
	if n := running("/bin/sleep", "100000"); n > 0 {
		t.Errorf("%d processes of the bomb still run", n)
	}
	testkit.Eventually(t, limit, func() bool { return !exists(cage) }, "the bomb's cage is removed")
	if text := m.run("proxy", "why", "bomb"); !strings.Contains(text, "it ran out of processes at its limit of 60") || !strings.Contains(text, "at most 60 processes") {
		t.Errorf("why prints\n%s", text)
	}

	m.checkFreeze()
	m.checkLeftovers()
	m.checkReplacements(replacements)
	m.checkNoProcesses()
	checkJoin(t)

	if _, err := m.c.Spawn(t.Context(), client.SpawnRequest{SpawnSpec: protocol.SpawnSpec{Argv: []string{"cat"}, Limits: protocol.Limits{MemoryMax: of(512)}}}); protocol.CodeOf(err) != protocol.CodeInvalidArgument {
		t.Errorf("spawn with 512 bytes of memory: %v, want invalid_argument", err)
	}
	m.echoes(sessions, "behind")
}

// checkFreeze checks that a frozen session does nothing, that clients see that it is frozen, that it continues
// when it is thawed, and that its end thaws it.
func (m *machine) checkFreeze() {
	t := m.t
	m.spawn("ice", protocol.Limits{}, "sh", "-c", `trap 'echo bye; exit 5' HUP; while :; do read x && echo got-$x; done`)
	cage := m.cage("ice")
	m.input("ice", "1\n")
	m.sees("ice", "got-1")
	m.run("proxy", "freeze", "ice")
	testkit.Eventually(t, limit, func() bool {
		text, _ := os.ReadFile(filepath.Join(cage, "cgroup.events"))
		return strings.Contains(string(text), "frozen 1")
	}, "the kernel has frozen the session")
	if !m.info("ice").Frozen || !strings.Contains(m.run("proxy", "ls"), "running, frozen") {
		t.Error("info or ls does not report that the session is frozen")
	}
	m.input("ice", "2\n")
	if text, err := m.c.Screen(t.Context(), "ice", client.ScreenOptions{}); err != nil || strings.Contains(fmt.Sprint(text.Lines), "got-2") {
		t.Errorf("the screen of the frozen session is %v, %v", text, err)
	}
	testkit.Must(t, m.c.Thaw(t.Context(), "ice"))
	m.sees("ice", "got-2")
	if m.info("ice").Frozen {
		t.Error("info reports a thawed session as frozen")
	}
	testkit.Must(t, m.c.Freeze(t.Context(), "ice"))
	testkit.Must(t, m.c.Terminate(t.Context(), "ice", client.End{Grace: new(limit)}))
	if e := m.awaitEnd("ice"); e.ExitCode != 5 || e.Outcome != protocol.OutcomeSoft {
		t.Errorf("the exit of a frozen session is %+v", e)
	}
}

// checkLeftovers checks that processes that stay in the control group of an exited session are reported, and can be
// ended.
func (m *machine) checkLeftovers() {
	t := m.t
	m.spawn("left", protocol.Limits{}, "sh", "-c", "setsid sleep 200000 </dev/null >/dev/null 2>&1 & sleep 1; exit 0")
	cage := m.cage("left")
	m.awaitEnd("left")
	testkit.Eventually(t, limit, func() bool {
		st, err := m.c.Status(t.Context())
		return err == nil && st.Supervisor != nil && st.Supervisor.Cages != nil && slices.Contains(st.Supervisor.Cages.Left, cage)
	}, "the remaining control group is reported")
	if err := m.c.Terminate(t.Context(), "left", client.End{All: true}); err != nil {
		t.Errorf("terminate of the remaining processes: %v", err)
	}
	testkit.Eventually(t, limit, func() bool { return !exists(cage) && running("sleep", "200000") == 0 }, "the control group and its process are gone")
}

// checkNoProcesses checks that sessions outlive the death of the supervisor while no process and no thread can be started
// in the control group of keeper and supervisor, and that a supervisor serves as soon as one can. An upgrade must be refused.
func (m *machine) checkNoProcesses() {
	t := m.t
	most := filepath.Join(cgroups, "holdfast", "pids.max")
	old := m.supervisor()
	if old == nil {
		t.Fatal("no supervisor serves")
	}
	set := func(n string) {
		testkit.Must(t, os.WriteFile(most, []byte(n), 0))
	}
	set("1")
	out, err := exec.Command("supervisor", "--upgrade").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "upgrade_refused") || !strings.Contains(string(out), "pids.max") {
		t.Errorf("an upgrade while no process can be started: %v, %s", err, out)
	}
	m.kill(old.PID)
	testkit.Eventually(t, limit, func() bool {
		log, _ := os.ReadFile("/tmp/holdfast/supervisor.log")
		return strings.Count(string(log), "the start is tried again") > 3
	}, "the keeper cannot start a supervisor")
	set("max")
	testkit.Eventually(t, limit, func() bool {
		now := m.supervisor()
		return now != nil && now.PID != old.PID && now.Keeper.PID == old.Keeper.PID
	}, "the next supervisor of the same keeper serves")
}
