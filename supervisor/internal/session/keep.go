package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"holdfast/supervisor/internal/journal"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/slate"
	"holdfast/supervisor/internal/vault"
)

// A Vault holds duplicates of a session's files, so that they outlive this
// process; *vault.Vault is the real one.
type Vault interface {
	Put(context.Context, vault.Record) error
	SetPID(ctx context.Context, id string, pid int) error
	Delete(ctx context.Context, id string) error
}

// vaultTime bounds how long a session waits for the vault. One that does not
// answer must not stop what it is to protect.
const vaultTime = 2 * time.Second

// The files of a session by what they are for.
const (
	fileMaster   = "master"   // absent once the child has ended and its output is read
	fileRing     = "ring"     // with the journal's room
	fileState    = "state"    // saved
	fileKeyframe = "keyframe" // the screen
	filePipe     = "pipe"     // of the journal; absent where there is none
	fileQueue    = "queue"    // of the journal, once it has one
)

// recordMeta says what a record of a session is. Files that are not known are
// closed.
type recordMeta struct {
	Version int      `json:"version"`
	Files   []string `json:"files"`
}

const recordVersion = 1

// recordPrefix is how the ids of sessions begin in the vault.
const recordPrefix = "session "

func (s *Session) recordID() string { return recordPrefix + string(s.instance) }

// record is what a successor needs. done closes what was opened for it.
func (s *Session) record() (r vault.Record, done func(), err error) {
	var opened []*os.File
	done = func() {
		for _, f := range opened {
			_ = f.Close() // only duplicates
		}
	}
	meta := recordMeta{Version: recordVersion}
	r = vault.Record{ID: s.recordID(), PID: s.pty.PID()}
	fd := func(role string, n int) {
		meta.Files, r.FDs = append(meta.Files, role), append(r.FDs, n)
	}
	file := func(role string, f *os.File, own error) {
		if own != nil {
			err = errors.Join(err, own)
			return
		}
		n, own := Descriptor(f)
		err = errors.Join(err, own)
		fd(role, n)
	}
	if p, ok := s.pty.(*pty.PTY); ok && s.exit == nil {
		f, own := p.Master()
		if own == nil {
			opened = append(opened, f)
		}
		file(fileMaster, f, own)
	}
	f, own := s.ring.File()
	if own == nil {
		opened = append(opened, f)
	}
	file(fileRing, f, own)
	file(fileState, s.stateSlate.File(), nil)
	file(fileKeyframe, s.keyframe.File(), nil)
	if files := s.input.journal.Files(); s.exit == nil {
		if files.Pipe >= 0 {
			fd(filePipe, files.Pipe)
		}
		if files.Queue >= 0 {
			fd(fileQueue, files.Queue)
		}
	}
	if err == nil {
		r.Meta, err = json.Marshal(meta)
	}
	if err != nil {
		done()
		return r, func() {}, fmt.Errorf("session %s: %w", s.id, err)
	}
	return r, done, nil
}

// Descriptor is a file's, which stays as it is: Fd would make it blocking.
func Descriptor(f *os.File) (n int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	err = raw.Control(func(fd uintptr) { n = int(fd) })
	return n, err
}

// put has the vault hold the files as they are now. A session that it does not
// hold lives on, and would be lost with this process.
func (s *Session) put() {
	if s.cfg.Vault == nil {
		return
	}
	r, done, err := s.record()
	defer done()
	if err == nil {
		err = s.inVault(func(ctx context.Context) error { return s.cfg.Vault.Put(ctx, r) })
	}
	if err != nil {
		s.log.Error().Err(err).Msg("the keeper does not hold this session")
	}
	s.kept.Store(err == nil)
}

func (s *Session) inVault(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), vaultTime)
	defer cancel()
	return f(ctx)
}

// named tells the vault whose end is to be kept.
func (s *Session) named() {
	if s.cfg.Vault == nil {
		return
	}
	if err := s.inVault(func(ctx context.Context) error {
		return s.cfg.Vault.SetPID(ctx, s.recordID(), s.pty.PID())
	}); err != nil {
		s.log.Error().Err(err).Msg("the keeper does not know this session's child")
	}
}

// letGo has the vault forget the session.
func (s *Session) letGo() {
	if s.cfg.Vault == nil {
		return
	}
	if err := s.inVault(func(ctx context.Context) error { return s.cfg.Vault.Delete(ctx, s.recordID()) }); err != nil {
		s.log.Warn().Err(err).Msg("the keeper holds a session that is forgotten")
	}
}

// inherited are a session's files, from a record.
type inherited struct {
	master, ring, state, keyframe *os.File
	journal                       journal.Files
}

// files takes a record apart, which must have files of these roles; its descriptors
// are used up, even with an error.
func files(r vault.Record, roles ...string) (*inherited, error) {
	in := &inherited{journal: journal.Files{Pipe: -1, Queue: -1}}
	var meta recordMeta
	err := json.Unmarshal(r.Meta, &meta)
	if err == nil && (meta.Version != recordVersion || len(meta.Files) != len(r.FDs)) {
		err = fmt.Errorf("version %d, %d of %d files", meta.Version, len(r.FDs), len(meta.Files))
	}
	if err != nil {
		meta.Files = make([]string, len(r.FDs)) // of roles that nobody knows
	}
	for i, role := range meta.Files {
		fd := r.FDs[i]
		switch role {
		case filePipe:
			in.journal.Pipe = fd
		case fileQueue:
			in.journal.Queue = fd
		case fileMaster:
			in.master = os.NewFile(uintptr(fd), "ptmx")
		case fileRing:
			in.ring = os.NewFile(uintptr(fd), role)
		case fileState:
			in.state = os.NewFile(uintptr(fd), role)
		case fileKeyframe:
			in.keyframe = os.NewFile(uintptr(fd), role)
		default:
			_ = os.NewFile(uintptr(fd), "unknown").Close()
		}
	}
	for _, role := range roles {
		if err == nil && !slices.Contains(meta.Files, role) {
			err = fmt.Errorf("it has no file %q", role)
		}
	}
	if err != nil {
		in.close()
		return nil, fmt.Errorf("record %s: %w", r.ID, err)
	}
	return in, nil
}

func (in *inherited) close() {
	for _, f := range []*os.File{in.master, in.ring, in.state, in.keyframe} {
		if f != nil {
			_ = f.Close() // a duplicate, or nobody's
		}
	}
	for _, fd := range []int{in.journal.Pipe, in.journal.Queue} {
		if fd >= 0 {
			_ = os.NewFile(uintptr(fd), "journal").Close()
		}
	}
}

// newSlates makes the files that a successor reads.
func (s *Session) newSlates() error {
	state, err := slate.New("holdfast-state")
	if err != nil {
		return err
	}
	keyframe, err := slate.New("holdfast-keyframe")
	if err != nil {
		return errors.Join(err, state.Close())
	}
	s.stateSlate, s.keyframe = state, keyframe
	return nil
}
