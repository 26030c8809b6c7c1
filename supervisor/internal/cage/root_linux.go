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

// Options configure Open.
type Options struct {
	Setting string // auto, own, off, or a directory
	Keeper  int    // the keeper's pid; 0: there is no keeper
	// Managed means that a service manager will start the next keeper in the delegated cgroup
	// itself. That cgroup must therefore stay able to hold processes, so its children cannot be
	// limited.
	Managed bool
	Log     zerolog.Logger
}

// A Root is the delegated cgroup of a supervisor, or holds the reason why there is none.
type Root struct {
	log         zerolog.Logger
	dir         string   // "": sessions get no cages
	controllers []string // controllers by which cages can be limited
	offReason   string   // reason why there are no cages, or no limits

	mu    sync.Mutex
	known map[string]bool // cages of sessions
	left  map[string]int  // cages that could not be removed, with the number of attempts
	timer *time.Timer     // calls retry; nil until a cage could not be removed
	due   time.Time       // time of the next retry; zero if none is scheduled
}

// wantedControllers are the controllers that limit a cage or count its use.
var wantedControllers = []string{"memory", "pids", "cpu"}

// Open finds the delegated cgroup, moves keeper and supervisor into a leaf of it, and enables
// the controllers for its other children. It never fails: if there is no such cgroup, sessions
// have no cages, and Status returns the reason.
func Open(o Options) *Root {
	r := &Root{log: o.Log, known: map[string]bool{}, left: map[string]int{}}
	if o.Setting == Off {
		r.offReason = "the setting \"cage\" is off"
		return r
	}
	dir, why := find(o.Setting, o.Keeper)
	if why != "" {
		r.offReason = why
		r.log.Info().Str("reason", why).Msg("sessions get no cages")
		return r
	}
	r.dir = dir
	if o.Managed && own() == dir {
		// systemd starts the next keeper in the unit's cgroup. The kernel refuses that if the
		// cgroup limits its children, and systemd then gives up the unit.
		r.offReason = "systemd would not be able to start this unit again: add DelegateSubgroup=" + leafName + " (systemd 254) to have limits"
		r.log.Info().Str(logging.Path, dir).Str("reason", r.offReason).Msg("sessions get cages without limits")
		return r
	}
	if err := r.enter(o.Keeper, o.Setting == Auto); err != nil {
		r.offReason = err.Error()
	} else if r.enable(); len(r.controllers) == 0 {
		r.offReason = "no controller of memory, pids or cpu is delegated to " + dir
	}
	e := r.log.Info().Str(logging.Path, dir).Strs("controllers", r.controllers)
	if r.offReason != "" {
		e = e.Str("reason", r.offReason)
	}
	e.Msg("sessions get cages")
	return r
}

// find returns the directory of the delegated cgroup, or the reason why there is none.
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
		return "", "the supervisor runs in the root cgroup"
	case setting == Own && !alone(dir, keeper):
		return "", fmt.Sprintf("other processes run in the cgroup %s", dir)
	case setting == Own, dir == filepath.Join(mount, os.Getenv(delegated)), hasDelegateMark(dir):
		return usable(dir)
	case anyDelegateMark(mount, filepath.Dir(dir)), strings.HasSuffix(dir, ".scope"), strings.HasSuffix(dir, ".service"), strings.HasSuffix(dir, ".slice"):
		return "", fmt.Sprintf("the cgroup %s is not delegated", dir)
	case !alone(dir, keeper):
		return "", fmt.Sprintf("other processes run in the cgroup %s", dir)
	}
	return usable(dir)
}

// usable returns dir if cages can be made in it, or the reason why they cannot.
func usable(dir string) (string, string) {
	for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
		if err := unix.Access(filepath.Join(dir, name), unix.W_OK); err != nil {
			return "", fmt.Sprintf("the cgroup %s cannot be divided: %v", dir, err)
		}
	}
	return dir, ""
}

// oldKernel returns a reason if the kernel cannot start a process in a cgroup. That needs
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

// ownPath returns the mount point of cgroup version 2 and the directory of this process's
// cgroup below it, or "" if this process cannot see it.
func ownPath() (mount, at string) {
	cgroup, _ := os.ReadFile("/proc/self/cgroup")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	return parsePath(cgroup, mounts)
}

// parsePath parses the content of /proc/self/cgroup and /proc/self/mountinfo; see cgroups(7)
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

// delegated is the environment variable in which a proxy passes the path of a delegated cgroup,
// below the mount point. A proxy sets it if it has started the supervisor in a scope and has
// requested delegation for that scope.
const delegated = "HOLDFAST_DELEGATED"

// hasDelegateMark reports whether systemd has marked the cgroup as delegated. The mark is the
// extended attribute user.delegate since version 251, and trusted.delegate, which only root can
// read, before. Only the system's manager sets it, a user's manager does not.
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

