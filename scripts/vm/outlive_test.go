//go:build linux

package vm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// supervisor returns the status of the supervisor, or nil if none answers.
func (m *machine) supervisor() *protocol.ProcessStatus {
	st, err := m.c.Status(m.t.Context())
	if err != nil || st.Supervisor == nil || st.Supervisor.Keeper == nil || st.Supervisor.Cages == nil {
		return nil
	}
	return st.Supervisor
}

// A replacement is a way of replacing the process that knows the cages. If a keeper dies before a supervisor
// does, its children belong to the process that becomes the next keeper. If it dies later, no process of
// Holdfast is their parent, and a kernel before 6.15 does not report how they ended, so noticing their ends
// takes 5 s.
type replacement struct {
	name    string
	replace func(m *machine, old *protocol.ProcessStatus)
	done    func(old, now *protocol.ProcessStatus) bool // reports whether now is the result of the replacement of old
}

var replacements = []replacement{
	{
		"the keeper is killed", func(m *machine, old *protocol.ProcessStatus) { m.kill(old.Keeper.PID) },
		func(old, now *protocol.ProcessStatus) bool {
			return now.Keeper.PID == old.PID && now.Keeper.Lost == old.Keeper.Lost+1
		},
	},
	{
		"the supervisor is killed", func(m *machine, old *protocol.ProcessStatus) { m.kill(old.PID) },
		func(old, now *protocol.ProcessStatus) bool { return now.Keeper.Starts == old.Keeper.Starts+1 },
	},
	{
		"an upgrade", func(m *machine, _ *protocol.ProcessStatus) { m.run("supervisor", "--upgrade") },
		func(old, now *protocol.ProcessStatus) bool {
			return now.PID == old.PID && now.Upgrades == old.Upgrades+1
		},
	},
}

func (m *machine) kill(pid int) {
	m.t.Helper()
	testkit.Must(m.t, syscall.Kill(pid, syscall.SIGKILL))
}

// The supervisor and the keeper are replaced repeatedly, in random order. Before that a fork bomb is killed,
// which takes long on a busy machine.
func TestCagesOutlive(t *testing.T) {
	if os.Getenv("HOLDFAST_LONG") == "" && !*inside {
		t.Skip("long mode: set HOLDFAST_LONG=1")
	}
	inMachine(t, 1024, 9*time.Minute, func(t *testing.T) {
		const times = 15
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		var all []replacement
		for range times {
			all = append(all, replacements[rng.IntN(len(replacements))])
		}
		m := newMachine(t)
		m.checkForks()
		m.checkReplacements(all)
	})
}

