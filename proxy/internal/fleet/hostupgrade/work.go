package hostupgrade

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/gate"
)

// work does an Upgrade, and returns its result.
func (u *Upgrader) work(ctx context.Context, j *job, from string) gate.Upgraded {
	var result gate.Upgraded
	fail := func(err error) gate.Upgraded {
		result.State, result.Error = gate.UpgradeFailed, err.Error()
		return result
	}
	var watchErr error
	if j.request.Action == gate.UpgradeApply || j.request.Action == gate.UpgradeReturn { // before the look, so that the end of each session that it shows is noticed
		watching, cancel := context.WithCancel(ctx)
		defer cancel()
		late := time.AfterFunc(answerLimit, cancel)
		watchErr = u.o.Watch(watching, j.endSession)
		if !late.Stop() && watchErr == nil {
			watchErr = context.DeadlineExceeded
		}
	}
	before, err := u.lookAgain(ctx)
	if errors.Is(err, ErrIdle) {
		result.State = gate.UpgradeIdle
		return result
	}
	if err != nil {
		return fail(err)
	}
	if watchErr != nil { // the work is still possible; a session that ends and is forgotten meanwhile will count as missing
		j.step("the ends of sessions are not noticed: %v", watchErr)
	}
	result.Supervisor, result.Proxy = before.Supervisor.Version, before.Proxy.Version
	limit := time.Duration(j.request.LimitMS) * time.Millisecond
	if j.request.Action == gate.UpgradeReturn { // without the wanted programs, which may be gone
		return u.comeBack(ctx, j, before.Running, limit, nil)
	}
	dir := from
	if isURL(from) {
		dir, err = u.fetch(ctx, j, from, j.request.SHA256, before.Running)
	}
	var target sums
	if err == nil {
		target, err = sumsOf(dir)
	}
	if err == nil {
		result.Sum = target.text()
		result.Target, err = u.version(ctx, dir)
	}
	if err != nil {
		return fail(err)
	}
	isAgent, err := u.isAgent(ctx, target.proxy)
	if err != nil {
		return fail(err)
	}
	switch {
	case before.sums == target && isAgent:
		result.State = gate.UpgradeCurrent
		return result
	case j.request.Action == gate.UpgradeTry:
		trying, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		if _, err := u.run(trying, j, dir, "upgrade", "--json", "--dry-run"); err != nil {
			return fail(err)
		}
		fallthrough
	case j.request.Action == gate.UpgradeCheck:
		result.State = gate.UpgradeReady
		return result
	}
	return u.apply(ctx, j, dir, target, before, limit)
}

// apply replaces the programs that run by those in dir. If that fails, it returns to the programs from
// before.
func (u *Upgrader) apply(ctx context.Context, j *job, dir string, target sums, before state, limit time.Duration) gate.Upgraded {
	if err := u.keep(j.request.ID, before); err != nil {
		return gate.Upgraded{State: gate.UpgradeFailed, Supervisor: before.Supervisor.Version, Proxy: before.Proxy.Version, Error: "nothing has changed: the programs that run cannot be copied: " + err.Error()}
	}
	running, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var err error
	var done outcome
	if before.sums != target { // otherwise only the agent is another program
		done, err = u.run(running, j, dir, "upgrade", "--json")
	}
	var now state
	if err == nil {
		now, err = u.awaitHealthy(running, j, target, before.Sessions)
	}
	if most := j.request.MaxStallMS; err == nil && most > 0 && done.stallMS > most {
		err = fmt.Errorf("a client was paused for %.1f ms, and at most %.1f ms are allowed", done.stallMS, most)
	}
	if err == nil { // last, because this process has no say any more when it has a successor
		err = u.replaceAgent(running, j, dir, target.proxy)
	}
	if err == nil {
		return gate.Upgraded{
			State: gate.UpgradeDone, Supervisor: now.Supervisor.Version, Proxy: now.Proxy.Version, Target: now.Proxy.Version, Sum: target.text(),
			Sessions: len(before.Sessions), Clients: done.clients, Closed: done.closed, StallMS: done.stallMS,
		}
	}
	j.step("failed: %v", err)
	return u.comeBack(ctx, j, before.Running, limit, err)
}

