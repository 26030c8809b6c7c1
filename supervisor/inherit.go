package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/keeperstate"
	"holdfast/shared/logging"
	"holdfast/shared/machine"
	"holdfast/shared/socket"
	"holdfast/supervisor/internal/fdstore"
	"holdfast/supervisor/internal/keeper/message"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/reexec"
	"holdfast/supervisor/internal/session"
	"holdfast/supervisor/internal/slate"
	"holdfast/supervisor/internal/vault"
)

// keeperTime bounds how long a request to the keeper may take, unless a session waits for it.
const keeperTime = 5 * time.Second

// before is the state that this program inherits: nothing, the vault entries of a supervisor
// that has died, or the manifest of the previous program of this process.
type before struct {
	vault   *vault.Vault // nil: there is no keeper
	entries []vault.Entry
	exits   *session.Exits
	own     bool      // the previous program of this process left the state
	at      time.Time // if own is set: when that program froze its sessions
	crashed bool      // the previous supervisor died by its own mistake
	table   session.State
	kept    keptBefore
	claim   *vault.Entry // vault entry of the keeper's lock, see message.OwnID; nil: there is none

	claimFile *os.File // its file, if this program took the lock

	presence *vault.Entry // vault entry of the presence; nil: there is none
}

// inherit reads the state that the previous program or the keeper has left.
func inherit() (*before, error) {
	b := &before{exits: session.NewExits()}
	data, fds, ok, err := reexec.Inherited()
	if err != nil {
		return nil, err
	}
	if ok {
		return b, b.fromProgram(data, fds)
	}
	name := os.Getenv(message.EnvSocket)
	if name == "" {
		return b, nil
	}
	fd, err := strconv.Atoi(name)
	if err == nil {
		err = os.Unsetenv(message.EnvSocket)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", message.EnvSocket, err)
	}
	return b, b.fromKeeper(fd)
}

func (b *before) fromProgram(data []byte, fds []int) error {
	m, err := readManifest(data, len(fds))
	if err != nil {
		return err
	}
	b.at, b.own, b.table, b.kept, b.entries = m.At, true, m.Table, m.Kept, m.entries(fds)
	if m.Keeper == nil {
		return nil
	}
	b.vault, err = vault.Resume(fds[*m.Keeper], b.addExit)
	return err
}

func (b *before) fromKeeper(fd int) error {
	v, entries, exits, err := vault.Connect(fd, b.addExit)
	if err != nil {
		return err
	}
	b.vault, b.entries = v, entries
	for _, e := range exits {
		b.addExit(e)
	}
	was := v.Before()
	b.kept.Starts, b.kept.Last = was.Starts, was.Last
	b.crashed = hasDiedByItself(was)
	return nil
}

// hasDiedByItself reports whether a supervisor died by its own mistake. SIGKILL does not count,
// because another process sends it.
func hasDiedByItself(was vault.Before) bool {
	return was.Last != "" && pty.StatusOf(was.Status).Signal != "SIGKILL"
}

// find returns the inherited vault entry with an id and one file, or nil if there is none.
func (b *before) find(id string) *vault.Entry {
	i := slices.IndexFunc(b.entries, func(r vault.Entry) bool { return r.ID == id && len(r.FDs) == 1 })
	if i < 0 {
		return nil
	}
	return &b.entries[i]
}

// locks returns the vault entries of the locks that this program passes on.
func (b *before) locks() (entries []vault.Entry) {
	for _, r := range []*vault.Entry{b.claim, b.presence} {
		if r != nil {
			entries = append(entries, *r)
		}
	}
	return entries
}

// findClaim finds the vault entry of the keeper's lock, so that this program can pass it on. If the
// keeper has no such entry, findClaim takes the lock and gives the keeper one.
func (b *before) findClaim(dir string, log zerolog.Logger) {
	b.claim = b.find(message.OwnID)
	if b.vault == nil || b.claim != nil {
		return
	}
	f, err := keeperstate.Claim(dir, 0)
	var inUse *socket.InUseError
	if errors.As(err, &inUse) { // the keeper has the lock, but this program inherited no duplicate
		return
	}
	var fd int
	if err == nil {
		b.claimFile = f
		fd, err = machine.Descriptor(f)
	}
	if err == nil {
		b.claim = &vault.Entry{ID: message.OwnID, FDs: []int{fd}}
		err = inKeeperTime(func(ctx context.Context) error { return b.vault.Put(ctx, *b.claim) })
	}
	if err != nil {
		log.Error().Err(err).Msg("keeper lock not taken; another keeper could start for the same directory")
	}
}

func (b *before) addExit(e vault.Exit) { b.exits.Record(e.PID, pty.StatusOf(e.Status)) }

// sessionVault returns the vault for sessions, or a nil interface if there is no keeper.
func (b *before) sessionVault(log zerolog.Logger) session.Vault {
	if b.vault == nil {
		return nil
	}
	var ids []string
	for _, r := range b.entries {
		ids = append(ids, r.ID)
	}
	return fdstore.Over(b.vault, ids, log)
}

