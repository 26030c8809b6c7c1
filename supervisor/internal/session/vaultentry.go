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

// vaultEntry is the entry of one session in the vault. If the vault fails, the session
// continues, but it would not survive this process.
type vaultEntry struct {
	cfg  *Config // its Vault may be nil
	id   string
	log  *zerolog.Logger
	isIn atomic.Bool // the vault holds the files
}

// put replaces the entry by one with the present files and the child's pid.
func (e *vaultEntry) put(files *sessionFiles, pid int) {
	if e.cfg.Vault == nil {
		return
	}
	r, done, err := files.liveEntry(e.id, pid)
	defer done()
	if err == nil {
		err = e.call(func(ctx context.Context) error { return e.cfg.Vault.Put(ctx, r) })
	}
	if err != nil {
		e.log.Error().Err(err).Msg("session not saved to the vault; it would not survive this supervisor")
	}
	e.isIn.Store(err == nil)
}

func (e *vaultEntry) call(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), vaultTime)
	defer cancel()
	return f(ctx)
}

// setPID adds the child's pid to the entry, so that the keeper stores its exit status.
func (e *vaultEntry) setPID(pid int) {
	if e.cfg.Vault == nil {
		return
	}
	if err := e.call(func(ctx context.Context) error { return e.cfg.Vault.SetPID(ctx, e.id, pid) }); err != nil {
		e.log.Error().Err(err).Msg("pid of the child not saved to the vault; its exit status may be lost with this supervisor")
	}
}

// delete deletes the entry.
func (e *vaultEntry) delete() {
	if e.cfg.Vault == nil {
		return
	}
	if err := e.call(func(ctx context.Context) error { return e.cfg.Vault.Delete(ctx, e.id) }); err != nil {
		e.log.Warn().Err(err).Msg("forgotten session not deleted from the vault")
	}
}

// entryOf returns the id of an instance's entry in the vault.
func entryOf(instance protocol.Instance) string { return entryPrefix + string(instance) }
