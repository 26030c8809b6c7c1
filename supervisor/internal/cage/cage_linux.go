package cage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
)

// A Cage is a session's cgroup. A nil Cage is of a session without one: its limits
// and freezing are unsupported, and it uses nothing that is known.
type Cage struct {
	dir  string
	root *Root
}

// Dir returns the cage's directory, by which a successor finds it; "" without one.
func (c *Cage) Dir() string {
	if c == nil {
		return ""
	}
	return c.dir
}

// Open returns the directory, for a child that is to be started in the cage.
func (c *Cage) Open() (*os.File, error) { return os.Open(c.dir) }

// limitFile says where a limit is written, and by which controller it holds.
type limitFile struct{ controller, name string }

var limitFiles = map[string]limitFile{
	protocol.LabelMemoryMax:  {"memory", "memory.max"},
	protocol.LabelMemoryHigh: {"memory", "memory.high"},
	protocol.LabelPIDsMax:    {"pids", "pids.max"},
	protocol.LabelCPUMax:     {"cpu", "cpu.max"},
	protocol.LabelCPUWeight:  {"cpu", "cpu.weight"},
}

// cpuPeriod is in which time a session may use cpu_max of it, in microseconds; it is
// the kernel's default.
const cpuPeriod = 100_000

// Limit sets the limits that are given. It sets none if one is unsupported.
func (c *Cage) Limit(l protocol.Limits) error {
	if l.IsZero() {
		return nil
	}
	if c == nil {
		return Unsupported("limits", "the session has no cage")
	}
	for _, f := range protocol.LimitFields() {
		if *f.Of(&l) != nil && !slices.Contains(c.root.controllers, limitFiles[f.Name].controller) {
			return Unsupported(f.Name, c.root.noController(limitFiles[f.Name].controller))
		}
	}
	for _, f := range protocol.LimitFields() {
		if v := *f.Of(&l); v != nil {
			if err := write(c.dir, limitFiles[f.Name].name, limitText(f.Name, *v)); err != nil {
				return Unsupported(f.Name+" "+f.Format(*v), err.Error())
			}
		}
	}
	return nil
}

func (r *Root) noController(name string) string {
	if r.off != "" {
		return r.off
	}
	return fmt.Sprintf("the controller %s is not delegated to %s", name, r.dir)
}

// limitText is a limit as the kernel takes it.
func limitText(name string, v uint64) string {
	switch {
	case name == protocol.LabelCPUMax && v == 0:
		return fmt.Sprintf("max %d", cpuPeriod)
	case name == protocol.LabelCPUMax:
		return fmt.Sprintf("%d %d", v*cpuPeriod/1000, cpuPeriod)
	case name == protocol.LabelCPUWeight && v == 0:
		return "100" // the kernel's default
	case v == 0:
		return "max"
	}
	return strconv.FormatUint(v, 10)
}

// Use reads what the kernel counts. It returns nil without a cage, and if that is
// gone.
func (c *Cage) Use() *protocol.Cage {
	if c == nil {
		return nil
	}
	cpu := c.counts("cpu.stat")
	if cpu == nil { // every cgroup has it
		return nil
	}
	memory := c.counts("memory.events")
	return &protocol.Cage{
		MemoryBytes: c.number("memory.current"), MemoryPeakBytes: c.number("memory.peak"),
		PIDs: c.number("pids.current"), PIDsPeak: c.number("pids.peak"),
		UserMS: int64(cpu["user_usec"] / 1000), SystemMS: int64(cpu["system_usec"] / 1000),
		OOMs: memory["oom"], OOMKills: memory["oom_kill"], PIDsDenied: c.counts("pids.events")["max"],
	}
}

// number reads a file of one number; it is 0 if there is none.
func (c *Cage) number(name string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimSpace(string(c.read(name))), 10, 64)
	return n
}

// counts reads a file of lines with a name and a number each; nil if there is none.
func (c *Cage) counts(name string) map[string]uint64 {
	data := c.read(name)
	if data == nil {
		return nil
	}
	found := map[string]uint64{}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if n, err := strconv.ParseUint(value, 10, 64); err == nil {
				found[name] = n
			}
		}
	}
	return found
}

// maxFile bounds what is read of one file. The longest, cpu.stat, has under 1 KiB.
const maxFile = 4 << 10

// read reads by plain calls, as for thousands of files package os would ask the
// netpoller first. It returns nil for what cannot be read.
func (c *Cage) read(name string) []byte {
	fd, err := unix.Open(filepath.Join(c.dir, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, maxFile)
	n, err := unix.Read(fd, buf)
	if err != nil || n < 0 {
		return nil
	}
	return buf[:n]
}

// Freeze stops all processes of the cage, or has them run on. The kernel stops each
// at its next return to its own code: some microseconds later, unless it waits for a
// disk.
func (c *Cage) Freeze(frozen bool) error {
	if c == nil {
		return Unsupported("freezing", "the session has no cage")
	}
	value := "0"
	if frozen {
		value = "1"
	}
	return write(c.dir, "cgroup.freeze", value)
}

// Frozen reports whether Freeze was the last that was asked for.
func (c *Cage) Frozen() bool { return c != nil && c.number("cgroup.freeze") == 1 }

// Populated reports whether a process runs in the cage or below it.
func (c *Cage) Populated() bool { return c != nil && c.counts("cgroup.events")["populated"] == 1 }

// Bounds of Kill. SIGKILL acts at once on all but processes stuck in the kernel.
const (
	killRounds = 200
	killPoll   = 10 * time.Millisecond
)

// Kill ends every process of the cage with SIGKILL, also a frozen one, and returns
// when the last has ended, or after 2 seconds. It returns the pids of those left.
func (c *Cage) Kill() (left []int) {
	if c == nil {
		return nil
	}
	// Linux 5.14. The kernel ends what forks meanwhile, too.
	byKernel := write(c.dir, "cgroup.kill", "1") == nil
	for range killRounds {
		if !c.Populated() {
			return nil
		}
		left = nil
		c.each(func(dir string) {
			pids, _ := processes(dir)
			left = append(left, pids...)
		})
		if !byKernel {
			for _, pid := range left {
				c.signal(pid)
			}
		}
		time.Sleep(killPoll)
	}
	return left
}

// signal sends SIGKILL to a process that is still in the cage once it is held by
// descriptor, so that no other of the same pid is meant.
func (c *Cage) signal(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	in := false
	c.each(func(dir string) {
		pids, _ := processes(dir)
		in = in || slices.Contains(pids, pid)
	})
	if in {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// each calls f for the cage's cgroup and those that a session has made below it.
func (c *Cage) each(f func(dir string)) {
	_ = filepath.WalkDir(c.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			f(path)
		}
		return nil
	})
}

// Remove removes the cage if nothing runs in it, and else sees to it that this is
// done later.
func (c *Cage) Remove() {
	if c != nil {
		c.root.removed(c.dir, remove(c.dir))
	}
}

// remove removes a cgroup with all below it, the deepest first. One that is gone is
// no error.
func remove(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, remove(filepath.Join(dir, e.Name())))
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = unix.Rmdir(dir)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
