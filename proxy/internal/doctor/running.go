package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/protocol"
	"holdfast/shared/config"
)

// supervisorRuns has three answers: it runs, none runs, it does not answer.
// The last is no reason to end it: its sessions may be well.
func (l *look) supervisorRuns() []Finding {
	const check = "supervisor"
	if l.supErr == nil {
		s := l.supervisor
		return orOK(nil, check, fmt.Sprintf("process %d, version %s, runs with %d sessions", s.PID, s.Version, s.Sessions))
	}
	if l.held != nil {
		return []Finding{{check, Error, l.held.Error(),
			fmt.Sprintf("see %s; kill -HUP %d, or supervisor --upgrade with a program that is better", filepath.Join(l.Dirs.State, "supervisor.log"), l.held.PID)}}
	}
	held, pid, _ := l.holder(l.Dirs.Socket(config.SupervisorSocket)) // not known: sockets says so
	if errors.Is(l.supErr, ErrNotRunning) && !held {
		return []Finding{{check, Note, "none runs", "the next command starts one"}}
	}
	switch protocol.CodeOf(l.supErr) {
	case protocol.CodeUnauthorized:
		return []Finding{{check, Error, fmt.Sprintf("it runs, and refuses us: %v", l.supErr), "set secret_file to the secret that it was started with"}}
	case protocol.CodeProtocolMismatch:
		return []Finding{{check, Error, fmt.Sprintf("it runs, and does not understand us: %v", l.supErr),
			"use the proxy of its version; to replace it ends its sessions: supervisor stop --sessions=end"}}
	}
	p := l.processOf(pid)
	what := fmt.Sprintf("%s does not answer, which does not mean that it or its sessions have ended: %v", processName(pid), l.supErr)
	fix := "wait and look again, and see " + filepath.Join(l.Dirs.State, "supervisor.log") + "; leave it alone while its programs matter"
	if p.stopped {
		fix = fmt.Sprintf("it was stopped by a signal; have it go on: kill -CONT %d", pid)
	}
	if p.pid != 0 {
		what += "; " + p.cost()
	}
	return []Finding{{check, Error, what, fix}}
}

// keeperRuns says what becomes of the sessions if the supervisor dies.
func (l *look) keeperRuns() []Finding {
	const check = "keeper"
	s := l.supervisor
	switch {
	case l.supErr != nil:
		return []Finding{{check, OK, "not known without a supervisor", ""}}
	case s.Keeper == nil:
		return []Finding{{check, Warning, "none: if the supervisor dies, its sessions die with it",
			"leave it while its programs matter; a supervisor that is started anew has one"}}
	case s.Keeper.Sessions < s.Sessions:
		return []Finding{{check, Warning, fmt.Sprintf("process %d holds %d sessions of %d; if the supervisor dies, the others die with it", s.Keeper.PID, s.Keeper.Sessions, s.Sessions),
			"see " + filepath.Join(l.Dirs.State, "supervisor.log") + " for why"}}
	case s.Keeper.Last != "":
		return []Finding{{check, Note, fmt.Sprintf("process %d holds all sessions; the supervisor was started %d times, and the one before ended: %s", s.Keeper.PID, s.Keeper.Starts, s.Keeper.Last),
			"if nobody killed it, see supervisor.log and supervisor.crash in " + l.Dirs.State}}
	}
	return orOK(nil, check, fmt.Sprintf("process %d holds all sessions", s.Keeper.PID))
}

// cages says whether sessions have control groups of their own, and which of them outlast
// their session. Nothing fails without them.
func (l *look) cages() []Finding {
	const check = "cages"
	switch {
	case l.supErr != nil:
		return orOK(nil, check, "not known without a supervisor")
	case l.supervisor.Cages == nil:
		return orOK(nil, check, "sessions have no control groups of their own: this system has none, or the supervisor is older")
	}
	c := l.supervisor.Cages
	var found []Finding
	switch {
	case c.Dir == "":
		found = append(found, Finding{check, Note, "sessions have no control groups of their own, and so no limits: " + c.Off,
			"only if limits, freeze or kill --all are wanted: start the supervisor in a cgroup that is delegated to it, by " +
				"systemd-run --user --scope -p Delegate=yes supervisor, or name one by the setting cage"})
	case c.Off != "" || len(c.Controllers) < 3:
		found = append(found, Finding{check, Note, fmt.Sprintf("sessions have control groups in %s, with limits of %s only; %s", c.Dir, cmp.Or(strings.Join(c.Controllers, ", "), "nothing"), cmp.Or(c.Off, "the others are not delegated")),
			"only if these limits are wanted: see the manager of that cgroup (Delegate=yes in its unit; for cpu also in that of user@.service)"})
	}
	if len(c.Left) > 0 {
		found = append(found, Finding{check, Note, fmt.Sprintf("processes run on in %s of sessions that have ended: %s", count(len(c.Left)), strings.Join(c.Left, ", ")),
			"fine for daemons that are meant to run on; their pids are in cgroup.procs there, and proxy kill ID --all ends them while the exit record is kept"})
	}
	return orOK(found, check, fmt.Sprintf("sessions have control groups in %s, with limits of %s", c.Dir, strings.Join(c.Controllers, ", ")))
}