// comeBack replaces the programs that run by the copies of those from before. If the programs from before
// run already, it replaces none. cause is the reason, or nil if a client has asked for the return.
func (u *Upgrader) comeBack(ctx context.Context, j *job, before Running, limit time.Duration, cause error) gate.Upgraded {
	ctx, cancel := context.WithTimeout(ctx, max(limit, returnLimit))
	defer cancel()
	result := gate.Upgraded{State: gate.UpgradeReturned}
	if cause != nil {
		result.Error = cause.Error()
	}
	if errors.Is(cause, errLate) {
		_ = sleep(ctx, u.o.Settle)
	}
	isSame := false
	old, err := u.kept(j.request.ID)
	if cause == nil && errors.Is(err, errNotUpgraded) { // the apply has not arrived, so the programs from before still run, or another rollout has followed
		result.Error = errNotUpgraded.Error()
		result.Supervisor, result.Proxy = before.Supervisor.Version, before.Proxy.Version
		return result
	}
	if err == nil {
		now, lookErr := u.look(ctx)
		isSame = lookErr == nil && now.sums == old
	}
	if err == nil && !isSame {
		j.step("returning to the programs from before")
		var done outcome
		done, err = u.run(ctx, j, u.o.Dir, "upgrade") // without --json, which the programs from before may not know
		result.StallMS = done.stallMS
	}
	var now state
	if err == nil {
		now, err = u.awaitHealthy(ctx, j, old, before.Sessions)
	}
	if err == nil {
		err = u.replaceAgent(ctx, j, u.o.Dir, old.proxy)
	}
	if err != nil {
		result.State = gate.UpgradeFailed
		result.Error = strings.TrimPrefix(result.Error+"; the return has failed: "+err.Error(), "; ")
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), versionTime)
		defer cancel()
		now, _ = u.look(last) // if it fails, the versions are unknown
	}
	result.Supervisor, result.Proxy, result.Sessions = now.Supervisor.Version, now.Proxy.Version, len(before.Sessions)
	return result
}

// isAgent reports whether the agent of this host runs the program with a sum.
func (u *Upgrader) isAgent(ctx context.Context, wanted sum) (bool, error) {
	agent, err := u.o.Agent(ctx)
	if err != nil {
		return false, fmt.Errorf("the agent: %w", err)
	}
	path, err := programOf(agent.PID)
	if err != nil {
		return false, err
	}
	now, err := sumOf(path)
	return now == wanted, err
}

// replaceAgent lets the program proxy in dir, which has the sum wanted, take over from the agent of this host. If the
// agent runs that program already, it changes nothing.
func (u *Upgrader) replaceAgent(ctx context.Context, j *job, dir string, wanted sum) error {
	isAgent, err := u.isAgent(ctx, wanted)
	if err != nil || isAgent {
		return err
	}
	if _, err := u.run(ctx, j, dir, "join", "--handoff"); err != nil {
		return err
	}
	isAgent, err = u.isAgent(ctx, wanted)
	if err == nil && !isAgent {
		err = errors.New("the agent runs another program after its handoff")
	}
	return err
}

// A state has the processes and sessions of this host, with the sums of the programs.
type state struct {
	Running
	sums
}

func (u *Upgrader) look(ctx context.Context) (state, error) {
	running, err := u.o.Look(ctx)
	if err != nil {
		return state{}, err
	}
	s := state{Running: running}
	for _, p := range []struct {
		sum *sum
		pid int
	}{{&s.supervisor, running.Supervisor.PID}, {&s.proxy, running.Proxy.PID}} {
		path, err := programOf(p.pid)
		if err == nil {
			*p.sum, err = sumOf(path)
		}
		if err != nil {
			return state{}, fmt.Errorf("program of the process %d: %w", p.pid, err)
		}
	}
	return s, nil
}

// lookAgain is like look, but if look fails, it tries again for lookLimit, because a process or the link between both may
// just be replaced, for example by an upgrade that an agent has begun which has died.
func (u *Upgrader) lookAgain(ctx context.Context) (s state, err error) {
	for begin := time.Now(); ; {
		looking, cancel := context.WithTimeout(ctx, answerLimit)
		s, err = u.look(looking)
		cancel()
		if err == nil || errors.Is(err, ErrIdle) || time.Since(begin) > lookLimit || sleep(ctx, lookPause) != nil {
			return s, err
		}
	}
}

