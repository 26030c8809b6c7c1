package cage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/shared/logging"
)

// Options are of Open.
type Options struct {
	Setting string // auto, own, off, or a directory
	Keeper  int    // the keeper's pid, 0 if there is none
	// Managed says that a service manager would start the next keeper in the
	// delegated cgroup itself, which must therefore stay able to have processes.
	Managed bool
	Log     zerolog.Logger
}

// A Root is the delegated cgroup of a supervisor, or says why there is none.
type Root struct {
	log         zerolog.Logger
	dir         string   // "" if sessions get no cages
	controllers []string // that limit cages
	off         string   // why there are no cages, or no limits

	mu    sync.Mutex
	known map[string]bool // cages of sessions
	left  map[string]int  // cages that could not be removed, with how often that was tried
	timed bool            // retry will be called
}

// controllers are those that a cage is limited and counted by.
var wanted = []string{"memory", "pids", "cpu"}

// Open finds the delegated cgroup, moves keeper and supervisor into a leaf of it, and
// has the kernel limit its other leaves. It never fails: without such a cgroup
// sessions have no cages, and Status says why.
func Open(o Options) *Root {
	r := &Root{log: o.Log, known: map[string]bool{}, left: map[string]int{}}
	if o.Setting == Off {
		r.off = "the setting \"cage\" is off"
		return r
	}
	dir, why := find(o.Setting, o.Keeper)
	if why != "" {
		r.off = why
		r.log.Info().Str("reason", why).Msg("sessions get no cages")
		return r
	}
	r.dir = dir
	if o.Managed && own() == dir {
		// systemd starts the next keeper in the unit's cgroup, which the kernel
		// refuses once that has limited leaves; then it gives up on the unit.
		r.off = "systemd would not be able to start this unit again: add DelegateSubgroup=" + leafName + " (systemd 254) to have limits"
		r.log.Info().Str(logging.Path, dir).Str("reason", r.off).Msg("sessions get cages without limits")
		return r
	}
	if err := r.enter(o.Keeper, o.Setting == Auto); err != nil {
		r.off = err.Error()
	} else if r.enable(); len(r.controllers) == 0 {
		r.off = "no controller of memory, pids or cpu is delegated to " + dir
	}
	e := r.log.Info().Str(logging.Path, dir).Strs("controllers", r.controllers)
	if r.off != "" {
		e = e.Str("reason", r.off)
	}
	e.Msg("sessions get cages")
	return r
}

// find returns the directory of the delegated cgroup, or why there is none.
func find(setting string, keeper int) (dir, why string) {
	if why := oldKernel(); why != "" {
		return "", why
	}
	if setting != Auto && setting != Own {
		if !isCgroup2(setting) {
			return "", fmt.Sprintf("%s, of the setting \"cage\", is no directory of cgroup version 2", setting)
		}
		return usable(filepath.Clean(setting))
	}
	mount, at := ownPath()
	if mount == "" {
		return "", "this process is in no cgroup of version 2 that can be seen: it is not mounted, or the system uses version 1"
	}
	dir = at
	if filepath.Base(dir) == leafName {
		dir = filepath.Dir(dir)
	}
	switch {
	case dir == mount:
		return "", "the supervisor runs in the root cgroup; set \"cage\" to a cgroup made for it, or start it by: systemd-run --user --scope -p Delegate=yes supervisor"
	case setting == Own && !alone(dir, keeper):
		return "", fmt.Sprintf("other processes run in the cgroup %s", dir)
	case setting == Own, dir == filepath.Join(mount, os.Getenv(delegated)), hasDelegateMark(dir):
		return usable(dir)
	case anyDelegateMark(mount, filepath.Dir(dir)), strings.HasSuffix(dir, ".scope"), strings.HasSuffix(dir, ".service"), strings.HasSuffix(dir, ".slice"):
		return "", fmt.Sprintf("the cgroup %s is not delegated; stop the supervisor when no session runs, so that the next one is started in a scope with Delegate=yes, or start it by: systemd-run --user --scope -p Delegate=yes supervisor", dir)
	case !alone(dir, keeper):
		return "", fmt.Sprintf("other processes run in the cgroup %s", dir)
	}
	return usable(dir)
}

// usable returns dir if it can be divided.
func usable(dir string) (string, string) {
	for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
		if err := unix.Access(filepath.Join(dir, name), unix.W_OK); err != nil {
			return "", fmt.Sprintf("the cgroup %s cannot be divided: %v", dir, err)
		}
	}
	return dir, ""
}

