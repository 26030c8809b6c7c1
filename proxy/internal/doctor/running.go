package doctor

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"holdfast/protocol"
	"holdfast/shared/config"
	"holdfast/shared/plain"
)

// supervisorRuns returns one of three findings: the supervisor runs, none runs, or it does not
// answer. The last one must not advise to end it, because its sessions may be well.
func (l *inspection) supervisorRuns() []Finding {
	const check = "supervisor"
	if l.supervisorErr == nil {
		s := l.supervisor
		return orOK(nil, check, fmt.Sprintf("process %d, version %s, runs with %s", s.PID, s.Version, plain.Count(s.Sessions, "session")))
	}
	if l.held != nil {
		return []Finding{{check, Error, l.held.Error(),
			fmt.Sprintf("see %s; kill -HUP %d, or supervisor --upgrade with a program that is better", filepath.Join(l.Dirs.State, "supervisor.log"), l.held.PID)}}
	}
	held, pid, _ := l.holder(l.Dirs.Socket(config.SupervisorSocket)) // if the holder is unknown, sockets has a finding for that
	if errors.Is(l.supervisorErr, ErrNotRunning) && !held {
		return []Finding{{check, Note, "none runs", "the next command starts one"}}
	}
	switch protocol.CodeOf(l.supervisorErr) {
	case protocol.CodeUnauthorized:
		return []Finding{{check, Error, fmt.Sprintf("it runs, but refuses this program: %v", l.supervisorErr), "set secret_file to the secret that it was started with"}}
	case protocol.CodeProtocolMismatch:
		return []Finding{{check, Error, fmt.Sprintf("it runs, but does not speak this program's protocol: %v", l.supervisorErr),
			"use the proxy of its version; to replace it ends its sessions: supervisor stop --sessions=end"}}
	}
	p := l.processOf(pid)
	if held && !p.isStopped && isClosed(l.supervisorErr) {
		return []Finding{{check, Warning, fmt.Sprintf("%s runs, and has closed the connection of this program: %v", processName(pid), l.supervisorErr),
			"look again in a moment; if many commands wait at once, too many have asked it"}}
	}
	problem := fmt.Sprintf("%s does not answer, which does not mean that it or its sessions have ended: %v", processName(pid), l.supervisorErr)
	fix := "wait and look again, and see " + filepath.Join(l.Dirs.State, "supervisor.log") + "; leave it alone while its programs matter"
	if p.isStopped {
		fix = fmt.Sprintf("it was stopped by a signal; let it continue: kill -CONT %d", pid)
	}
	if p.pid != 0 {
		problem += "; " + p.cost()
	}
	return []Finding{{check, Error, problem, fix}}
}

// isClosed reports whether the process at the other end has closed the connection, and so was not silent. A supervisor
// closes a connection at once if it has as many as it may have.
func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// keeperRuns returns whether a keeper would keep the sessions if the supervisor dies.
func (l *inspection) keeperRuns() []Finding {
	const check = "keeper"
	s := l.supervisor
	switch {
	case l.supervisorErr != nil:
		return []Finding{{check, OK, "not known without a supervisor", ""}}
	case s.Keeper == nil:
		return []Finding{{check, Warning, "none: if the supervisor dies, its sessions die with it",
			"leave it running while its programs matter; the next supervisor will have a keeper"}}
	case l.processOf(s.Keeper.PID).isStopped:
		return []Finding{{check, Error, fmt.Sprintf("process %d was stopped by a signal; if the supervisor dies, nothing starts another one", s.Keeper.PID),
			fmt.Sprintf("let it continue: kill -CONT %d", s.Keeper.PID)}}
	case s.Keeper.Sessions < s.Sessions:
		return []Finding{{check, Warning, fmt.Sprintf("process %d holds only %d of %s; if the supervisor dies, the others die with it", s.Keeper.PID, s.Keeper.Sessions, plain.Count(s.Sessions, "session")),
			"see " + filepath.Join(l.Dirs.State, "supervisor.log") + " for the reason"}}
	case s.Keeper.Last != "":
		return []Finding{{check, Note, fmt.Sprintf("process %d holds all sessions; the supervisor was started %d times, and the one before ended: %s", s.Keeper.PID, s.Keeper.Starts, s.Keeper.Last),
			"if it was not killed on purpose, see supervisor.log and supervisor.crash in " + l.Dirs.State}}
	}
	return orOK(nil, check, fmt.Sprintf("process %d holds all sessions", s.Keeper.PID))
}

