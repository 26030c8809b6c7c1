package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/link"
	"holdfast/shared/logging"
	"holdfast/shared/machine"
	"holdfast/shared/version"
	"holdfast/supervisor/internal/cage"
	"holdfast/supervisor/internal/keeper/message"
	"holdfast/supervisor/internal/linkserver"
	"holdfast/supervisor/internal/recorder"
	"holdfast/supervisor/internal/reexec"
	"holdfast/supervisor/internal/session"
	"holdfast/supervisor/internal/vault"
)

// A replacer lets this process execute another program: the next supervisor, or a keeper if the
// keeper has died.
type replacer struct {
	before    *before
	self      *self
	sessions  *session.Table
	recording *recorder.Recorder
	cages     *cage.Root
	server    *linkserver.Server
	log       zerolog.Logger
	diskTime  time.Duration // the constant diskTime, except in tests
	isWaiting func() bool   // machine.WaitsForDisk, except in tests

	replacing sync.Mutex // held during an upgrade or a replacement of the keeper
	frozenAt  time.Time
}

// Upgrade implements linkserver.Upgrader.
func (r *replacer) Upgrade(ctx context.Context, m *link.Upgrade) (string, int, error) {
	if !r.replacing.TryLock() {
		return "", 0, session.Upgrading()
	}
	defer r.replacing.Unlock()
	log := r.log.With().Str(logging.Program, m.Program).Bool("dry_run", m.DryRun).Logger()
	log.Info().Msg("upgrade requested")
	trialVersion, sessions, err := r.upgrade(ctx, m)
	if err != nil {
		log.Warn().Err(err).Msg("upgrade refused; the supervisor continues")
		return "", 0, &protocol.Error{Code: protocol.CodeUpgradeRefused, Message: err.Error()}
	}
	return trialVersion, sessions, nil
}

// upgrade tries the program and executes it. It returns without an error only after a dry run.
func (r *replacer) upgrade(ctx context.Context, m *link.Upgrade) (trialVersion string, sessions int, err error) {
	program, err := reexec.Open(m.Program)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = program.Close() }()
	r.sessions.Prepare(true)
	if trialVersion, sessions, err = r.try(ctx, program); err != nil || m.DryRun {
		return trialVersion, sessions, err
	}
	if m.Keeper && r.before.vault != nil {
		if err := r.upgradeKeeper(ctx, m.Program); err != nil {
			return "", 0, err
		}
	}
	if v := r.before.vault; v != nil { // a keeper that does not answer would delay all sessions while they are frozen
		if err := inKeeperTime(v.Alive); err != nil {
			return "", 0, fmt.Errorf("the keeper does not answer, and without it no program can take over: %w", err)
		}
	}
	return "", 0, r.execute(program)
}

// execute executes the program while the sessions are frozen. It returns only if that failed.
// Then it tells the keeper that this process serves, even if the keeper has not answered the
// leave: the leave may be in the socket, and the keeper would otherwise end this process
// start_timeout after it has read it. The sessions continue before the keeper's answer.
func (r *replacer) execute(program *reexec.Program) error {
	err := r.freeze(func(f *session.Frozen) error { return r.become(program, f) })
	r.before.ready(r.log)
	return err
}

// upgradeKeeper lets the keeper execute the program. The keeper tries it first.
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

// try runs the program on trial, with copies of the sessions' vault entries.
func (r *replacer) try(ctx context.Context, program *reexec.Program) (trialVersion string, sessions int, err error) {
	entries, files, err := r.sessions.TrialEntries()
	defer func() {
		for _, f := range files {
			_ = f.Close() // duplicates
		}
	}()
	if err != nil {
		return "", 0, err
	}
	b := r.builder()
	for _, e := range entries {
		b.addEntry(e)
	}
	data, err := b.encode()
	if err != nil {
		return "", 0, err
	}
	trialVersion, err = program.Try(ctx, data, files, []string{"run"})
	return trialVersion, r.sessions.Live(), err // the entries of ended sessions are on trial as well
}

func (r *replacer) builder() *builder {
	return &builder{manifest: manifest{
		Version: manifestVersion, Program: version.String(), Table: r.sessions.State(), Kept: r.before.kept,
	}}
}

const (
	// diskTime is how long a replacement waits until no recording uses the disk, and then until no thread waits for a disk.
	diskTime = 10 * time.Second
	// diskPause is the pause between two looks at the threads.
	diskPause = 10 * time.Millisecond
)