func count(n int) string {
	if n == 1 {
		return "the control group"
	}
	return fmt.Sprintf("%d control groups", n)
}

// reports finds what was written down of screens that were lost.
func (l *look) reports() []Finding {
	const check = "reports"
	found, _ := filepath.Glob(filepath.Join(l.Dirs.State, "core-*.json")) // fails for a bad pattern alone
	if len(found) == 0 {
		return orOK(nil, check, "none")
	}
	slices.Sort(found)
	return []Finding{{check, Warning, fmt.Sprintf("%d, the first %s: a session's screen was lost by a mistake of ours, its program goes on", len(found), found[0]),
		"please report it, with the file if nothing in it is private (it has what the session printed); then remove it"}}
}

func (l *look) processOf(pid int) process {
	for _, p := range l.procs {
		if p.pid == pid {
			return p
		}
	}
	return process{}
}

// proxyRuns has the same three answers, and is less careful: a proxy holds
// nothing that matters.
func (l *look) proxyRuns() []Finding {
	const check = "proxy"
	held, pid, _ := l.holder(l.Dirs.Socket(config.APISocket(l.Proxy)))
	switch {
	case l.proxyErr == nil:
		return orOK(nil, check, fmt.Sprintf("process %d runs", l.proxy.PID))
	case errors.Is(l.proxyErr, ErrNotRunning) && !held:
		return []Finding{{check, Note, "none runs", "the next command starts one"}}
	case errors.Is(l.proxyErr, ErrNotAsked):
		return []Finding{{check, Note, fmt.Sprintf("unknown: %v", l.proxyErr), "mend that first"}}
	case protocol.CodeOf(l.proxyErr) == protocol.CodeUnauthorized:
		return []Finding{{check, Error, fmt.Sprintf("it runs, and refuses us: %v", l.proxyErr), "set secret_file to the secret that it was started with"}}
	}
	fix := "wait and look again; proxy --handoff replaces it"
	if p := l.processOf(pid); p.stopped {
		fix = fmt.Sprintf("it was stopped by a signal; have it go on: kill -CONT %d", pid)
	} else if p.program == "proxy" {
		fix += fmt.Sprintf(", and to end it costs no session: kill %d", pid)
	}
	return []Finding{{check, Error, fmt.Sprintf("%s does not answer: %v", processName(pid), l.proxyErr), fix}}
}

// skew finds processes of different versions, and programs that are newer on
// disk than in memory.
func (l *look) skew() []Finding {
	const check = "skew"
	const handoff = "proxy --handoff"
	const upgrade = "proxy upgrade"
	leave := "leave it; to replace it ends its sessions: supervisor stop --sessions=end"
	if l.supervisor != nil && l.supervisor.Keeper != nil { // those that have one can be replaced in place
		leave = upgrade
	}
	var found []Finding
	add := func(s Severity, fix, format string, args ...any) {
		found = append(found, Finding{check, s, fmt.Sprintf(format, args...), fix})
	}
	if l.proxy != nil && l.proxy.Version != "" && l.proxy.Version != l.Version {
		add(Note, handoff, "the proxy that runs is of version %s, this program of %s", l.proxy.Version, l.Version)
	}
	if l.proxy != nil && l.supervisor != nil {
		agreed, err := protocol.Agree(l.proxy.Protocol, l.supervisor.Protocol)
		switch {
		case l.proxy.Version == "": // it was not asked
		case err != nil:
			add(Error, "install a proxy that speaks the supervisor's, then "+handoff, "%v", err)
		case !l.proxy.Linked:
			add(Error, handoff, "the proxy does not reach the supervisor, which answers us")
		case l.proxy.Version != l.supervisor.Version:
			add(Note, leave, "the proxy is of version %s, the supervisor of %s; they speak protocol %d", l.proxy.Version, l.supervisor.Version, agreed)
		}
	}
	for _, p := range l.procs {
		switch {
		case !p.replaced || p.keeps || l.held != nil && p.pid == l.held.PID: // which an upgrade leaves as it is
		case p.program == "proxy":
			add(Note, handoff, "the program of proxy %d was replaced or removed since it was started", p.pid)
		case p.program == "supervisor":
			add(Note, leave, "the program of supervisor %d was replaced or removed since it was started", p.pid)
		}
	}
	return orOK(found, check, "none")
}
