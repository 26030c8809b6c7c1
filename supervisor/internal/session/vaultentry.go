package session

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/supervisor/internal/vault"
)

// Vault holds duplicates of a session's files, so that they outlive this process. Package vault
// has the implementation, *vault.Vault.
type Vault interface {
	Put(context.Context, vault.Entry) error
	SetPID(ctx context.Context, id string, pid int) error
	Delete(ctx context.Context, id string) error
}

// vaultTime bounds how long a session waits for the vault. A vault that does not answer must
// not stop the sessions that it protects.
const vaultTime = 2 * time.Second

const (
	// owedPause is the pause until an entry that the vault has not confirmed is put again. It doubles up to owedPauseMax, because
	// each request stays in the socket while the vault does not read.
	owedPause    = 5 * time.Second
	owedPauseMax = 5 * time.Minute
	// owedTime is how long the session waits for the vault then. A vault that has answered too late before has executed the
	// request in most cases, and answers at once.
	owedTime = vaultTime / 20
)

// vaultEntry is the entry of one session in the vault. If the vault fails, the session
// continues, but it would not survive this process until the vault has taken the entry.
type vaultEntry struct {
	cfg  *Config // its Vault may be nil
	id   string
	log  *zerolog.Logger
	isIn atomic.Bool // the vault holds the files
	owed alarm       // runs while the vault has not confirmed the present entry

	pause time.Duration // of owed when it was set last; 0 after the vault has confirmed the entry
}

// put replaces the entry by one with the present files and the child's pid. If the vault fails, loop calls putOwed later. put is
// called in loop, or before loop runs.
func (e *vaultEntry) put(files *sessionFiles, pid int) {
	if err := e.putWithin(vaultTime, files, pid); err != nil {
		e.log.Error().Err(err).Msg("session not saved to the vault; it would not survive this supervisor; it is saved again later")
	}
}

// putOwed puts the entry again. It is called in loop when the alarm owed expires.
func (e *vaultEntry) putOwed(files *sessionFiles, pid int) {
	e.owed.disarm()
	if e.putWithin(owedTime, files, pid) == nil {
		e.log.Info().Msg("session saved to the vault")
	}
}

func (e *vaultEntry) putWithin(limit time.Duration, files *sessionFiles, pid int) error {
	if e.cfg.Vault == nil {
		return nil
	}
	r, done, err := files.liveEntry(e.id, pid)
	defer done()
	if err == nil {
		err = call(limit, func(ctx context.Context) error { return e.cfg.Vault.Put(ctx, r) })
	}
	e.isIn.Store(err == nil)
	if err != nil {
		e.owe()
		return err
	}
	e.owed.stop()
	e.pause = 0
	return nil
}

func call(limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return f(ctx)
}

// setPID adds the child's pid to the entry, so that the keeper stores its exit status.
func (e *vaultEntry) setPID(pid int) {
	if e.cfg.Vault == nil {
		return
	}
	if err := call(vaultTime, func(ctx context.Context) error { return e.cfg.Vault.SetPID(ctx, e.id, pid) }); err != nil {
		e.log.Error().Err(err).Msg("pid of the child not saved to the vault; its exit status may be lost with this supervisor; it is saved again later")
		e.owe()
	}
}

// owe lets loop put the entry again later.
func (e *vaultEntry) owe() {
	e.pause = min(max(owedPause, 2*e.pause), owedPauseMax)
	e.owed.set(e.pause)
}

// delete deletes the entry.
func (e *vaultEntry) delete() {
	if e.cfg.Vault == nil {
		return
	}
	if err := call(vaultTime, func(ctx context.Context) error { return e.cfg.Vault.Delete(ctx, e.id) }); err != nil {
		e.log.Warn().Err(err).Msg("forgotten session not deleted from the vault")
	}
}

// entryOf returns the id of an instance's entry in the vault.
func entryOf(instance protocol.Instance) string { return entryPrefix + string(instance) }
