// Package doctor looks for what would make terminals fail: directories,
// sockets, limits, and processes that do not fit together.
//
// Each check is a function of the facts, which a test makes up. What cannot be
// found out is said to be unknown, and never taken for the worst.
//
// Invariant: it starts nothing and changes nothing, and proposes nothing that
// would end a session without saying so.
//
// Not here: mending (each finding says how), and the words for a terminal.
package doctor

import (
	"context"
	"errors"
	"slices"
	"time"

	"holdfast/protocol"
	"holdfast/shared/config"
	"holdfast/shared/keep"
)

// A Severity is how bad a finding is.
type Severity string

// The severities, from fine to bad.
const (
	OK      Severity = "ok"
	Note    Severity = "note"    // good to know; nothing fails of it
	Warning Severity = "warning" // something will fail, or something has
	Error   Severity = "error"   // terminals fail
)

// ExitCode is what a severity makes a command exit with.
func (s Severity) ExitCode() int {
	switch s {
	case Warning:
		return 1
	case Error:
		return 2
	}
	return 0
}

// A Finding is what one check has to say.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Finding  string   `json:"finding"`
	Fix      string   `json:"fix"` // what to do about it; "" for nothing
}

// What keeps a process from being asked. ErrNotRunning says for certain that
// nobody listens; with ErrNotAsked, which comes wrapped, nothing is known.
var (
	ErrNotRunning = errors.New("not running")
	ErrNotAsked   = errors.New("it was not asked")
)

// Facts are what is looked at.
type Facts struct {
	Dirs      config.Dirs
	Proxy     string   // the proxy's name
	Version   string   // of this program
	Settings  error    // why the settings cannot be used
	Variables []string // names in the environment that begin with HOLDFAST_ and mean nothing
	Program   error    // why no supervisor could be started
	Policy    error    // why a proxy's policy could not be
	Env       func(string) string

	Proc string // where /proc is; "" for a system without
	Ptmx string // the device that makes PTYs

	// Files is how many files this process has open, and how many it may.
	Files func() (open, limit uint64, err error)
	// Locked reports whether a socket's lock is held. It is asked where there is
	// no Proc.
	Locked func(path string) (bool, error)
	// Listens connects to a socket; ErrNotRunning is that nobody listens.
	Listens func(ctx context.Context, path string) error
	// Output runs a program and returns what it prints.
	Output func(ctx context.Context, name string, args ...string) (string, error)
	// Supervisor and Serving ask the two processes; ErrNotRunning is that nobody
	// listens. Serving is told whether a supervisor answers: a proxy that is asked
	// for one that is not there starts it.
	Supervisor func(context.Context) (*protocol.ProcessStatus, error)
	Serving    func(ctx context.Context, supervisor bool) (*ProxyStatus, error)
	// Elsewhere finds this user's daemons in other runtime directories.
	Elsewhere func(context.Context) []Place
	// Held is what a keeper says that starts no supervisor any more, else nil.
	Held func() *keep.Held
}

// A Place is another runtime directory in which daemons of this user run.
type Place struct {
	Dir     string
	Runs    string // what runs there, for people
	Command string // lists its sessions
}

// ProxyStatus is what a proxy says of itself. Where no supervisor runs only the
// pid is known.
type ProxyStatus struct {
	protocol.ProcessStatus
	Linked bool // it reaches the supervisor
}

// patience is how long whatever is asked may take to answer.
const patience = 3 * time.Second

// A look is the facts with what several checks need to know.
type look struct {
	Facts
	procs      []process
	supervisor *protocol.ProcessStatus
	supErr     error
	held       *keep.Held // nil where a supervisor answers
	proxy      *ProxyStatus
	proxyErr   error
}

// Run makes all checks.
func Run(ctx context.Context, f Facts) []Finding {
	l := newLook(ctx, f)
	var all []Finding
	all = append(all, l.directories()...)
	all = append(all, l.places(ctx)...)
	all = append(all, l.paths()...)
	all = append(all, l.settings()...)
	all = append(all, l.sockets(ctx)...)
	all = append(all, l.terminals()...)
	all = append(all, l.files()...)
	all = append(all, l.linger(ctx)...)
	all = append(all, l.supervisorRuns()...)
	all = append(all, l.keeperRuns()...)
	all = append(all, l.cages()...)
	all = append(all, l.reports()...)
	all = append(all, l.proxyRuns()...)
	all = append(all, l.skew()...)
	return append(all, l.orphans()...)
}

// Unanswered makes the two checks of the processes alone, and returns what is wrong: which of
// them does not answer, and what to do. It takes as long as they do, a few seconds at most.
func Unanswered(ctx context.Context, f Facts) []Finding {
	l := newLook(ctx, f)
	return slices.DeleteFunc(append(l.supervisorRuns(), l.proxyRuns()...), func(f Finding) bool { return f.Severity != Error })
}

// newLook asks the processes before it looks who there is. One that was about
// to serve is asked again.
func newLook(ctx context.Context, f Facts) *look {
	l := &look{Facts: f}
	l.ask(ctx)
	l.procs = f.processes()
	if l.begins(l.supErr, config.SupervisorSocket) || l.begins(l.proxyErr, config.APISocket(f.Proxy)) {
		l.ask(ctx)
	}
	if l.supErr != nil {
		l.held = l.Held()
	}
	return l
}

func (l *look) ask(ctx context.Context) {
	l.supervisor, l.supErr = within(ctx, l.Supervisor)
	l.proxy, l.proxyErr = within(ctx, func(ctx context.Context) (*ProxyStatus, error) { return l.Serving(ctx, l.supErr == nil) })
}

// begins reports whether somebody who did not listen holds the lock by now.
func (l *look) begins(err error, socket string) bool {
	held, _, _ := l.holder(l.Dirs.Socket(socket))
	return held && errors.Is(err, ErrNotRunning)
}

func within[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return ask(ctx)
}

// Worst is the worst severity among findings.
func Worst(all []Finding) Severity {
	worst := OK
	for _, f := range all {
		if rank[f.Severity] > rank[worst] {
			worst = f.Severity
		}
	}
	return worst
}

var rank = map[Severity]int{OK: 0, Note: 1, Warning: 2, Error: 3}

// orOK is what a check found, or that all is well.
func orOK(found []Finding, check, fine string) []Finding {
	if len(found) > 0 {
		return found
	}
	return []Finding{{Check: check, Severity: OK, Finding: fine}}
}
