package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/slate"
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

// put replaces the entry. files returns the files and a function that is called when they are
// not used any more.
func (e *vaultEntry) put(files func() (vault.Entry, func(), error)) {
	if e.cfg.Vault == nil {
		return
	}
	r, done, err := files()
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

// files returns an entry with the session's present files. done must be called when the entry is
// not used any more; it closes duplicates.
func (s *Session) files() (r vault.Entry, done func(), err error) {
	in := fileSet{state: s.stateSlate.File(), keyframe: s.display.keyframe.File(), journal: noJournal}
	done = func() {
		for _, f := range []*os.File{in.master, in.ring} {
			if f != nil {
				_ = f.Close() // only a duplicate
			}
		}
	}
	if s.exit == nil {
		in.journal = s.input.journal.Files()
		if p, ok := s.pty.(*pty.PTY); ok {
			in.master, err = p.Master()
		}
	}
	var own error
	in.ring, own = s.ring.File()
	if err = errors.Join(err, own); err == nil {
		r, err = in.entry(s.entry.id, s.pty.PID())
	}
	if err != nil {
		done()
		return r, func() {}, fmt.Errorf("session %s: %w", s.id, err)
	}
	return r, done, nil
}

// newSlates makes the files for the state and the keyframe.
func (s *Session) newSlates() error {
	state, err := slate.New("holdfast-state")
	if err != nil {
		return err
	}
	keyframe, err := slate.New("holdfast-keyframe")
	if err != nil {
		return errors.Join(err, state.Close())
	}
	s.stateSlate, s.display.keyframe.Slate = state, keyframe
	return nil
}
