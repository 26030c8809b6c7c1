package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/link"
	"holdfast/shared/config"
	mark "holdfast/shared/keep"
	"holdfast/shared/logging"
	"holdfast/shared/machine"
	"holdfast/shared/socket"
	"holdfast/shared/version"
	"holdfast/supervisor/internal/cage"
	"holdfast/supervisor/internal/keeper/wire"
	"holdfast/supervisor/internal/linkserver"
	"holdfast/supervisor/internal/reexec"
	"holdfast/supervisor/internal/session"
	"holdfast/supervisor/internal/vault"
)

// A replacer has this process become another program: the next supervisor, or the
// keeper that has died.
type replacer struct {
	before   *before
	self     *self
	sessions *session.Table
	cages    *cage.Root
	server   *linkserver.Server
	log      zerolog.Logger

	one      sync.Mutex // at a time
	restedAt time.Time
}

// Upgrade implements linkserver.Upgrader.
func (r *replacer) Upgrade(ctx context.Context, m *link.Upgrade) (string, int, error) {
	if !r.one.TryLock() {
		return "", 0, session.Upgrading()
	}
	defer r.one.Unlock()
	log := r.log.With().Str(logging.Program, m.Program).Bool("dry_run", m.DryRun).Logger()
	log.Info().Msg("upgrade asked for")
	said, sessions, err := r.upgrade(ctx, m)
	if err != nil {
		log.Warn().Err(err).Msg("upgrade refused; all goes on")
		return "", 0, &protocol.Error{Code: protocol.CodeUpgradeRefused, Message: err.Error()}
	}
	return said, sessions, nil
}

// upgrade returns without an error only from a dry run.
func (r *replacer) upgrade(ctx context.Context, m *link.Upgrade) (said string, sessions int, err error) {
	program, err := reexec.Open(m.Program)
	if err != nil {
		return "", 0, err
	}
	defer program.Close()
	r.sessions.Prepare()
	if said, sessions, err = r.try(ctx, program); err != nil || m.DryRun {
		return said, sessions, err
	}
	if m.Keeper && r.before.vault != nil {
		if err := r.upgradeKeeper(ctx, m.Program); err != nil {
			return "", 0, err
		}
	}
	return "", 0, r.rest(func(f *session.Frozen) error { return r.become(program, f) })
}

// upgradeKeeper has the keeper become the program, which it tries itself.
func (r *replacer) upgradeKeeper(ctx context.Context, path string) error {
	program, err := os.Open(path)
	if err != nil {
		return err
	}
	defer program.Close()
	ctx, cancel := context.WithTimeout(ctx, replaceTime)
	defer cancel()
	return r.before.vault.Exec(ctx, append([]string{path}, keeperArgs()...), program)
}

// try runs the program on what it would be left, as far as that can be looked at.
func (r *replacer) try(ctx context.Context, program *reexec.Program) (said string, sessions int, err error) {
	records, files, err := r.sessions.Records()
	defer func() {
		for _, f := range files {
			_ = f.Close() // only duplicates
		}
	}()
	if err != nil {
		return "", 0, err
	}
	b := r.builder()
	for _, rec := range records {
		b.addRecord(rec)
	}
	data, err := b.encode()
	if err != nil {
		return "", 0, err
	}
	said, err = program.Try(ctx, data, files, []string{"run"})
	return said, len(records), err
}

func (r *replacer) builder() *builder {
	kept := r.before.kept
	return &builder{manifest: manifest{
		Version: manifestVersion, Program: version.String(), Table: r.sessions.State(), Kept: kept,
	}}
}

// rest has f do what ends this program, while nothing else goes on. If it returns,
// all goes on.
func (r *replacer) rest(f func(*session.Frozen) error) error {
	r.restedAt = time.Now()
	resume := r.server.Quiesce()
	defer resume()
	frozen, err := r.sessions.Freeze()
	if err != nil {
		return err
	}
	defer frozen.Thaw()
	return f(frozen)
}

