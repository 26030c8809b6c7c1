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

// A process is one that serves our directories.
type process struct {
	pid      int
	program  string // supervisor or proxy; "" for another that has a lock of ours open
	replaced bool   // its program's file is another by now
	stopped  bool   // by a signal
	proper   bool   // a supervisor that has been started by a keeper
	keeps    bool   // that keeper
	parent   int
	children int      // of a supervisor: the programs of its sessions
	locks    []string // paths of sockets whose locks it has open
}

// holds: nobody keeps a lock's file open who could not lock it.
func (p process) holds(path string) bool { return slices.Contains(p.locks, path) }

// processes are those that hold a lock in our directories, and those that were
// started to serve them. There may be others that we cannot look into.
func (f *Facts) processes() []process {
	if f.Proc == "" {
		return nil
	}
	entries, _ := os.ReadDir(f.Proc) // without, nothing is known of any
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
			p.stopped = state == "T"
			if p.parent = parent; p.proper {
				keepers[parent] = true
			}
			found = append(found, *p)
		}
	}
	for i := range found {
		found[i].children, found[i].keeps = children[found[i].pid], keepers[found[i].pid]
	}
	for i, p := range found {
		if k := slices.IndexFunc(found, func(k process) bool { return p.proper && k.pid == p.parent }); k >= 0 {
			found[i].children += found[k].children - 1 // those of supervisors that have died
		}
	}
	return found
}

// process returns nil for one that is not ours.
func (f *Facts) process(pid int) *process {
	args := f.strings(pid, "cmdline")
	exe, _ := os.Readlink(f.of(pid, "exe"))
	exe, replaced := strings.CutSuffix(exe, " (deleted)")
	locks, elsewhere := f.locks(pid)
	p := &process{pid: pid, replaced: replaced, locks: locks}
	// An older release may serve another directory than this one finds by the
	// process's environment: its locks tell.
	if program := programOf(exe, args); program != "" && !elsewhere && f.serves(pid, args) {
		p.program = program
		p.proper = program == "supervisor" && command(args[1:]) == "run"
	}
	if p.program == "" && len(p.locks) == 0 {
		return nil
	}
	return p
}

// programOf says which of our programs serves. A file that was renamed has
// another name by now, and the arguments still the old one.
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

// command is a command line's first word that is neither a flag nor a flag's.
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

// serves reports whether a process was started for our directories: where it
// would look for them is where ours are.
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
		return false // we may not see it
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

// locks are the sockets of our runtime directory whose locks a process has open,
// and whether it has locks of another directory alone. The kernel says where
// files really lie, so where we lie counts, too.
func (f *Facts) locks(pid int) (found []string, elsewhere bool) {
	real, _ := filepath.EvalSymlinks(f.Dirs.Runtime) // "" if it is not there
	entries, _ := os.ReadDir(f.of(pid, "fd"))        // another user's: not ours
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

// stat returns a process's state and parent.
func (f *Facts) stat(pid int) (state string, parent int) {
	b, _ := os.ReadFile(f.of(pid, "stat"))
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the program's name before it may have anything in it
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

// orphans finds processes that serve our directories and hold no lock there:
// nobody can reach them.
func (l *look) orphans() []Finding {
	if l.Proc == "" {
		return []Finding{{"orphans", Note, "unknown: this system has no /proc", ""}}
	}
	var found []Finding
	for _, p := range l.procs {
		switch {
		case len(p.locks) > 0 || !l.stillWithout(p):
		case p.program == "supervisor":
			found = append(found, Finding{"orphans", Warning,
				fmt.Sprintf("supervisor %d holds no lock of ours, so nobody reaches its sessions; %s", p.pid, p.cost()),
				fmt.Sprintf("look again in 10 s, it may take its lock back; else let its programs end, or ask it to end them: kill -TERM %d", p.pid)})
		case p.program == "proxy":
			found = append(found, Finding{"orphans", Warning,
				fmt.Sprintf("proxy %d holds no lock of ours, so nobody reaches it", p.pid),
				fmt.Sprintf("if no handoff is under way, end it, which costs no session: kill %d", p.pid)})
		}
	}
	return orOK(found, "orphans", "none")
}

// stillWithout reports whether a process has no lock yet: it had just been
// started, perhaps, or was about to end.
func (l *look) stillWithout(p process) bool {
	now := l.process(p.pid)
	return now != nil && now.program == p.program && len(now.locks) == 0
}

// cost is what the end of a supervisor would cost that is asked for. One that is
// killed is started again, where it has a keeper.
func (p process) cost() string {
	if p.children == 0 {
		return "SIGTERM would lose the records of its sessions; no program of theirs runs"
	}
	return fmt.Sprintf("SIGTERM would end its sessions, programs that run: %d", p.children)
}
