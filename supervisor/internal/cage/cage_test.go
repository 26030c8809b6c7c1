//go:build linux

package cage

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

func of(n uint64) *uint64 { return &n }

func TestParsePath(t *testing.T) {
	const unified = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
	const scope = "/user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope"
	for _, tt := range []struct{ name, cgroup, mounts, mount, at string }{
		{"version 2", "0::" + scope + "\n", unified, "/sys/fs/cgroup", "/sys/fs/cgroup" + scope},
		{"the root of the hierarchy", "0::/\n", unified, "/sys/fs/cgroup", "/sys/fs/cgroup"},
		{"both versions", "4:memory:/x\n0::/y\n", "30 1 0:1 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n31 1 0:2 / /sys/fs/cgroup/unified rw - cgroup2 x rw\n", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified/y"},
		{"a part is mounted", "0::/a/b\n", "31 1 0:2 /a /mnt rw - cgroup2 x rw\n", "/mnt", "/mnt/b"},
		{"another part", "0::/ab\n", "31 1 0:2 /a /mnt rw - cgroup2 x rw\n", "", ""},
		{"outside of the namespace", "0::/../x\n", unified, "", ""},
		{"removed", "0::/x (deleted)\n", unified, "", ""},
		{"version 1", "4:memory:/x\n", unified, "", ""},
		{"nothing", "", "", "", ""},
		{"cut", "0::/x", "31 1 0:2 / -", "", ""},
	} {
		if mount, at := parsePath([]byte(tt.cgroup), []byte(tt.mounts)); mount != tt.mount || at != tt.at {
			t.Errorf("%s: got %q, %q, want %q, %q", tt.name, mount, at, tt.mount, tt.at)
		}
	}
}

// fake returns a root in a directory that stands for a cgroup with these controllers.
func fake(t *testing.T, controllers ...string) *Root {
	t.Helper()
	old := isCage
	isCage = func(dir string) bool { fi, err := os.Stat(dir); return err == nil && fi.IsDir() }
	t.Cleanup(func() { isCage = old })
	return &Root{log: zerolog.Nop(), dir: t.TempDir(), controllers: controllers, known: map[string]bool{}, left: map[string]int{}}
}

func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
}

func get(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	testkit.Must(t, err)
	return string(text)
}