// freeze calls f, which executes another program, while no request is in progress and all
// sessions are frozen. If f returns, sessions and requests continue. Before, it waits for the recordings, because the
// kernel does not execute a program while a thread of the process waits for a disk: the sessions would be frozen until
// the disk answers.
func (r *replacer) freeze(f func(*session.Frozen) error) error {
	r.sessions.AwaitErased()
	record, err := r.recording.Pause(r.diskTime)
	if err != nil {
		return fmt.Errorf("%w, and the sessions would stand still until it does", err)
	}
	defer record()
	for began := time.Now(); r.isWaiting(); time.Sleep(diskPause) { // to write to the log, for example
		if time.Since(began) > r.diskTime {
			return errors.New("a disk does not answer, and the sessions would stand still until it does")
		}
	}
	r.frozenAt = time.Now()
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
	b.At = r.frozenAt
	own, free, err := r.self.entry()
	if err != nil {
		return err
	}
	defer free()
	b.addEntry(own)
	for _, e := range append(frozen.Entries, r.before.locks()...) {
		b.addEntry(e)
	}
	if v := r.before.vault; v != nil {
		if err := inKeeperTime(v.Leave); err != nil { // the keeper ends a program that does not serve in time
			return err
		}
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
	r.log.Info().Dur(logging.Took, time.Since(r.frozenAt)).Msg("sessions are frozen; the new program takes over")
	return program.Exec(data, b.fds, os.Args[1:])
}

// watchKeeper replaces the keeper if it has died. Only the parent of a child learns how the
// child ended, so this process becomes the keeper, and then starts another supervisor.
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
	r.log.Warn().Msg("keeper has died; this process takes its place")
	r.self.loseKeeper(r.log)
	for pause := time.Millisecond; ctx.Err() == nil; pause = min(2*pause, time.Minute) {
		r.replacing.Lock()
		err := r.replaceKeeper()
		r.replacing.Unlock()
		r.log.Error().Err(err).Msg("keeper not replaced; the sessions are lost if this process dies before the next attempt succeeds")
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// replaceKeeper executes a keeper in this process. It returns only if that failed. From the exec on, this process is the only
// one that has the terminals, so the program must not fail, and is tried first. The sessions continue during the trial,
// because the program may take ten seconds if its files are on a file system that does not answer.
func (r *replacer) replaceKeeper() error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := reexec.OpenSelf(path)
	if err != nil {
		return err
	}
	defer func() { _ = program.Close() }()
	var memory *os.File
	if err := r.freeze(func(f *session.Frozen) error {
		state, err := r.keeperState(f)
		if err == nil {
			memory = state.memory
			state.free()
		}
		return err
	}); err != nil {
		return err
	}
	err = program.TryAs(context.Background(), message.EnvTrial, memory, keeperArgs(), message.ExitTried)
	if err = errors.Join(err, memory.Close()); err != nil {
		return err
	}
	r.sessions.Prepare(false)
	return r.freeze(func(f *session.Frozen) error {
		state, err := r.keeperState(f)
		if err != nil {
			return err
		}
		defer state.memory.Close()
		defer state.free()
		return program.ExecAs(message.EnvResume, state.memory, state.fds, keeperArgs())
	})
}

// A keeperState is the state that this process leaves to a keeper that takes its place.
type keeperState struct {
	memory *os.File // a memory file with the manifest
	fds    []int    // descriptors of the vault entries
	free   func()   // closes those of them that are duplicates
}

func (r *replacer) keeperState(frozen *session.Frozen) (*keeperState, error) {
	own, free, err := r.self.entry()
	if err != nil {
		return nil, err
	}
	s := &keeperState{free: free}
	entries := slices.Concat([]vault.Entry{own}, frozen.Entries, r.before.locks())
	for _, e := range entries {
		s.fds = append(s.fds, e.FDs...)
	}
	data, err := vault.Handover(entries, nil, r.before.kept.Starts)
	if err == nil {
		s.memory, err = machine.MemoryFileWith("keeper", data)
	}
	if err != nil {
		free()
		return nil, err
	}
	return s, nil
}

// keeperArgs returns the arguments of the keeper that has started this supervisor.
func keeperArgs() []string {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		return os.Args[2:]
	}
	return os.Args[1:]
}

func (r *replacer) status(st *protocol.ProcessStatus) {
	st.Upgrades = r.self.Upgrades
	st.Cages = r.cages.Status()
	st.Recording = r.sessions.RecordingStatus()
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
		PID: os.Getppid(), Sessions: r.sessions.Kept(), Starts: r.before.kept.Starts, Last: r.before.kept.Last, Lost: r.self.keepersLost(),
	}
}

// tryOut does the work of a program on trial. done is false if this program is not on trial.
func tryOut() (done bool, err error) {
	data, fds, ok, err := reexec.OnTrial()
	if !ok || err != nil {
		return ok, err
	}
	fault("trial")
	_ = machine.Background() // so that clients of the running supervisor do not have to wait
	m, err := readManifest(data, len(fds))
	if err != nil {
		return true, err
	}
	var sessions []vault.Entry
	for _, r := range m.entries(fds) {
		if session.IsSession(r) {
			sessions = append(sessions, r)
		}
	}
	if err := session.Try(sessions); err != nil {
		return true, err
	}
	return true, reexec.Passed(version.String())
}

// replaceTime is how long upgradeKeeper waits for the new keeper's answer.
const replaceTime = 15 * time.Second