func (b *before) heritage(s *self) session.Heritage {
	h := session.Heritage{Exits: b.exits, Own: b.own, Crashed: b.crashed, State: b.table, Adopted: b.progress()}
	if !b.own {
		h.State.Seq = s.seq()
	}
	for _, r := range b.entries {
		if session.IsSession(r) {
			h.Entries = append(h.Entries, r)
		}
	}
	return h
}

// isFresh reports whether this supervisor has taken over the sessions of no other supervisor.
func (b *before) isFresh() bool {
	return !b.own && !slices.ContainsFunc(b.entries, func(r vault.Entry) bool { return r.ID == selfEntry })
}

// hasSessions reports whether sessions may depend on this program: it has taken over the state of
// a supervisor that has served, or sessions from the service manager's store. The keeper's lock
// alone is inherited by the first supervisor of a keeper, too.
func (b *before) hasSessions() bool {
	return b.own || slices.ContainsFunc(b.entries, func(r vault.Entry) bool { return r.ID != message.OwnID })
}

// progressInterval is the least time between two reports of progress to the keeper. The shortest
// start_timeout is several times as long.
const progressInterval = 200 * time.Millisecond

// progress returns a function that reports to the keeper that another session was adopted,
// because the keeper ends a supervisor that makes no progress. Any goroutine may call it.
func (b *before) progress() func() {
	if b.vault == nil {
		return func() {}
	}
	var last atomic.Int64 // time of the last report, in ns since begun
	begun := time.Now()
	return func() {
		now, then := int64(time.Since(begun)), last.Load()
		if now-then >= int64(progressInterval) && last.CompareAndSwap(then, now) {
			_ = inKeeperTime(b.vault.Alive) // if the keeper does not answer, this program continues, and Ready reports the error
		}
	}
}

// inKeeperTime sends a request to the keeper, with the deadline keeperTime.
func inKeeperTime(ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), keeperTime)
	defer cancel()
	return ask(ctx)
}

// ready reports to the keeper and to systemd that this supervisor serves.
func (b *before) ready(log zerolog.Logger) {
	if b.vault == nil {
		return
	}
	if err := inKeeperTime(func(ctx context.Context) error { return b.vault.Ready(ctx, os.Args...) }); err != nil {
		log.Error().Err(err).Msg("keeper not notified that this supervisor serves; it may start an older program after a crash")
	}
	if err := fdstore.Ready(); err != nil {
		log.Warn().Err(err).Msg("systemd not notified that the service runs")
	}
}

// keeperPID returns the keeper's pid, or 0 if there is no keeper. The keeper is this process's
// parent.
func (b *before) keeperPID() int {
	if b.vault == nil {
		return 0
	}
	return os.Getppid()
}

// quit requests that the keeper ends when this process ends.
func (b *before) quit(log zerolog.Logger) {
	if b.vault == nil {
		return
	}
	if err := inKeeperTime(b.vault.Quit); err != nil {
		log.Error().Err(err).Msg("keeper not notified of the stop; it will start another supervisor")
	}
}

// selfEntry is the id of the supervisor's own vault entry: the listening socket, its lock, and
// a slate.
const selfEntry = "supervisor"

const (
	selfVersion = 1

	// Words of the slate.
	wordSeq     = 0 // number of the last event
	wordReading = 1 // number of expensive reads (package linkserver) in progress
	wordNoReads = 2 // Unix time in ms until which expensive reads are refused
)

// noReadsTime is how long expensive reads are refused after a supervisor died by itself during
// one. It is so long that repeated deaths of that cause stay far below the keeper's crash
// limit, five in a minute.
const noReadsTime = time.Minute

// self is the supervisor's identity. It stays the same while the sessions live, across all
// programs that serve them.
type self struct {
	Version  int               `json:"version"`
	Instance protocol.Instance `json:"instance"`
	Started  time.Time         `json:"started"`
	Upgrades int               `json:"upgrades"`
	Lost     int               `json:"lost"` // number of keepers that have died

	slate *slate.Slate
	ln    *socket.Listener
	mu    sync.Mutex   // guards Lost and vault
	vault *vault.Vault // nil: there is no keeper
}

// self returns the identity and the socket of the previous supervisor, or new ones.
func (b *before) self(path string, log zerolog.Logger) (*self, *socket.Listener, error) {
	refused := logging.Refuser(log)
	opts := socket.Options{AnyDir: true, OnRefuse: func(p socket.Peer, err error) { refused(p.UID, p.PID, err) }}
	var s *self
	for _, r := range b.entries {
		if r.ID == selfEntry {
			var err error
			if s, err = adoptSelf(r, path, opts, log); err != nil {
				log.Error().Err(err).Msg("inherited socket not adopted; the supervisor makes a new one")
				b.deleteEntry(r.ID)
			}
		}
	}
	if s == nil {
		ln, err := socket.Listen(path, opts)
		if err != nil {
			return nil, nil, err
		}
		if s, err = newSelf(); err != nil {
			return nil, nil, errors.Join(err, ln.Close())
		}
		s.ln = ln
	}
	s.vault = b.vault
	s.save(log)
	return s, s.ln, nil
}

