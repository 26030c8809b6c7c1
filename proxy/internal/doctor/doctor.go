// Package doctor finds problems that would make terminals fail: with directories, sockets,
// limits, and processes that do not fit together.
//
// Each check is a function of the facts, which a test can invent. If a fact cannot be determined,
// the finding says that it is unknown; a check never assumes the worst.
//
// Invariant: it starts no process and changes no file. If an advice would end a session, its text
// says so.
//
// Not here: repairs (each finding names one), and the output for a terminal.
package doctor

import (
	"context"
	"errors"
	"slices"
	"time"

	"holdfast/protocol"
	"holdfast/shared/config"
	"holdfast/shared/keeperstate"
)

// A Severity is the severity of a finding.
type Severity string

// The severities, from harmless to severe.
const (
	OK      Severity = "ok"
	Note    Severity = "note"    // for information; no command fails because of it
	Warning Severity = "warning" // a command will fail, or a part has failed
	Error   Severity = "error"   // terminals fail
)

// ExitCode returns the exit code of a command if its worst finding has this severity: 0, 1 or 2.
func (s Severity) ExitCode() int {
	switch s {
	case Warning:
		return 1
	case Error:
		return 2
	}
	return 0
}

// A Finding is the result of one check.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Finding  string   `json:"finding"`
	Fix      string   `json:"fix"` // the next step for the user; "" if there is none
}

// Reasons why a process was not asked. ErrNotRunning proves that no process listens. ErrNotAsked,
// which must always be wrapped, does not say whether one listens.
var (
	ErrNotRunning = errors.New("not running")
	ErrNotAsked   = errors.New("it was not asked")
)

// Facts are the state of the machine and the ways to learn more of it.
type Facts struct {
	Dirs      config.Dirs
	Proxy     string   // name of the proxy
	Version   string   // version of this program
	Settings  error    // error of the settings; nil if they can be used
	Variables []string // names of environment variables that begin with HOLDFAST_ and have no meaning
	Program   error    // reason why no supervisor could be started; nil if one could
	Policy    error    // reason why the policy of a proxy could not be started; nil if it could
	Env       func(string) string
	// Web returns the reason why no proxy could serve at the web address of the settings. If mustBeFree is set, it also listens
	// there for a moment, which succeeds only if no process serves there.
	Web func(mustBeFree bool) error

	Proc string // directory of /proc; "" on a system without one
	Ptmx string // path of the device that makes PTYs

	// Files returns the number of open files of this process, and its limit.
	Files func() (open, limit uint64, err error)
	// Locked reports whether a socket's lock is held. It is called only if Proc is "".
	Locked func(path string) (bool, error)
	// Listens connects to a socket; ErrNotRunning means that no process listens.
	Listens func(ctx context.Context, path string) error
	// Output runs a program and returns its standard output.
	Output func(ctx context.Context, name string, args ...string) (string, error)
	// Supervisor and Serving ask the two processes; ErrNotRunning means that no process listens.
	// Serving must know whether a supervisor answers, because a proxy that is asked about a
	// missing supervisor would start one.
	Supervisor func(context.Context) (*protocol.ProcessStatus, error)
	Serving    func(ctx context.Context, supervisor bool) (*ProxyStatus, error)
	// Gate asks the gate of the settings for its hosts; nil if no gate is set. It wraps ErrNotAsked if
	// the setting is not valid.
	Gate func(context.Context) ([]Host, error)
	// Agent asks the agent of this host for its state; its result is nil if this host has not joined a gate.
	Agent func(context.Context) (*Agent, error)
	// Bucket tries the bucket of recordings, and returns the kind of request that has failed: list, put, get or delete. It is
	// nil if recordings are not stored in a bucket.
	Bucket func(context.Context) (failed string, err error)
	// Elsewhere finds this user's daemons in other runtime directories.
	Elsewhere func(context.Context) []Place
	// Held returns the note of a keeper that starts no supervisor any more, or nil.
	Held func() *keeperstate.Held
}

// A Place is another runtime directory in which daemons of this user run.
type Place struct {
	Dir     string
	Runs    string // names of the daemons, for people
	Command string // command that lists their sessions
}

// A ProxyStatus is the status that a proxy has reported. If no supervisor runs, only its pid is
// known.
type ProxyStatus struct {
	protocol.ProcessStatus
	Linked bool // the proxy has a link to the supervisor
}

// patience is how long each process or program may take to answer.
const patience = 3 * time.Second

// An inspection holds the facts, and results that several checks use.
type inspection struct {
	Facts
	procs         []process
	supervisor    *protocol.ProcessStatus
	supervisorErr error
	held          *keeperstate.Held // nil if a supervisor answers
	proxy         *ProxyStatus
	proxyErr      error
}

// Run makes all checks and returns their findings.
func Run(ctx context.Context, f Facts) []Finding {
	l := newInspection(ctx, f)
	return slices.Concat(
		l.directories(), l.places(ctx), l.paths(), l.settings(), l.sockets(ctx),
		l.terminals(), l.files(), l.linger(ctx),
		l.supervisorRuns(), l.keeperRuns(), l.cages(), l.recordings(), l.bucket(ctx), l.reports(),
		l.proxyRuns(), l.gate(ctx), l.agent(ctx), l.skew(), l.orphans(),
	)
}

// Unanswered makes only the two checks of the processes. It returns the findings about processes
// that do not answer, with the next step. It takes a few seconds at most.
func Unanswered(ctx context.Context, f Facts) []Finding {
	l := newInspection(ctx, f)
	return slices.DeleteFunc(append(l.supervisorRuns(), l.proxyRuns()...), func(f Finding) bool { return f.Severity != Error })
}

// newInspection asks the processes before it lists them. If a process that did not listen has
// taken its lock meanwhile, it was starting, and it is asked again.
func newInspection(ctx context.Context, f Facts) *inspection {
	l := &inspection{Facts: f}
	l.ask(ctx)
	l.procs = f.processes()
	if l.isStarting(l.supervisorErr, config.SupervisorSocket) || l.isStarting(l.proxyErr, config.APISocket(f.Proxy)) {
		l.ask(ctx)
	}
	if l.supervisorErr != nil {
		l.held = l.Held()
	}
	return l
}

func (l *inspection) ask(ctx context.Context) {
	l.supervisor, l.supervisorErr = within(ctx, l.Supervisor)
	l.proxy, l.proxyErr = within(ctx, func(ctx context.Context) (*ProxyStatus, error) { return l.Serving(ctx, l.supervisorErr == nil) })
}

// isStarting reports whether a process that did not listen holds its lock now.
func (l *inspection) isStarting(err error, socket string) bool {
	held, _, _ := l.holder(l.Dirs.Socket(socket))
	return held && errors.Is(err, ErrNotRunning)
}

func within[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return ask(ctx)
}

// Worst returns the worst severity among findings.
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

// orOK returns the findings of a check, or an OK finding if there are none.
func orOK(found []Finding, check, okText string) []Finding {
	if len(found) > 0 {
		return found
	}
	return []Finding{{Check: check, Severity: OK, Finding: okText}}
}
