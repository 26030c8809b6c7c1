package doctor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"holdfast/shared/config"
)

// A process is a process that serves the directories of this proxy, or holds a lock there.
type process struct {
	pid        int
	program    string // supervisor or proxy; "" for another program that has a lock open
	isReplaced bool   // its program's file was replaced or removed
	isStopped  bool   // stopped by a signal
	hasKeeper  bool   // a supervisor that was started by a keeper
	isKeeper   bool   // a keeper of such a supervisor
	parent     int
	children   int      // of a supervisor: number of its sessions' programs
	locks      []string // paths of sockets; it has their locks open
}

// holds reports whether the process holds a socket's lock. A process keeps a lock file open only
// if it has locked it.
func (p process) holds(path string) bool { return slices.Contains(p.locks, path) }

// processes returns the processes that hold a lock in these directories, and those that were
// started to serve them. Processes of other users cannot be examined and are missing.
func (f *Facts) processes() []process {
	if f.Proc == "" {
		return nil
	}
	entries, _ := os.ReadDir(f.Proc) // an error means that no process is known
	var found []process
	children, keepers := map[int]int{}, map[int]bool{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		state, parent := f.stat(pid)
		children[parent]++
		if p := f.process(pid); p != nil {
			p.isStopped = state == "T"
			if p.parent = parent; p.hasKeeper {
				keepers[parent] = true
			}
			found = append(found, *p)
		}
	}
	for i := range found {
		found[i].children, found[i].isKeeper = children[found[i].pid], keepers[found[i].pid]
	}
	for i, p := range found {
		if k := slices.IndexFunc(found, func(k process) bool { return p.hasKeeper && k.pid == p.parent }); k >= 0 {
			found[i].children += found[k].children - 1 // children of supervisors that have died
		}
	}
	return found
}

// process returns a process, or nil if it neither serves these directories nor holds a lock
// there.
func (f *Facts) process(pid int) *process {
	args := f.strings(pid, "cmdline")
	exe, _ := os.Readlink(f.of(pid, "exe"))
	exe, isReplaced := strings.CutSuffix(exe, " (deleted)")
	locks, elsewhere := f.locks(pid)
	p := &process{pid: pid, isReplaced: isReplaced, locks: locks}
	// The environment alone does not decide: with the same environment, a process that was started
	// before /run/user/UID existed uses another directory. Its locks show which one.
	if program := programOf(exe, args); program != "" && !elsewhere && f.serves(pid, args) {
		p.program = program
		p.hasKeeper = program == "supervisor" && command(args[1:]) == "run"
	}
	if p.program == "" && len(p.locks) == 0 {
		return nil
	}
	return p
}

// programOf returns "supervisor" or "proxy" if a process serves, or "". It uses the arguments,
// too, because a file that was renamed has another name.
func programOf(exe string, args []string) string {
	if len(args) == 0 {
		return ""
	}
	for _, name := range []string{filepath.Base(exe), filepath.Base(args[0])} {
		switch {
		case name == "supervisor" && !slices.Contains(args, "stop") && !slices.Contains(args, "--upgrade"):
			return name
		case name == "proxy" && (command(args[1:]) == "serve" || slices.Contains(args, "--handoff") && slices.Contains(args, "--foreground")):
			return name
		}
	}
	return ""
}

// command returns the first word of a command line that is neither a flag nor a flag's value.
func command(args []string) string {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--dir" || args[i] == "--proxy":
			i++
		case !strings.HasPrefix(args[i], "-"):
			return args[i]
		}
	}
	return ""
}