// checkReplacements checks that the next process knows the cages after each replacement: their limits, counts and
// whether they are frozen, the cages that it must remove, and the cages that it cannot remove yet. It must be
// able to end all processes in them.
func (m *machine) checkReplacements(all []replacement) {
	t := m.t
	m.spawn("storm", protocol.Limits{PIDsMax: of(12)}, "/bin/guest", "-spawn")
	storm := m.cage("storm")
	denied := func(n uint64) func() bool {
		return func() bool { c := m.info("storm").Cage; return c != nil && c.PIDsDenied > n }
	}
	testkit.Eventually(t, limit, denied(0), "the storm has reached its limit")
	testkit.Must(t, m.c.Freeze(t.Context(), "storm"))
	for i := range all {
		n := strconv.Itoa(i)
		m.spawn(protocol.SessionID("rests"+n), protocol.Limits{}, "sh", "-c", "setsid sh -c 'echo up; exec sleep 30000"+n+"' & read x")
		m.spawn(protocol.SessionID("ends"+n), protocol.Limits{}, "cat")
	}
	for i := range all {
		id := protocol.SessionID("rests" + strconv.Itoa(i))
		m.sees(id, "up")
		m.input(id, "\n")
		m.awaitEnd(id)
	}
	for i, r := range all {
		n := strconv.Itoa(i)
		before, old := m.info("storm").Cage, m.supervisor()
		if before == nil || old == nil {
			t.Fatalf("before %s: %+v, %+v", r.name, before, old)
		}
		r.replace(m, old)
		testkit.Eventually(t, limit, func() bool { now := m.supervisor(); return now != nil && r.done(old, now) }, r.name+": the next supervisor serves")

		own := processes(filepath.Join(cgroups, "holdfast"))
		if now := m.supervisor(); len(own) != 2 || !slices.Contains(own, now.PID) || !slices.Contains(own, now.Keeper.PID) {
			t.Errorf("%s: the control group of keeper and supervisor of %+v contains %v", r.name, now, own)
		}
		for _, pid := range own {
			if got := score(pid); got != "-999" {
				t.Errorf("%s: the OOM score of keeper or supervisor %d is %s", r.name, pid, got)
			}
		}
		storming := m.info("storm")
		if c := storming.Cage; c == nil || c.Limits.PIDsMax == nil || *c.Limits.PIDsMax != 12 || !storming.Frozen ||
			c.PIDs != before.PIDs || c.PIDsDenied != before.PIDsDenied || c.UserMS < before.UserMS {
			t.Errorf("%s: the cage is %+v, want %+v; frozen %v", r.name, c, before, storming.Frozen)
		}
		if err := m.c.Thaw(t.Context(), "storm"); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
		testkit.Eventually(t, limit, denied(before.PIDsDenied), r.name+": the thawed processes run, and are counted")
		if err := m.c.Freeze(t.Context(), "storm"); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}

		rests, ends := protocol.SessionID("rests"+n), protocol.SessionID("ends"+n)
		left := m.cage(rests)
		testkit.Eventually(t, limit, func() bool { now := m.supervisor(); return now != nil && slices.Contains(now.Cages.Left, left) }, r.name+": a cage that cannot be removed is reported")
		if err := m.c.Terminate(t.Context(), rests, client.End{All: true}); err != nil {
			t.Errorf("%s: terminate of the remaining processes: %v", r.name, err)
		}
		cage := m.cage(ends)
		if err := m.c.Terminate(t.Context(), ends, client.End{}); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
		testkit.Eventually(t, limit, func() bool { return !exists(left) && !exists(cage) }, r.name+": the cages of ended sessions are removed")
		if n := running("sleep", "30000"+n); n > 0 {
			t.Errorf("%s: %d processes still run", r.name, n)
		}
	}
	m.run("proxy", "limit", "storm", "--memory-max", "32M", "--pids-max", "none", "--cpu-max", "50%")
	for name, want := range map[string]string{"memory.max": "33554432", "pids.max": "max", "cpu.max": "50000 100000"} {
		if got, err := os.ReadFile(filepath.Join(storm, name)); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s is %q, %v, want %s", name, got, err, want)
		}
	}
	m.run("proxy", "kill", "storm", "--all")
	testkit.Eventually(t, limit, func() bool { return !exists(storm) && running("/bin/sleep", "100000") == 0 }, "the control group and the processes of the storm are gone")
}

// checkForks checks kill --all on a kernel before 5.14, which has no cgroup.kill. All processes of a cage must
// be ended there too, even processes that fork faster than they are killed. To simulate such a kernel, a file
// that cannot be written is mounted over cgroup.kill.
func (m *machine) checkForks() {
	t := m.t
	m.spawn("forks", protocol.Limits{PIDsMax: of(60)}, "sh", "-c", "setsid sleep 400000 & setsid /bin/guest -fork & cat")
	cage := m.cage("forks")
	testkit.Eventually(t, limit, func() bool {
		c := m.info("forks").Cage
		return c != nil && c.PIDsDenied > 0 && running("sleep", "400000") == 1
	}, "the session has forked up to its limit")
	testkit.Must(t, syscall.Mount("/dev/full", filepath.Join(cage, "cgroup.kill"), "", syscall.MS_BIND, ""))
	defer func() { _ = syscall.Unmount(filepath.Join(cage, "cgroup.kill"), 0) }() // the mount ends with the cage
	m.run("proxy", "kill", "forks", "--all")
	if e := m.awaitEnd("forks"); len(e.Survivors) > 0 {
		t.Errorf("%d processes survived", len(e.Survivors))
	}
	testkit.Eventually(t, limit, func() bool { return !exists(cage) }, "the cage is removed")
}