func (r *replacer) become(program *reexec.Program, frozen *session.Frozen) error {
	b := r.builder()
	b.At = r.restedAt
	own, free, err := r.self.record()
	if err != nil {
		return err
	}
	defer free()
	b.addRecord(own)
	for _, rec := range frozen.Records {
		b.addRecord(rec)
	}
	if r.before.claim != nil {
		b.addRecord(*r.before.claim)
	}
	if v := r.before.vault; v != nil {
		// The keeper ends a program that does not serve. A keeper of an older release does not
		// know the word, and waits for ever.
		_ = inKeeperTime(v.Leave)
		defer r.before.ready(r.log) // if all goes on
		ctx, cancel := context.WithTimeout(context.Background(), keeperTime)
		defer cancel()
		fd, err := v.Detach(ctx)
		if err != nil {
			return err
		}
		defer v.Attach()
		b.Keeper = &b.add(fd)[0]
	}
	data, err := b.encode()
	if err != nil {
		return err
	}
	r.log.Info().Dur(logging.Took, time.Since(r.restedAt)).Msg("all is at rest; the new program takes over")
	return program.Exec(data, b.fds, os.Args[1:])
}

// watchKeeper takes the keeper's place when it has died. Only the parent of the
// children learns how they end, so it is this process that becomes the keeper, and
// starts another supervisor.
func (r *replacer) watchKeeper(ctx context.Context) {
	v := r.before.vault
	if v == nil {
		return
	}
	select {
	case <-v.Lost():
	case <-ctx.Done():
		return
	}
	for pause := time.Millisecond; ctx.Err() == nil; pause = min(2*pause, time.Minute) {
		r.one.Lock()
		r.log.Warn().Msg("the keeper has died; this process takes its place")
		err := r.rest(r.becomeKeeper)
		r.one.Unlock()
		r.log.Error().Err(err).Msg("nobody keeps the sessions if this process dies")
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func (r *replacer) becomeKeeper(frozen *session.Frozen) error {
	r.self.Lost++
	r.self.vault = nil
	r.self.keep(r.log)
	own, free, err := r.self.record()
	if err != nil {
		return err
	}
	defer free()
	records := append([]vault.Record{own}, frozen.Records...)
	if r.before.claim != nil {
		records = append(records, *r.before.claim)
	}
	var fds []int
	for _, rec := range records {
		fds = append(fds, rec.FDs...)
	}
	data, err := vault.Handover(records, nil, r.before.kept.Starts)
	if err != nil {
		return err
	}
	memory, err := machine.MemoryFile("keeper")
	if err != nil {
		return err
	}
	defer memory.Close()
	if _, err := memory.WriteAt(data, 0); err != nil {
		return err
	}
	path, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := reexec.OpenSelf(path)
	if err != nil {
		return err
	}
	defer program.Close()
	return program.ExecAs(wire.EnvResume, memory, fds, keeperArgs())
}

// keeperArgs are those of the keeper by which this supervisor was started.
func keeperArgs() []string {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		return os.Args[2:]
	}
	return os.Args[1:]
}

func (r *replacer) status(st *protocol.ProcessStatus) {
	st.Upgrades = r.self.Upgrades
	st.Cages = r.cages.Status()
	v := r.before.vault
	if v == nil {
		return
	}
	select {
	case <-v.Lost():
		return
	default:
	}
	st.Keeper = &protocol.KeeperStatus{
		PID: os.Getppid(), Sessions: r.sessions.Kept(), Starts: r.before.kept.Starts, Last: r.before.kept.Last, Lost: r.self.Lost,
	}
}

// tryOut is all that a program on trial does; done is false for another one.
func tryOut() (done bool, err error) {
	data, fds, ok, err := reexec.OnTrial()
	if !ok || err != nil {
		return ok, err
	}
	fault("trial")
	_ = machine.Background() // clients go first
	m, err := readManifest(data, len(fds))
	if err != nil {
		return true, err
	}
	var sessions []vault.Record
	for _, r := range m.records(fds) {
		if session.IsSession(r) {
			sessions = append(sessions, r)
		}
	}
	if err := session.Try(sessions); err != nil {
		return true, err
	}
	return true, reexec.Passed(version.String())
}

// replaceTime is how long askUpgrade waits for the new program to answer.
const replaceTime = 15 * time.Second

// answerTime is how long the first answer of a supervisor may take that has been started.
const answerTime = 5 * time.Second

// An upgrader is the command `supervisor --upgrade`.
type upgrader struct {
	dirs   config.Dirs
	secret string
	exe    string
	began  time.Time
	limit  time.Duration // until a supervisor answers: one is ended that does not serve, and the next one starts
}

// askUpgrade has the running supervisor become this program. If none answers, and a
// keeper lives, the keeper is told to start this program.
func askUpgrade(ctx context.Context, o *options, dryRun, keeper bool) error {
	dirs, cfg, err := load(o)
	if err != nil {
		return err
	}
	u := upgrader{dirs: dirs, began: time.Now(), limit: 2*cfg.StartTimeout + answerTime}
	if u.secret, err = cfg.Secret(); err != nil {
		return err
	}
	if u.exe, err = os.Executable(); err != nil {
		return err
	}
	if held := mark.Look(dirs.Runtime); held != nil && !dryRun {
		fmt.Printf("%d supervisors died within a minute and none was started any more\n", held.Deaths)
		if done, err := u.choose(ctx, held); done || err != nil {
			return err
		}
	}
	conn, err := dial(ctx, dirs, u.secret, "supervisor --upgrade")
	if err != nil && !dryRun && !refusedUs(err) {
		if pid, _ := mark.PID(dirs.Runtime); pid != 0 {
			fmt.Printf("no supervisor answers: %v\n", err)
			if done, err := u.choose(ctx, nil); done || err != nil {
				return err
			}
			conn, err = dial(ctx, dirs, u.secret, "supervisor --upgrade")
		}
	}
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	old, err := u.status(ctx)
	if err != nil {
		return err
	}
	reply, err := conn.Call(ctx, link.Upgrade{Program: u.exe, DryRun: dryRun, Keeper: keeper})
	var refused *protocol.Error
	if errors.As(err, &refused) {
		if refused.Code == protocol.CodeUnsupported {
			return protocol.Errorf(protocol.CodeUnsupported, fmt.Sprintf("the supervisor that runs, %s, is too old to become another program; it goes on", old.Version))
		}
		return err
	}
	if tried, ok := reply.(*link.Upgraded); ok && err == nil {
		fmt.Printf("%s could go on with %d sessions of %s\n", tried.Version, tried.Sessions, old.Version)
		return nil
	}
	return u.await(ctx, old)
}

// refusedUs reports whether a supervisor answered, and would not have us.
func refusedUs(err error) bool {
	code := protocol.CodeOf(err)
	return code != protocol.CodeSupervisorUnreachable && code != protocol.CodeInternal
}

// await returns when a supervisor serves again: without an error only if that is this
// program, in the process that was asked, and none has died.
func (u *upgrader) await(ctx context.Context, old protocol.ProcessStatus) error {
	ctx, cancel := context.WithTimeout(ctx, u.limit)
	defer cancel()
	for {
		now, err := u.status(ctx)
		switch {
		case err != nil:
		case died(old, now):
			return protocol.Errorf(protocol.CodeUpgradeRefused, fmt.Sprintf("%s died when it had taken over: %s; %s, process %d, goes on with %d sessions",
				version.String(), u.why(now), now.Version, now.PID, now.Sessions))
		case now.Upgrades == old.Upgrades:
			return protocol.Errorf(protocol.CodeUpgradeRefused, fmt.Sprintf("the supervisor did not become %s, and supervisor.log says why; %s, process %d, goes on with %d sessions",
				version.String(), now.Version, now.PID, now.Sessions))
		default:
			fmt.Printf("%s became %s, %d sessions go on, pid %d, after %v\n", old.Version, now.Version, now.Sessions, now.PID,
				time.Since(u.began).Round(time.Millisecond))
			return nil
		}
		if held := mark.Look(u.dirs.Runtime); held != nil {
			return protocol.Errorf(protocol.CodeSupervisorUnreachable, version.String()+" died when it had taken over: "+held.Error())
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return u.silent(err)
		}
	}
}

// died reports whether a supervisor has died between two answers.
func died(old, now protocol.ProcessStatus) bool {
	if old.Keeper != nil && now.Keeper != nil && old.Keeper.Lost == now.Keeper.Lost {
		return now.Keeper.Starts != old.Keeper.Starts
	}
	return now.PID != old.PID
}

// why says how the supervisor before the one that answers has ended.
func (u *upgrader) why(now protocol.ProcessStatus) string {
	how := "how is not known"
	if now.Keeper != nil && now.Keeper.Last != "" {
		how = now.Keeper.Last
	}
	if last := u.lastWords(); last != "" {
		how += ", " + last
	}
	return how
}

// lastWords are how the file of crashes says that a program ended since the command began.
func (u *upgrader) lastWords() (words string) {
	path := filepath.Join(u.dirs.State, "supervisor.crash")
	if info, err := os.Stat(path); err != nil || info.ModTime().Before(u.began) {
		return ""
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			words = strings.TrimSpace(line)
		}
	}
	return fmt.Sprintf("%.200s", words)
}