// serves reports whether a process was started for these directories: its flags and its
// environment resolve to the same runtime directory.
func (f *Facts) serves(pid int, args []string) bool {
	env := map[string]string{}
	for _, v := range f.strings(pid, "environ") {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	dir := flagOf(args, "--dir")
	if dir != "" && !filepath.IsAbs(dir) {
		cwd, err := os.Readlink(f.of(pid, "cwd"))
		if err != nil {
			return false
		}
		dir = filepath.Join(cwd, dir)
	}
	if dir == "" && len(env) == 0 {
		return false // this user may not read the environment
	}
	d, err := config.Resolve(dir, func(name string) string { return env[name] })
	return err == nil && d.Runtime == f.Dirs.Runtime
}

func flagOf(args []string, flag string) string {
	for i, a := range args {
		if v, ok := strings.CutPrefix(a, flag+"="); ok {
			return v
		}
		if a == flag && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// locks returns the sockets in the runtime directory of which a process has the locks open, and
// whether it has only locks of other directories open. The kernel reports paths without links, so the
// runtime directory is resolved as well.
func (f *Facts) locks(pid int) (found []string, elsewhere bool) {
	real, _ := filepath.EvalSymlinks(f.Dirs.Runtime) // "" if it does not exist
	entries, _ := os.ReadDir(f.of(pid, "fd"))        // fails for processes of other users, which hold no lock here
	for _, e := range entries {
		to, _ := os.Readlink(filepath.Join(f.of(pid, "fd"), e.Name()))
		path, ok := strings.CutSuffix(to, ".sock.lock")
		switch {
		case !ok:
		case filepath.Dir(path) == real:
			found = append(found, f.Dirs.Socket(filepath.Base(path)+".sock"))
		default:
			elsewhere = true
		}
	}
	return found, elsewhere && len(found) == 0
}

// stat returns a process's state and the pid of its parent.
func (f *Facts) stat(pid int) (state string, parent int) {
	b, _ := os.ReadFile(f.of(pid, "stat"))
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the field before it is the program's name, which may contain any character
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}

func (f *Facts) of(pid int, name string) string {
	return filepath.Join(f.Proc, strconv.Itoa(pid), name)
}

// strings reads a file of strings that end in NUL.
func (f *Facts) strings(pid int, name string) []string {
	b, _ := os.ReadFile(f.of(pid, name))
	if len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// orphans finds processes that serve these directories but hold no lock there, so that no client
// can reach them.
func (l *inspection) orphans() []Finding {
	if l.Proc == "" {
		return []Finding{{"orphans", Note, "unknown: this system has no /proc", ""}}
	}
	var found []Finding
	for _, p := range l.procs {
		switch {
		case len(p.locks) > 0 || !l.stillWithout(p):
		case p.program == "supervisor":
			found = append(found, Finding{"orphans", Warning,
				fmt.Sprintf("supervisor %d holds no lock here, so no client reaches its sessions; %s", p.pid, p.cost()),
				"look again in 10 s, it may take its lock back; else " + l.makeRoom(p)})
		case p.program == "proxy":
			found = append(found, Finding{"orphans", Warning,
				fmt.Sprintf("proxy %d holds no lock here, so no client reaches it", p.pid),
				fmt.Sprintf("if no handoff is under way, end it, which costs no session: kill %d", p.pid)})
		}
	}
	return orOK(found, "orphans", "none")
}

// makeRoom returns how the sessions of a supervisor without a lock can be reached again, or ended. A supervisor takes its
// lock back as soon as no other one holds it.
func (l *inspection) makeRoom(p process) string {
	_, pid, _ := l.holder(l.Dirs.Socket(config.SupervisorSocket)) // if it is unknown, sockets has a finding for that
	o := l.processOf(pid)
	if o.program != "supervisor" {
		return fmt.Sprintf("let its programs end, or ask it to end them: kill -TERM %d", p.pid)
	}
	return fmt.Sprintf("end supervisor %d, which has its place, when its sessions may end: kill -TERM %d; %s", o.pid, o.pid, o.cost())
}

// stillWithout reports whether a process still has no lock. If it has one now, it had just been
// started; if it has gone, it was about to end.
func (l *inspection) stillWithout(p process) bool {
	now := l.process(p.pid)
	return now != nil && now.program == p.program && len(now.locks) == 0
}

// cost returns the loss that SIGTERM to a supervisor causes. SIGKILL is different: a keeper then
// starts the supervisor again.
func (p process) cost() string {
	if p.children == 0 {
		return "SIGTERM would lose the records of its sessions; no program of theirs runs"
	}
	return fmt.Sprintf("SIGTERM would end its sessions, programs that run: %d", p.children)
}