// awaitHealthy returns when the wanted programs run and have all sessions of before that have not ended during the
// work. If ctx ends earlier, the error tells which condition is not met.
//
// A session that is absent and whose end was not reported counts as missing, also if events were missed. It may have
// ended, and a return is then not necessary. But a return ends no session, while a rollout that accepts the absence
// would bring programs that lose sessions to all other hosts.
func (u *Upgrader) awaitHealthy(ctx context.Context, j *job, wanted sums, before []protocol.SessionInfo) (state, error) {
	for {
		now, err := u.look(ctx)
		switch {
		case err != nil:
			err = fmt.Errorf("the host does not answer: %w", err)
		case now.sums != wanted:
			err = fmt.Errorf("other programs run: supervisor %s, proxy %s", now.Supervisor.Version, now.Proxy.Version)
		default:
			err = missing(j.living(before), now.Sessions)
		}
		if err == nil {
			return now, nil
		}
		if sleep(ctx, lookPause) != nil {
			return now, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// missing returns an error if a session of before is not there, or is another instance, or is lost. A
// session that has ended with an exit record is there.
func missing(before, now []protocol.SessionInfo) error {
	byID := map[protocol.SessionID]protocol.SessionInfo{}
	for _, s := range now {
		byID[s.ID] = s
	}
	for _, s := range before {
		n, ok := byID[s.ID]
		switch {
		case s.State == protocol.StateExited || s.State == protocol.StateLost: // its record may be deleted at any time
		case !ok:
			return fmt.Errorf("the session %s is missing", s.ID)
		case n.Instance != s.Instance:
			return fmt.Errorf("the session %s is another instance", s.ID)
		case n.State == protocol.StateLost:
			return fmt.Errorf("the session %s is lost", s.ID)
		}
	}
	return nil
}

// An outcome is the report of "proxy upgrade".
type outcome struct {
	stallMS         float64 // the longest pause
	clients, closed int
}

// errLate tells that a command was killed, or not started any more.
var errLate = errors.New("has not ended in time")

// run runs a command of the program proxy in dir until it ends or ctx does. The program writes into files,
// because it must not end with this process.
func (u *Upgrader) run(ctx context.Context, j *job, dir, command string, args ...string) (done outcome, err error) {
	if err := os.MkdirAll(u.o.Dir, 0o700); err != nil {
		return done, err
	}
	out, err := os.Create(filepath.Join(u.o.Dir, "upgrade.out"))
	if err != nil {
		return done, err
	}
	defer func() { _ = out.Close() }()
	errs, err := os.Create(filepath.Join(u.o.Dir, "upgrade.err"))
	if err != nil {
		return done, err
	}
	defer func() { _ = errs.Close() }()
	cmd, err := u.o.Command(ctx, dir, command, args...)
	if err != nil {
		return done, err
	}
	cmd.Stdout, cmd.Stderr = out, errs
	late := fmt.Errorf("%s %s %w", filepath.Join(dir, proxyName), command, errLate)
	if err := cmd.Start(); err != nil {
		if ctx.Err() != nil { // the time was over before
			err = late
		}
		return done, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	at := 0
	for isOver := false; !isOver; {
		select {
		case err = <-ended:
			isOver = true
		case <-time.After(lookPause / 4):
		}
		at = j.read(out.Name(), at, &done)
	}
	switch {
	case ctx.Err() != nil:
		return done, late
	case err != nil:
		text, _ := os.ReadFile(errs.Name())
		return done, errors.New(cmp.Or(cut(string(text)), err.Error()))
	}
	return done, nil
}

// maxOutput is how much of the output of a command is read.
const maxOutput = 1 << 20

// read reads the complete lines of a file from an offset, and returns the offset after them.
func (j *job) read(path string, at int, done *outcome) int {
	b, err := os.ReadFile(path)
	if err != nil || len(b) <= at || at > maxOutput {
		return at
	}
	for line := range bytes.Lines(b[at:]) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		at += len(line)
		if text := done.take(line); text != "" {
			j.step("%s", text)
		}
	}
	return at
}

// take takes a line of a command, in JSON or for people, and returns its text for people, or "".
func (done *outcome) take(line []byte) string {
	var m struct {
		Text        string  `json:"text"`
		Step        string  `json:"step"`
		Connections int     `json:"connections"`
		Closed      int     `json:"closed"`
		StallMS     float64 `json:"stall_ms"`
		StallMaxMS  float64 `json:"stall_max_ms"`
		Version     string  `json:"version"`
		Error       string  `json:"error"`
	}
	if json.Unmarshal(line, &m) != nil {
		return string(line)
	}
	done.stallMS = max(done.stallMS, m.StallMS, m.StallMaxMS)
	done.clients, done.closed = done.clients+m.Connections, done.closed+m.Closed
	switch {
	case m.Text != "":
		return m.Text
	case m.Error != "":
		return "proxy: " + m.Error
	case m.Step == "moved":
		return fmt.Sprintf("proxy: moved %d connections, with a pause of %.1f ms at most", m.Connections, m.StallMaxMS)
	case m.Step == "serving":
		return "proxy: " + cmp.Or(m.Version, "dev") + " serves"
	}
	return ""
}

// version returns the release of the proxy in dir, for people.
func (u *Upgrader) version(ctx context.Context, dir string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "proxy"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", filepath.Join(dir, "proxy"), err)
	}
	words := strings.Fields(string(out[:min(len(out), gate.MaxUpgradeText)]))
	if len(words) == 0 {
		return "", fmt.Errorf("%s --version prints nothing", filepath.Join(dir, "proxy"))
	}
	return words[len(words)-1], nil
}