// silent is the error where a supervisor is there and does not answer.
func (u *upgrader) silent(err error) error {
	pid := socket.Holder(u.dirs.Socket(config.SupervisorSocket))
	return protocol.Errorf(protocol.CodeSupervisorUnreachable, fmt.Sprintf(
		"supervisor %d does not answer: %v; to end it, which ends no session: kill -9 %d. Another is started then", pid, err, pid))
}

// choose has the keeper start this program, and returns when a supervisor serves: done if
// it is this program.
func (u *upgrader) choose(ctx context.Context, held *mark.Held) (done bool, err error) {
	pid, err := mark.Choose(u.dirs.Runtime, u.exe)
	if err != nil {
		return false, err
	}
	fmt.Printf("process %d, which holds the sessions, is told to start %s\n", pid, u.exe)
	ctx, cancel := context.WithTimeout(ctx, u.limit)
	defer cancel()
	for {
		now, err := u.status(ctx)
		if err == nil {
			if mark.Forget(u.dirs.Runtime) || now.Version != version.String() {
				return false, nil // a keeper of an older release has started what it knew, or the one that was silent answers
			}
			fmt.Printf("%s serves, %d sessions go on, pid %d\n", now.Version, now.Sessions, now.PID)
			return true, nil
		}
		if again := mark.Look(u.dirs.Runtime); again != nil && (held == nil || *again != *held) {
			return false, protocol.Errorf(protocol.CodeSupervisorUnreachable, "again: "+again.Error())
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return false, u.silent(err)
		}
	}
}

func (u *upgrader) status(ctx context.Context) (protocol.ProcessStatus, error) {
	return askStatus(ctx, u.dirs, u.secret)
}

func askStatus(ctx context.Context, dirs config.Dirs, secret string) (protocol.ProcessStatus, error) {
	var none protocol.ProcessStatus
	conn, err := dial(ctx, dirs, secret, "supervisor --upgrade")
	if err != nil {
		return none, err
	}
	defer func() { _ = conn.Close() }()
	reply, err := conn.Call(ctx, link.Status{})
	if err != nil {
		return none, err
	}
	report, ok := reply.(*link.StatusReport)
	if !ok {
		return none, protocol.Errorf(protocol.CodeInternal, "status answered by "+reply.MessageType())
	}
	return report.Supervisor, nil
}