// The numbers of the kernel's files are returned. A number that the kernel does not have is 0.
func TestUse(t *testing.T) {
	r := fake(t)
	c := &Cage{dir: r.dir, root: r}
	if got := c.Use(); got != nil {
		t.Errorf("without files: %+v", got)
	}
	put(t, r.dir, map[string]string{"cpu.stat": "usage_usec 3500\nuser_usec 2500\nsystem_usec 1000\n"})
	if got, want := *c.Use(), (protocol.Cage{UserMS: 2, SystemMS: 1}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	put(t, r.dir, map[string]string{
		"memory.current": "4096\n", "memory.peak": "8192\n", "pids.current": "3\n", "pids.peak": "max\n", "pids.events": "max 7\n",
		"memory.events": "low 0\nhigh 2\nmax 9\noom 4\noom_kill 5\noom_group_kill 0\n",
	})
	want := protocol.Cage{UserMS: 2, SystemMS: 1, MemoryBytes: 4096, MemoryPeakBytes: 8192, PIDs: 3, OOMs: 4, OOMKills: 5, PIDsDenied: 7}
	if got := *c.Use(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := (*Cage)(nil).Use(); got != nil {
		t.Errorf("no cage uses %+v", got)
	}
}

// A limit is written in the kernel's format. If one limit cannot be set, the error is unsupported, and no limit is
// set.
func TestLimit(t *testing.T) {
	r := fake(t, "cpu", "pids")
	c := &Cage{dir: r.dir, root: r}
	put(t, r.dir, map[string]string{"cpu.max": "", "cpu.weight": "", "pids.max": ""})
	testkit.Must(t, c.Limit(protocol.Limits{CPUMax: of(1500), CPUWeight: of(20), PIDsMax: of(9)}))
	got := []string{get(t, r.dir, "cpu.max"), get(t, r.dir, "cpu.weight"), get(t, r.dir, "pids.max")}
	if want := []string{"150000 100000", "20", "9"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	put(t, r.dir, map[string]string{"cpu.max": "", "cpu.weight": "", "pids.max": ""})
	testkit.Must(t, c.Limit(protocol.Limits{CPUMax: of(0), CPUWeight: of(0), PIDsMax: of(0)}))
	got = []string{get(t, r.dir, "cpu.max"), get(t, r.dir, "cpu.weight"), get(t, r.dir, "pids.max")}
	if want := []string{"max 100000", "100", "max"}; !slices.Equal(got, want) {
		t.Errorf("none: got %q, want %q", got, want)
	}
	put(t, r.dir, map[string]string{"pids.max": ""})
	if err := c.Limit(protocol.Limits{PIDsMax: of(9), MemoryMax: of(1 << 30)}); protocol.CodeOf(err) != protocol.CodeUnsupported || get(t, r.dir, "pids.max") != "" {
		t.Errorf("without the controller: %v, pids.max %q", err, get(t, r.dir, "pids.max"))
	}
	if err := (*Cage)(nil).Limit(protocol.Limits{}); err != nil {
		t.Errorf("no limits without a cage: %v", err)
	}
	if err := (*Cage)(nil).Limit(protocol.Limits{PIDsMax: of(9)}); protocol.CodeOf(err) != protocol.CodeUnsupported {
		t.Errorf("a limit without a cage: %v", err)
	}
}

// If the kernel refuses a limit, the limits that were written before it get their old values.
func TestLimitRefused(t *testing.T) {
	r := fake(t, "memory", "pids")
	c := &Cage{dir: r.dir, root: r}
	put(t, r.dir, map[string]string{"memory.max": "2147483648", "memory.high": "2097152"})
	if err := os.Mkdir(filepath.Join(r.dir, "pids.max"), 0o700); err != nil { // a write to a directory fails
		t.Fatal(err)
	}
	err := c.Limit(protocol.Limits{MemoryMax: of(1 << 30), MemoryHigh: of(1 << 20), PIDsMax: of(9)})
	if protocol.CodeOf(err) != protocol.CodeUnsupported {
		t.Errorf("the limits are answered by %v", err)
	}
	if got := []string{get(t, r.dir, "memory.max"), get(t, r.dir, "memory.high")}; !slices.Equal(got, []string{"2147483648", "2097152"}) {
		t.Errorf("the earlier limits are %q", got)
	}
}

// Requested limits that cannot be set fail. Default limits that cannot be set are ignored.
func TestNew(t *testing.T) {
	limits := protocol.Limits{PIDsMax: of(9)}
	none := Open(Options{Setting: Off, Log: zerolog.Nop()})
	if c, err := none.New("a", protocol.Limits{}, limits); c != nil || err != nil {
		t.Errorf("off: %v, %v", c, err)
	}
	if _, err := none.New("a", limits, protocol.Limits{}); protocol.CodeOf(err) != protocol.CodeUnsupported || !strings.Contains(err.Error(), "off") {
		t.Errorf("off, with limits: %v", err)
	}
	r := fake(t)
	c, err := r.New("a", protocol.Limits{}, limits)
	if err != nil || c.Dir() != filepath.Join(r.dir, "session-a") {
		t.Errorf("%v, %v", c, err)
	}
	if _, err := r.New("b", limits, protocol.Limits{}); protocol.CodeOf(err) != protocol.CodeUnsupported {
		t.Errorf("no controller: %v", err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "session-b")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a cage that was refused is left: %v", err)
	}
}

// A successor adopts a cage by its path, removes cages that no session has and in which no process runs, and touches
// no other directory.
func TestAdoptAndSweep(t *testing.T) {
	r := fake(t)
	for _, name := range []string{"session-mine", "session-empty", "session-busy", "session-busy/inner", "holdfast", "other"} {
		testkit.Must(t, os.Mkdir(filepath.Join(r.dir, name), 0o755))
	}
	put(t, filepath.Join(r.dir, "session-busy"), map[string]string{"runs": ""}) // rmdir fails, as if the cage had a process
	if c := r.Adopt(filepath.Join(r.dir, "session-mine")); c == nil {
		t.Error("not adopted")
	}
	for _, dir := range []string{"session-gone", "holdfast", "/etc"} {
		if c := r.Adopt(filepath.Join(r.dir, dir)); c != nil {
			t.Errorf("%s is adopted", dir)
		}
	}
	r.Sweep()
	entries, err := os.ReadDir(r.dir)
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"holdfast", "other", "session-busy", "session-mine"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left are %v, %v, want %v", left, err, want)
	}
	if got := r.Status().Left; len(got) > 0 {
		t.Errorf("Status has the cage at once: %v", got)
	}
	r.retry() // at the first attempt its last process may only have been about to end
	if got, want := r.Status().Left, []string{filepath.Join(r.dir, "session-busy")}; !slices.Equal(got, want) {
		t.Errorf("Status has %v, want %v", got, want)
	}
	testkit.Must(t, os.Remove(filepath.Join(r.dir, "session-busy", "runs")))
	r.retry()
	if got := r.Status().Left; len(got) > 0 {
		t.Errorf("Status still has the removed cage: %v", got)
	}
}

// A cage whose last process is about to end is removed soon, even if another cage cannot be removed for long.
func TestRemoveBesideOneLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fake(t)
		newCage := func(name string) (*Cage, string) {
			c := &Cage{dir: filepath.Join(r.dir, prefix+name), root: r}
			testkit.Must(t, os.Mkdir(c.dir, 0o755))
			put(t, c.dir, map[string]string{"runs": ""}) // rmdir fails, as if the cage had a process
			return c, filepath.Join(c.dir, "runs")
		}
		long, runs := newCage("long")
		long.Remove()
		time.Sleep(retry / 2)
		if got := r.Status().Left; !slices.Equal(got, []string{long.dir}) {
			t.Errorf("Status has %v", got)
		}
		short, ends := newCage("short")
		short.Remove()
		testkit.Must(t, os.Remove(ends))
		time.Sleep(retryFirst + time.Millisecond)
		if _, err := os.Stat(short.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("an empty cage was not removed: %v", err)
		}
		testkit.Must(t, os.Remove(runs))
		time.Sleep(retry + time.Millisecond)
		if _, err := os.Stat(long.dir); !errors.Is(err, os.ErrNotExist) || len(r.Status().Left) > 0 {
			t.Errorf("the other cage was not removed: %v; Status has %v", err, r.Status().Left)
		}
	})
}