// alone reports whether the cgroup itself holds only keeper and supervisor.
func alone(dir string, keeper int) bool {
	pids, err := processes(dir)
	return err == nil && !slices.ContainsFunc(pids, func(pid int) bool { return pid != os.Getpid() && pid != keeper })
}

// processes returns the pids in a cgroup, without those in the cgroups below it.
func processes(dir string) (pids []int, err error) {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for field := range bytes.FieldsSeq(data) {
		if pid, err := strconv.Atoi(string(field)); err == nil && pid > 0 { // 0 is a process of another pid namespace
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// enterRounds is how often enter looks for processes that were forked meanwhile.
const enterRounds = 20

// enter moves keeper and supervisor into their leaf. If others is set, it moves all other
// processes of the delegated cgroup into a second leaf; they belong to sessions that were started
// when the supervisor made no cages.
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
			_ = write(filepath.Join(r.dir, othersName), "cgroup.procs", strconv.Itoa(pid)) // the process may have ended; the next round reads the pids again
		}
	}
	return nil
}

// enable enables the delegated controllers for the children of the cgroup.
func (r *Root) enable() {
	available := fields(r.dir, "cgroup.controllers")
	for _, c := range wantedControllers {
		if slices.Contains(available, c) {
			if err := write(r.dir, "cgroup.subtree_control", "+"+c); err != nil {
				r.offReason = fmt.Sprintf("controller %s: %v", c, err)
				r.log.Warn().Err(err).Str("controller", c).Msg("controller not enabled; sessions get no limits of it")
			}
		}
	}
	for _, c := range fields(r.dir, "cgroup.subtree_control") {
		if slices.Contains(wantedControllers, c) {
			r.controllers = append(r.controllers, c)
		}
	}
	slices.Sort(r.controllers)
}

// New creates a cage with limits. If sessions get no cages and no limit is required, it returns
// nil without an error. It ignores those of defaults that cannot be set. Its errors have the
// code "unsupported".
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
		r.log.Warn().Err(err).Stringer("limits", defaults).Msg("session starts without some limits of the settings")
	}
	if err := c.Limit(required); err != nil {
		_ = unix.Rmdir(dir) // no process was started in it
		return nil, err
	}
	r.mu.Lock()
	r.known[dir] = true
	r.mu.Unlock()
	return c, nil
}

// why returns the reason why there are no cages, or no limits.
func (r *Root) why() string {
	if r == nil || r.offReason == "" {
		return "it has no cage"
	}
	return r.offReason
}

// Adopt returns the cage that an earlier supervisor has made, or nil if it does not exist any
// more.
func (r *Root) Adopt(dir string) *Cage {
	if r == nil || !strings.HasPrefix(filepath.Base(dir), prefix) || !isCage(dir) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[dir] = true
	return &Cage{dir: dir, root: r}
}

// isCage is a variable, because tests use ordinary directories as cages.
var isCage = isCgroup2

// Sweep removes the cages that belong to no adopted session. It must be called once, after all
// sessions were adopted.
func (r *Root) Sweep() {
	if r == nil || r.dir == "" {
		return
	}
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		r.log.Warn().Err(err).Msg("cages of earlier sessions not removed: the delegated cgroup cannot be read")
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

// Delays until the removal of a cage that still holds processes is retried. The first one is
// short and the first retry is not logged, because processes that were just killed take a
// moment to end.
const (
	retryFirst = 200 * time.Millisecond
	retry      = 5 * time.Second
)

// noteRemoval notes whether a cage could be removed, and schedules a retry if not.
func (r *Root) noteRemoval(dir string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	attempts := r.left[dir]
	switch {
	case err == nil:
		delete(r.left, dir)
		delete(r.known, dir)
		if attempts > 1 {
			r.log.Info().Str(logging.Path, dir).Msg("cage removed")
		}
	default:
		r.left[dir] = attempts + 1
		r.retryLater()
	}
	if attempts == 1 && err != nil {
		r.log.Warn().Err(err).Str(logging.Path, dir).Msg("cage of an ended session still holds processes; it will be removed when they end")
	}
}

// retryLater schedules a retry for the cages that are left, unless an earlier one is scheduled.
// The caller must hold mu.
func (r *Root) retryLater() {
	if len(r.left) == 0 {
		return
	}
	after := retry
	for _, attempts := range r.left {
		if attempts == 1 {
			after = retryFirst
		}
	}
	due := time.Now().Add(after)
	switch {
	case !r.due.IsZero() && r.due.Before(due):
		return
	case r.timer == nil:
		r.timer = time.AfterFunc(after, r.retry)
	default:
		r.timer.Reset(after)
	}
	r.due = due
}

func (r *Root) retry() {
	r.mu.Lock()
	r.due = time.Time{}
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

// Status returns the state of the cages for a client's status request.
func (r *Root) Status() *protocol.CagesStatus {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	st := &protocol.CagesStatus{Dir: r.dir, Controllers: r.controllers, Off: r.offReason}
	for dir, attempts := range r.left {
		if attempts > 1 {
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

// write writes a value to an existing file in one system call, as cgroupfs requires.
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