// cages returns whether sessions have control groups of their own, and which of these groups
// outlast their sessions. Sessions run without them, too.
func (l *inspection) cages() []Finding {
	const check = "cages"
	switch {
	case l.supervisorErr != nil:
		return orOK(nil, check, "not known without a supervisor")
	case l.supervisor.Cages == nil:
		return orOK(nil, check, "sessions have no control groups of their own: this system has none")
	}
	c := l.supervisor.Cages
	var found []Finding
	switch {
	case c.Dir == "":
		found = append(found, Finding{check, Note, "sessions have no control groups of their own, and so no limits: " + c.Off,
			"only if limits, freeze or kill --all are wanted: when no session runs, stop the supervisor, and start it in a cgroup that is " +
				"delegated to it, by systemd-run --user --scope -p Delegate=yes supervisor, or name one by the setting cage"})
	case c.Off != "" || len(c.Controllers) < 3:
		found = append(found, Finding{check, Note, fmt.Sprintf("sessions have control groups in %s, with limits of %s only; %s", c.Dir, cmp.Or(strings.Join(c.Controllers, ", "), "none"), cmp.Or(c.Off, "the others are not delegated")),
			"only if these limits are wanted: see the manager of that cgroup (Delegate=yes in its unit; for cpu also in that of user@.service)"})
	}
	if len(c.Left) > 0 {
		found = append(found, Finding{check, Note, fmt.Sprintf("processes run on in %s of sessions that have ended: %s", groupCount(len(c.Left)), strings.Join(c.Left, ", ")),
			"fine for daemons that are meant to run on; their pids are in cgroup.procs there, and proxy kill ID --all ends them while the exit record is kept"})
	}
	return orOK(found, check, fmt.Sprintf("sessions have control groups in %s, with limits of %s", c.Dir, strings.Join(c.Controllers, ", ")))
}

func groupCount(n int) string {
	if n == 1 {
		return "the control group"
	}
	return fmt.Sprintf("%d control groups", n)
}

// recordings returns whether the supervisor can store sessions on disk, and could list them after a loss of power.
func (l *inspection) recordings() []Finding {
	const check = "recordings"
	var all []Finding
	if names := undescribed(l.Dirs.Recordings()); len(names) > 0 {
		all = append(all, Finding{check, Warning, fmt.Sprintf("stored sessions without a readable meta.json, so that their commands and labels are lost: %s", strings.Join(names, ", ")),
			"check the disk. Those that do not run are listed as lost, and show their output; if it is not needed, proxy forget them"})
	}
	switch {
	case l.supervisorErr != nil:
		return orOK(all, check, "not known without a supervisor")
	case l.supervisor.Recording == nil:
		return orOK(all, check, "no session waits for the disk")
	}
	r := l.supervisor.Recording
	if r.Sealed > 0 {
		all = append(all, Finding{check, Warning, fmt.Sprintf("lost sessions that are sealed and cannot be read: %d; their files stay", r.Sealed),
			"let durable_key name their key, then supervisor --upgrade; or proxy forget them. Their screens say more"})
	}
	if r.Failing == 0 {
		return all
	}
	return append(all, Finding{check, Warning, fmt.Sprintf("sessions that cannot be stored on disk: %d; they run on, but would not outlive the machine: %s", r.Failing, r.Error),
		"make room, or let the user write to " + l.Dirs.Recordings() + "; check durable_key if the error names it; the supervisor tries again every 10 s. Or store less: durable_total_bytes, durable"})
}

// undescribed returns the names of the stored sessions that have output but no meta.json which can be read. Their directories
// are named ID@INSTANCE, those of forgotten sessions end with "~", and the names of files of output begin with a digit.
func undescribed(store string) (names []string) {
	lives, _ := fs.Glob(os.DirFS(store), "*@*[^~]") // fails only for a malformed pattern
	for _, life := range lives {
		dir := filepath.Join(store, life)
		if isMeta(filepath.Join(dir, "meta.json")) {
			continue
		}
		if output, _ := fs.Glob(os.DirFS(dir), "[0-9]*"); len(output) > 0 { // otherwise it has not begun, or was forgotten just now
			names = append(names, life)
		}
	}
	return names
}

// maxMeta is more bytes than a supervisor writes to meta.json.
const maxMeta = 64 << 20