// checkJoin checks that sessions that an older program has started without cages continue beside the cages of its
// successor, and cannot be limited.
func checkJoin(t *testing.T) {
	const cgroup = "/sys/fs/cgroup/older"
	t.Setenv("HOLDFAST_DIR", "/tmp/older")
	t.Setenv("HOLDFAST_DELEGATED", "/older")
	settings := func(cage string) error {
		return os.WriteFile("/tmp/older/holdfast.json", []byte(`{"cage": "`+cage+`"}`), 0o600)
	}
	testkit.Must(t, errors.Join(os.Unsetenv("HOLDFAST_CAGE"), os.Mkdir(cgroup, 0o755), os.Mkdir("/tmp/older", 0o700), settings("off")))
	m := &machine{t: t}
	in, err := os.Open(cgroup)
	testkit.Must(t, err)
	defer func() { _ = in.Close() }()
	cmd := exec.Command("supervisor", "--background")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(in.Fd()), Setsid: true}
	testkit.Must(t, cmd.Start())
	go func() { _ = cmd.Wait() }()
	m.run("proxy", "new", "-d", "--id", "s0", "--", "sh", "-c", answers)
	if m.c, err = client.Dial(t.Context(), client.Options{Name: "vm"}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.c.Close() }()
	pid := m.info("s0").PID
	if all := processes(cgroup); len(all) < 3 || !slices.Contains(all, pid) {
		t.Fatalf("keeper, supervisor and session %d are not in the cgroup: %v", pid, all)
	}

	testkit.Must(t, settings("auto"))
	m.run("supervisor", "--upgrade")
	testkit.Eventually(t, limit, func() bool { now := m.supervisor(); return now != nil && now.Upgrades == 1 }, "the successor serves")
	if now := m.supervisor(); now.Cages.Dir != cgroup || len(now.Cages.Controllers) != 3 || now.Cages.Off != "" {
		t.Errorf("the cages are %+v", now.Cages)
	}
	if all, own, others := processes(cgroup), processes(cgroup+"/holdfast"), processes(cgroup+"/uncaged"); len(all) > 0 || len(own) != 2 || !slices.Contains(others, pid) {
		t.Errorf("the parent group contains %v, the group of keeper and supervisor %v, the group of others %v", all, own, others)
	}
	m.echoes(1, "joined")
	if i := m.info("s0"); i.Cage != nil {
		t.Errorf("the session of the older program has the cage %+v", i.Cage)
	}
	_, limited := m.c.Limit(t.Context(), "s0", protocol.Limits{PIDsMax: of(9)})
	for what, err := range map[string]error{"limit": limited, "freeze": m.c.Freeze(t.Context(), "s0"), "kill --all": m.c.Terminate(t.Context(), "s0", client.End{All: true})} {
		if protocol.CodeOf(err) != protocol.CodeUnsupported {
			t.Errorf("%s of a session without a cage: %v", what, err)
		}
	}
	m.spawn("new", protocol.Limits{PIDsMax: of(9)}, "cat")
	if all := processes(filepath.Join(cgroup, "session-"+string(m.info("new").Instance))); len(all) != 1 {
		t.Errorf("the cage of a new session contains %v", all)
	}
	if err := m.c.Terminate(t.Context(), "s0", client.End{}); err != nil {
		t.Error(err)
	}
	if e := m.awaitEnd("s0"); e.Cage != nil {
		t.Errorf("the exit of the session without a cage is %+v", e)
	}
	m.run("supervisor", "stop", "--sessions=end")
	m.run("proxy", "stop")
	if all := processes(cgroup + "/uncaged"); len(all) > 0 {
		t.Error(fmt.Sprint("processes still run: ", all))
	}
}