// oldKernel says that the kernel cannot start a process in a cgroup, which is
// CLONE_INTO_CGROUP of Linux 5.7.
func oldKernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	release := unix.ByteSliceToString(u.Release[:])
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err == nil && (major < 5 || major == 5 && minor < 7) {
		return "Linux " + release + " is older than 5.7"
	}
	return ""
}

func isCgroup2(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// own returns the directory of this process's cgroup, or "".
func own() string {
	_, at := ownPath()
	return at
}

// ownPath returns where cgroup version 2 is mounted, and the directory of this
// process's cgroup there; "" if it cannot be seen.
func ownPath() (mount, at string) {
	cgroup, _ := os.ReadFile("/proc/self/cgroup")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	return parsePath(cgroup, mounts)
}

// parsePath takes /proc/self/cgroup and /proc/self/mountinfo apart: see cgroups(7)
// and proc(5).
func parsePath(cgroup, mounts []byte) (mount, at string) {
	path := ""
	for line := range bytes.Lines(cgroup) {
		if p, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\n")), []byte("0::")); ok {
			path = string(p)
		}
	}
	if path == "" || strings.HasPrefix(path, "/..") || strings.HasSuffix(path, " (deleted)") {
		return "", ""
	}
	for line := range bytes.Lines(mounts) {
		before, after, _ := bytes.Cut(line, []byte(" - "))
		fields, kind := strings.Fields(string(before)), strings.Fields(string(after))
		if len(fields) < 5 || len(kind) < 1 || kind[0] != "cgroup2" {
			continue
		}
		below, ok := strings.CutPrefix(path, strings.TrimSuffix(fields[3], "/"))
		if ok && (below == "" || below[0] == '/') {
			return fields[4], filepath.Join(fields[4], below)
		}
	}
	return "", ""
}

// delegated is the variable in which a proxy that has started the supervisor in a scope
// names the scope's cgroup, below where cgroups are mounted: it has asked for its
// delegation.
const delegated = "HOLDFAST_DELEGATED"

