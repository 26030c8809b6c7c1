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

// A Cage is the cgroup of one session. A nil Cage means that the session has none: limits and
// freezing are unsupported then, and its use of resources is unknown.
type Cage struct {
	dir  string
	root *Root
}

// Dir returns the cage's directory, with which the next supervisor adopts it, or "" for a nil
// Cage.
func (c *Cage) Dir() string {
	if c == nil {
		return ""
	}
	return c.dir
}

// Open opens the cage's directory, so that a child can be started in the cage.
func (c *Cage) Open() (*os.File, error) { return os.Open(c.dir) }

// A limitFile is the controller that applies a limit, and the file that the limit is written
// to.
type limitFile struct{ controller, name string }

var limitFiles = map[string]limitFile{
	protocol.LabelMemoryMax:  {"memory", "memory.max"},
	protocol.LabelMemoryHigh: {"memory", "memory.high"},
	protocol.LabelPIDsMax:    {"pids", "pids.max"},
	protocol.LabelCPUMax:     {"cpu", "cpu.max"},
	protocol.LabelCPUWeight:  {"cpu", "cpu.weight"},
}

// cpuPeriod is the period of the limit cpu_max in microseconds. It is the kernel's default.
const cpuPeriod = 100_000

// Limit sets all given limits, or none: if a controller for one of them is missing, or if the
// kernel refuses a value, it returns an error, and the earlier limits hold.
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
	type earlier struct{ name, text string }
	var changed []earlier
	for _, f := range protocol.LimitFields() {
		v := *f.Of(&l)
		if v == nil {
			continue
		}
		was := earlier{limitFiles[f.Name].name, strings.TrimSpace(string(c.read(limitFiles[f.Name].name)))}
		err := write(c.dir, was.name, limitText(f.Name, *v))
		if err == nil {
			changed = append(changed, was)
			continue
		}
		for _, was := range slices.Backward(changed) {
			err = errors.Join(err, write(c.dir, was.name, was.text))
		}
		return Unsupported(f.Name+" "+f.Format(*v), err.Error())
	}
	return nil
}

func (r *Root) noController(name string) string {
	if r.offReason != "" {
		return r.offReason
	}
	return fmt.Sprintf("the controller %s is not delegated to %s", name, r.dir)
}

// limitText returns a limit in the kernel's format. 0 means no limit.
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

// Use returns the kernel's counters of the cage, or nil if there is no cage or it was removed.
func (c *Cage) Use() *protocol.Cage {
	if c == nil {
		return nil
	}
	cpu := c.counts("cpu.stat")
	if cpu == nil { // every cgroup has this file
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

// number returns the number in a file of the cage, or 0 if there is no such file.
func (c *Cage) number(name string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimSpace(string(c.read(name))), 10, 64)
	return n
}

// counts returns the named numbers in a file of the cage, which has one on each line, or nil if
// there is no such file.
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

// maxFile bounds the bytes that are read of one file. The longest, cpu.stat, has less than 1
// KiB.
const maxFile = 4 << 10

// read returns the content of a file of the cage, or nil if it cannot be read. It uses plain
// system calls, because package os would register each of thousands of files with the
// netpoller.
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

// Freeze freezes all processes of the cage, or thaws them. The kernel stops each process when
// it next returns to its own code, which takes some microseconds unless it waits for a disk.
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

// Frozen reports whether the last request was to freeze the cage.
func (c *Cage) Frozen() bool { return c != nil && c.number("cgroup.freeze") == 1 }

// Populated reports whether a process runs in the cage or below it.
func (c *Cage) Populated() bool { return c != nil && c.counts("cgroup.events")["populated"] == 1 }

// Bounds of Kill. One round is usually enough, because SIGKILL acts at once unless a process is
// stuck in the kernel.
const (
	killRounds = 200
	killPoll   = 10 * time.Millisecond
)

// Kill ends every process of the cage with SIGKILL, also if it is frozen, and returns when all
// have ended, or after 2 seconds. left are the pids of the processes that still run.
//
// A kernel before 5.14 has no cgroup.kill. On such a kernel Kill freezes the cage first,
// because a program that forks and exits faster than its pid can be read and signalled would
// never be hit. SIGKILL also ends a frozen process.
func (c *Cage) Kill() (left []int) {
	if c == nil {
		return nil
	}
	byKernel := write(c.dir, "cgroup.kill", "1") == nil
	if !byKernel {
		_ = c.Freeze(true) // if it fails, the rounds may still kill all processes
	}
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

// signal sends SIGKILL to a process of the cage. It checks after it has a pidfd that the pid is
// still in the cage, because the pid may belong to another process by now.
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

// each calls f for the cage's directory and for all cgroups that the session has made below it.
func (c *Cage) each(f func(dir string)) {
	_ = filepath.WalkDir(c.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			f(path)
		}
		return nil
	})
}

// Remove removes the cage if no process runs in it. Otherwise the Root retries later.
func (c *Cage) Remove() {
	if c != nil {
		c.root.noteRemoval(c.dir, remove(c.dir))
	}
}

// remove removes a cgroup and all cgroups below it, the deepest first. It is no error if the
// cgroup does not exist.
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