// isMeta reports whether a file is JSON with a version.
func isMeta(path string) bool {
	var m struct {
		Version int `json:"version"`
	}
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxMeta {
		return false
	}
	data, err := os.ReadFile(path)
	return err == nil && json.Unmarshal(data, &m) == nil && m.Version > 0
}

// reports finds the reports about screens that were lost.
func (l *inspection) reports() []Finding {
	const check = "reports"
	found, _ := filepath.Glob(filepath.Join(l.Dirs.State, "core-*.json")) // fails only for an invalid pattern
	if len(found) == 0 {
		return orOK(nil, check, "none")
	}
	slices.Sort(found)
	return []Finding{{check, Warning, fmt.Sprintf("%d, the first %s: a session's screen was lost by a defect in Holdfast; its program continues", len(found), found[0]),
		"please report it, with the file unless it contains private data (it has the output of the session); then remove it"}}
}

func (l *inspection) processOf(pid int) process {
	for _, p := range l.procs {
		if p.pid == pid {
			return p
		}
	}
	return process{}
}

// proxyRuns returns the same three findings for the proxy. Its advice may end the proxy, because
// a proxy holds no sessions.
func (l *inspection) proxyRuns() []Finding {
	const check = "proxy"
	held, pid, _ := l.holder(l.Dirs.Socket(config.APISocket(l.Proxy)))
	switch {
	case l.proxyErr == nil:
		return orOK(nil, check, fmt.Sprintf("process %d runs", l.proxy.PID))
	case errors.Is(l.proxyErr, ErrNotRunning) && !held:
		return []Finding{{check, Note, "none runs", "the next command starts one"}}
	case errors.Is(l.proxyErr, ErrNotAsked):
		return []Finding{{check, Note, fmt.Sprintf("unknown: %v", l.proxyErr), "repair that first"}}
	case protocol.CodeOf(l.proxyErr) == protocol.CodeUnauthorized:
		return []Finding{{check, Error, fmt.Sprintf("it runs, but refuses this program: %v", l.proxyErr), "set secret_file to the secret that it was started with"}}
	case protocol.CodeOf(l.proxyErr) == protocol.CodePolicyUnavailable:
		return []Finding{{check, Error, fmt.Sprintf("%s runs, but its policy fails, so that it refuses all requests: %v", processName(pid), l.proxyErr),
			fmt.Sprintf("see %s for the output of the policy; to serve without it: HOLDFAST_POLICY=none proxy --handoff", filepath.Join(l.Dirs.State, l.Proxy+".log"))}}
	}
	fix := "wait and look again; proxy --handoff replaces it"
	if p := l.processOf(pid); p.isStopped {
		fix = fmt.Sprintf("it was stopped by a signal; let it continue: kill -CONT %d", pid)
	} else if p.program == "proxy" {
		fix += fmt.Sprintf(", and to end it costs no session: kill %d", pid)
	}
	return []Finding{{check, Error, fmt.Sprintf("%s does not answer: %v", processName(pid), l.proxyErr), fix}}
}

// skew finds processes of different versions, and processes with a newer program on disk.
func (l *inspection) skew() []Finding {
	const check = "skew"
	const handoff = "proxy --handoff"
	const upgrade = "proxy upgrade"
	leave := "leave it; to replace it ends its sessions: supervisor stop --sessions=end"
	if l.supervisor != nil && l.supervisor.Keeper != nil { // a supervisor with a keeper can be replaced in place
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
		case l.proxy.Version == "": // the proxy was not asked
		case err != nil:
			add(Error, "install a proxy that speaks the supervisor's, then "+handoff, "%v", err)
		case !l.proxy.Linked:
			add(Error, handoff, "the proxy does not reach the supervisor, although the supervisor answers")
		case l.proxy.Version != l.supervisor.Version:
			add(Note, leave, "the proxy is of version %s, the supervisor of %s; they speak protocol %d", l.proxy.Version, l.supervisor.Version, agreed)
		}
	}
	for _, p := range l.procs {
		switch {
		case !p.isReplaced || p.isKeeper || l.held != nil && p.pid == l.held.PID: // an upgrade does not replace a keeper
		case p.program == "proxy":
			add(Note, handoff, "the program of proxy %d was replaced or removed since it was started", p.pid)
		case p.program == "supervisor":
			add(Note, leave, "the program of supervisor %d was replaced or removed since it was started", p.pid)
		}
	}
	return orOK(found, check, "none")
}