func (b *before) deleteEntry(id string) {
	if b.vault == nil {
		return
	}
	_ = inKeeperTime(func(ctx context.Context) error { return b.vault.Delete(ctx, id) }) // the entry is put again in any case
}

// adoptSelf returns the identity and the socket of a vault entry. If only the slate cannot be
// read, the socket is kept and served under a new instance.
func adoptSelf(r vault.Entry, path string, opts socket.Options, log zerolog.Logger) (*self, error) {
	var files []*os.File
	for _, fd := range r.FDs {
		files = append(files, os.NewFile(uintptr(fd), selfEntry))
	}
	if len(files) != 3 {
		for _, f := range files {
			_ = f.Close() // an incomplete entry is of no use
		}
		return nil, fmt.Errorf("vault entry of the supervisor has %d files, want 3", len(files))
	}
	ln, err := socket.Adopt(path, files[:2], opts)
	if err != nil {
		_ = files[2].Close() // the file was not written to, so no data is lost
		return nil, err
	}
	if _, err := ln.Check(); err != nil { // the path may have been removed
		log.Error().Err(err).Msg("socket's path not checked")
	}
	s, err := readSelf(files[2])
	if err != nil {
		log.Error().Err(err).Msg("supervisor identity not read; the socket stays, under another instance")
		if s, err = newSelf(); err != nil {
			return nil, errors.Join(err, ln.Release())
		}
	}
	s.ln = ln
	return s, nil
}

// readSelf reads an identity from a slate, and owns the file.
func readSelf(f *os.File) (*self, error) {
	sl, err := slate.Adopt(f)
	if err != nil {
		return nil, err
	}
	s := &self{slate: sl}
	data, err := sl.Read()
	if err == nil {
		err = json.Unmarshal(data, s)
	}
	if err == nil && (s.Version != selfVersion || s.Instance == "") {
		err = fmt.Errorf("invalid identity: version %d, instance %q", s.Version, s.Instance)
	}
	if err != nil {
		return nil, errors.Join(err, sl.Close())
	}
	return s, nil
}

func newSelf() (*self, error) {
	s := &self{Version: selfVersion, Instance: protocol.NewInstance(), Started: time.Now()}
	var err error
	s.slate, err = slate.New("holdfast-supervisor")
	return s, err
}

// loseKeeper counts and saves the death of the keeper.
func (s *self) loseKeeper(log zerolog.Logger) {
	s.mu.Lock()
	s.Lost++
	s.vault = nil
	s.mu.Unlock()
	s.save(log)
}

func (s *self) keepersLost() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Lost
}

// save writes the identity to the slate, and puts it together with the socket into the vault.
func (s *self) save(log zerolog.Logger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, err := json.Marshal(s)
	if err == nil {
		err = s.slate.Write(data)
	}
	if err != nil {
		log.Error().Err(err).Msg("supervisor identity not saved; a successor will begin as another instance")
	}
	if s.vault == nil {
		return
	}
	r, free, err := s.entry()
	if err == nil {
		err = inKeeperTime(func(ctx context.Context) error { return s.vault.Put(ctx, r) })
		free()
	}
	if err != nil {
		log.Error().Err(err).Msg("socket not stored in the vault; it is lost if this supervisor dies")
	}
}

func (s *self) entry() (r vault.Entry, free func(), err error) {
	files, err := s.ln.Files()
	if err != nil {
		return r, nil, err
	}
	free = func() {
		for _, f := range files {
			_ = f.Close() // duplicates; the vault has its own
		}
	}
	r = vault.Entry{ID: selfEntry}
	for _, f := range append(files, s.slate.File()) {
		fd, err := machine.Descriptor(f)
		if err != nil {
			free()
			return r, nil, err
		}
		r.FDs = append(r.FDs, fd)
	}
	return r, free, nil
}

// reading stores the number of expensive reads in progress.
func (s *self) reading(n int) { _ = s.slate.SetWord(wordReading, uint64(n)) } // if this fails, a successor does not refuse them

// noReads returns the time until which expensive reads are refused, because a supervisor died
// by itself during one. crashed means that the previous supervisor died so.
func (s *self) noReads(crashed bool) time.Time {
	now, err := s.slate.Word(wordReading)
	until, untilErr := s.slate.Word(wordNoReads)
	if errors.Join(err, untilErr) != nil {
		return time.Time{}
	}
	if crashed && now > 0 {
		until = uint64(time.Now().Add(noReadsTime).UnixMilli())
		_ = s.slate.SetWord(wordNoReads, until) // if this fails, this program refuses them all the same
	}
	s.reading(0)
	return time.UnixMilli(int64(until))
}

func (s *self) published(seq uint64) { _ = s.slate.SetWord(wordSeq, seq) } // if this fails, a successor's event numbers begin too low

func (s *self) seq() uint64 {
	seq, err := s.slate.Word(wordSeq)
	if err != nil {
		return 0
	}
	return seq
}