// Without cgroup.kill, as before Linux 5.14, a cage is frozen and its processes get SIGKILL. Processes that are not
// in it, or not any more, get none.
func TestKillInRounds(t *testing.T) {
	r := fake(t)
	c := &Cage{dir: r.dir, root: r}
	var processes []*exec.Cmd
	for range 2 {
		cmd := exec.Command("sleep", "1000")
		testkit.Must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		processes = append(processes, cmd)
	}
	inside, outside := processes[0], processes[1]
	put(t, r.dir, map[string]string{"cgroup.procs": fmt.Sprintln(inside.Process.Pid), "cgroup.events": "populated 1\nfrozen 0\n", "cgroup.freeze": "0"})
	ended := make(chan error, 1)
	go func() {
		_ = inside.Wait() // it was killed
		ended <- os.WriteFile(filepath.Join(r.dir, "cgroup.events"), []byte("populated 0\nfrozen 1\n"), 0o600)
	}()
	c.signal(outside.Process.Pid)
	if left := c.Kill(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	testkit.Must(t, <-ended)
	_ = outside.Process.Signal(syscall.SIGTERM) // it has no effect on a process that has received SIGKILL
	_ = outside.Wait()
	if by := outside.ProcessState.Sys().(syscall.WaitStatus).Signal(); by != syscall.SIGTERM {
		t.Errorf("a process outside of the cage was ended by %v", by)
	}
	if got := get(t, r.dir, "cgroup.freeze"); got != "1" {
		t.Errorf("cgroup.freeze is %q", got)
	}
}

// Only a delegated cgroup is used.
func TestFind(t *testing.T) {
	if dir, why := find(t.TempDir(), 0); dir != "" || !strings.Contains(why, "cgroup version 2") {
		t.Errorf("a directory that is not a cgroup: %q, %q", dir, why)
	}
	dir, why := find(Auto, 0)
	t.Logf("the cgroup of this process: %q, %q", dir, why)
	if (dir == "") == (why == "") || dir != "" && !hasDelegateMark(dir) && !alone(dir, 0) {
		t.Errorf("%s is used, although it is not delegated: %q", dir, why)
	}
}
