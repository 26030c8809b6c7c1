package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/link"
	"holdfast/shared/config"
	mark "holdfast/shared/keep"
	"holdfast/shared/logging"
	"holdfast/shared/machine"
	"holdfast/shared/version"
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
	records, free, err := r.sessions.Records()
	if err != nil {
		return "", 0, err
	}
	defer free()
	b := r.builder()
	for _, rec := range records {
		b.addRecord(rec)
	}
	data, err := b.encode()
	if err != nil {
		return "", 0, err
	}
	said, err = program.Try(ctx, data, b.fds, []string{"run"})
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
	if v := r.before.vault; v != nil {
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

// goOnTime is as long as a crash loop may take to be one again.
const goOnTime = time.Minute

// askUpgrade has the running supervisor become this program.
func askUpgrade(ctx context.Context, o *options, dryRun, keeper bool) error {
	dirs, cfg, err := load(o)
	if err != nil {
		return err
	}
	secret, err := cfg.Secret()
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	if held := mark.Look(dirs.Runtime); held != nil && !dryRun {
		if err := goOn(ctx, dirs, held); err != nil {
			return err
		}
	}
	conn, err := dial(ctx, dirs, secret, "supervisor --upgrade")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	old, err := askStatus(ctx, dirs, secret)
	if err != nil {
		return err
	}
	reply, err := conn.Call(ctx, link.Upgrade{Program: exe, DryRun: dryRun, Keeper: keeper})
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
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, replaceTime)
	defer cancel()
	for {
		now, err := askStatus(ctx, dirs, secret)
		if err == nil && now.Upgrades > old.Upgrades {
			fmt.Printf("%s became %s, %d sessions go on, pid %d, after %v\n", old.Version, now.Version, now.Sessions, now.PID,
				time.Since(began).Round(time.Millisecond))
			return nil
		}
		if err == nil {
			return protocol.Errorf(protocol.CodeUpgradeRefused, fmt.Sprintf("%s died at its start, and %s goes on with the sessions", version.String(), now.Version))
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return protocol.Errorf(protocol.CodeSupervisorUnreachable, fmt.Sprintf("the new program does not answer: %v", err))
		}
	}
}

// goOn has a keeper that starts nothing any more try again, and returns when a
// supervisor serves.
func goOn(ctx context.Context, dirs config.Dirs, held *mark.Held) error {
	fmt.Printf("%d supervisors died within a minute and none was started any more; process %d, which holds the sessions, is told to go on\n", held.Deaths, held.PID)
	if err := held.GoOn(dirs.Runtime); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, goOnTime)
	defer cancel()
	for {
		switch now := mark.Look(dirs.Runtime); {
		case now == nil:
			return nil
		case *now != *held:
			return protocol.Errorf(protocol.CodeSupervisorUnreachable, "again: "+now.Error())
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return protocol.Errorf(protocol.CodeSupervisorUnreachable, fmt.Sprintf("no supervisor serves yet: %v", ctx.Err()))
		}
	}
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