// hasDelegateMark reports whether systemd says that it has delegated the cgroup:
// user.delegate from version 251 on, trusted.delegate, for root alone, before. The
// system's manager says so, a user's does not.
func hasDelegateMark(dir string) bool {
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		var value [4]byte
		if n, err := unix.Getxattr(dir, name, value[:]); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

func anyDelegateMark(mount, dir string) bool {
	for ; len(dir) > len(mount); dir = filepath.Dir(dir) {
		if hasDelegateMark(dir) {
			return true
		}
	}
	return false
}

// alone reports whether no process but these two is in the cgroup itself.
func alone(dir string, keeper int) bool {
	pids, err := processes(dir)
	return err == nil && !slices.ContainsFunc(pids, func(pid int) bool { return pid != os.Getpid() && pid != keeper })
}

// processes returns the pids in a cgroup, without those in cgroups within.
func processes(dir string) (pids []int, err error) {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for field := range bytes.FieldsSeq(data) {
		if pid, err := strconv.Atoi(string(field)); err == nil && pid > 0 { // 0 is one of another namespace
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// enterRounds is how often processes that fork meanwhile are looked for.
const enterRounds = 20

// enter moves keeper and supervisor into their leaf, and with others everything else
// that is in the delegated cgroup into another one: sessions of an older program.
func (r *Root) enter(keeper int, others bool) error {
	leaf := filepath.Join(r.dir, leafName)
	if err := mkdir(leaf); err != nil {
		return err
	}
	for _, pid := range []int{keeper, os.Getpid()} {
		if pid <= 0 {
			continue
		}
		if err := write(leaf, "cgroup.procs", strconv.Itoa(pid)); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	for range enterRounds {
		pids, err := processes(r.dir)
		if err != nil || len(pids) == 0 || !others {
			return err
		}
		if err := mkdir(filepath.Join(r.dir, othersName)); err != nil {
			return err
		}
		for _, pid := range pids {
			_ = write(filepath.Join(r.dir, othersName), "cgroup.procs", strconv.Itoa(pid)) // it may have ended; the next round sees
		}
	}
	return nil
}

// enable has the kernel limit the leaves by those controllers that were delegated.
func (r *Root) enable() {
	available := fields(r.dir, "cgroup.controllers")
	for _, c := range wanted {
		if slices.Contains(available, c) {
			if err := write(r.dir, "cgroup.subtree_control", "+"+c); err != nil {
				r.off = fmt.Sprintf("controller %s: %v", c, err)
				r.log.Warn().Err(err).Str("controller", c).Msg("sessions cannot be limited by this controller")
			}
		}
	}
	for _, c := range fields(r.dir, "cgroup.subtree_control") {
		if slices.Contains(wanted, c) {
			r.controllers = append(r.controllers, c)
		}
	}
	slices.Sort(r.controllers)
}

// New makes an empty cage with limits. It returns nil if sessions get none and none
// of required is given. Those of defaults that cannot be set are left out. The error
// is unsupported.
func (r *Root) New(name string, required, defaults protocol.Limits) (*Cage, error) {
	if r == nil || r.dir == "" {
		if required.IsZero() {
			return nil, nil
		}
		return nil, Unsupported("a session with limits", r.why())
	}
	dir := filepath.Join(r.dir, prefix+name)
	if err := unix.Mkdir(dir, 0o755); err != nil {
		err = &os.PathError{Op: "mkdir", Path: dir, Err: err}
		if required.IsZero() {
			r.log.Warn().Err(err).Msg("session gets no cage")
			return nil, nil
		}
		return nil, Unsupported("a session with limits", err.Error())
	}
	c := &Cage{dir: dir, root: r}
	if err := c.Limit(defaults); err != nil {
		r.log.Warn().Err(err).Stringer("limits", defaults).Msg("limits of the settings are not set")
	}
	if err := c.Limit(required); err != nil {
		_ = unix.Rmdir(dir) // nothing was in it
		return nil, err
	}
	r.mu.Lock()
	r.known[dir] = true
	r.mu.Unlock()
	return c, nil
}

// why says why there are no cages, or no limits.
func (r *Root) why() string {
	if r == nil || r.off == "" {
		return "it has no cage"
	}
	return r.off
}

// Adopt returns the cage that a supervisor before this one made, or nil if it is gone.
func (r *Root) Adopt(dir string) *Cage {
	if r == nil || !strings.HasPrefix(filepath.Base(dir), prefix) || !isCage(dir) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[dir] = true
	return &Cage{dir: dir, root: r}
}

// isCage is isCgroup2; tests take any directory.
var isCage = isCgroup2

// Sweep removes the cages that no adopted session has. It is to be called once, when
// all sessions are adopted.
func (r *Root) Sweep() {
	if r == nil || r.dir == "" {
		return
	}
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		r.log.Warn().Err(err).Msg("cages of earlier sessions not looked for")
		return
	}
	for _, e := range entries {
		dir := filepath.Join(r.dir, e.Name())
		r.mu.Lock()
		known := r.known[dir]
		r.mu.Unlock()
		if !known && e.IsDir() && strings.HasPrefix(e.Name(), prefix) {
			(&Cage{dir: dir, root: r}).Remove()
		}
	}
}

// When the removal of a cage in which something still runs is tried again: those that
// were just killed take a moment to go, which is not worth a word.
const (
	retryFirst = 200 * time.Millisecond
	retry      = 5 * time.Second
)

// removed notes whether a cage could be removed, and sees to those that could not.
func (r *Root) removed(dir string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tries := r.left[dir]
	switch {
	case err == nil:
		delete(r.left, dir)
		delete(r.known, dir)
		if tries > 1 {
			r.log.Info().Str(logging.Path, dir).Msg("cage removed")
		}
	default:
		r.left[dir] = tries + 1
		r.retryLater()
	}
	if tries == 1 && err != nil {
		r.log.Warn().Err(err).Str(logging.Path, dir).Msg("processes are left in the cage of a session that has ended; it is removed when they end")
	}
}

// retryLater is called with mu held.
func (r *Root) retryLater() {
	if len(r.left) == 0 || r.timed {
		return
	}
	r.timed = true
	after := retry
	for _, tries := range r.left {
		if tries == 1 {
			after = retryFirst
		}
	}
	time.AfterFunc(after, r.retry)
}

func (r *Root) retry() {
	r.mu.Lock()
	r.timed = false
	var left []string
	for dir := range r.left {
		left = append(left, dir)
	}
	r.mu.Unlock()
	for _, dir := range left {
		(&Cage{dir: dir, root: r}).Remove()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retryLater()
}

// Status says what there is.
func (r *Root) Status() *protocol.CagesStatus {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	st := &protocol.CagesStatus{Dir: r.dir, Controllers: r.controllers, Off: r.off}
	for dir, tries := range r.left {
		if tries > 1 {
			st.Left = append(st.Left, dir)
		}
	}
	slices.Sort(st.Left)
	st.Left = st.Left[:min(len(st.Left), protocol.MaxCagesLeft)]
	return st
}

func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// write writes a value in one call, as cgroupfs wants it, and makes no file.
func write(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func fields(dir, name string) []string {
	data, _ := os.ReadFile(filepath.Join(dir, name))
	return strings.Fields(string(data))
}
