package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	mark "holdfast/shared/keep"
	"holdfast/shared/logging"
	"holdfast/shared/socket"
	"holdfast/supervisor/internal/fdstore"
	"holdfast/supervisor/internal/keeper/wire"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/reexec"
	"holdfast/supervisor/internal/session"
	"holdfast/supervisor/internal/slate"
	"holdfast/supervisor/internal/vault"
)

// keeperTime bounds how long the keeper may take for what is not a session's.
const keeperTime = 5 * time.Second

// before is what was there before this program: nothing, what a supervisor left
// that has died, or what the program left that this process ran.
type before struct {
	vault   *vault.Vault // nil: nobody keeps anything
	records []vault.Record
	exits   *session.Exits
	own     bool      // this process ran another program
	at      time.Time // then: when that came to rest
	crashed bool      // a supervisor died of itself
	table   session.State
	kept    keptBefore
	claim   *vault.Record // the lock that says that a keeper is here, see wire.OwnID; nil: not had

	claimFile *os.File // its file, if this program took the lock
}

// inherit takes over what was left, by whoever left it.
func inherit() (*before, error) {
	b := &before{exits: session.NewExits()}
	data, fds, ok, err := reexec.Inherited()
	if err != nil {
		return nil, err
	}
	if ok {
		return b, b.fromProgram(data, fds)
	}
	name := os.Getenv(wire.EnvSocket)
	if name == "" {
		return b, nil
	}
	fd, err := strconv.Atoi(name)
	if err == nil {
		err = os.Unsetenv(wire.EnvSocket)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", wire.EnvSocket, err)
	}
	return b, b.fromKeeper(fd)
}

func (b *before) fromProgram(data []byte, fds []int) error {
	m, err := readManifest(data, len(fds))
	if err != nil {
		return err
	}
	b.at, b.own, b.table, b.kept, b.records = m.At, true, m.Table, m.Kept, m.records(fds)
	if m.Keeper == nil {
		return nil
	}
	b.vault, err = vault.Resume(fds[*m.Keeper], b.tell)
	return err
}

func (b *before) fromKeeper(fd int) error {
	v, records, exits, err := vault.Connect(fd, b.tell)
	if err != nil {
		return err
	}
	b.vault, b.records = v, records
	for _, e := range exits {
		b.tell(e)
	}
	was := v.Before()
	b.kept.Starts, b.kept.Last = was.Starts, was.Last
	b.crashed = diedByItself(was)
	return nil
}

// diedByItself reports whether a supervisor died of a mistake of its own, as far as
// that shows: SIGKILL is somebody else's.
func diedByItself(was vault.Before) bool {
	return was.Last != "" && pty.StatusOf(was.Status).Signal != "SIGKILL"
}

// findClaim finds the record of the keeper's lock, to be passed on. A keeper of an older
// release has none, and is given one.
func (b *before) findClaim(dir string, log zerolog.Logger) {
	for i, r := range b.records {
		if r.ID == wire.OwnID && len(r.FDs) == 1 {
			b.claim = &b.records[i]
		}
	}
	if b.vault == nil || b.claim != nil {
		return
	}
	f, err := mark.Claim(dir, 0)
	var inUse *socket.InUseError
	if errors.As(err, &inUse) { // the keeper has it, and this program was left no duplicate
		return
	}
	var fd int
	if err == nil {
		b.claimFile = f
		fd, err = session.Descriptor(f)
	}
	if err == nil {
		b.claim = &vault.Record{ID: wire.OwnID, FDs: []int{fd}}
		err = inKeeperTime(func(ctx context.Context) error { return b.vault.Put(ctx, *b.claim) })
	}
	if err != nil {
		log.Error().Err(err).Msg("the keeper has no lock that keeps another one from starting")
	}
}

func (b *before) tell(e vault.Exit) { b.exits.Tell(e.PID, pty.StatusOf(e.Status)) }

// sessionVault is nil, and not a nil *vault.Vault, where there is none.
func (b *before) sessionVault(log zerolog.Logger) session.Vault {
	if b.vault == nil {
		return nil
	}
	var ids []string
	for _, r := range b.records {
		ids = append(ids, r.ID)
	}
	return fdstore.Over(b.vault, ids, log)
}

func (b *before) heritage(s *self) session.Heritage {
	h := session.Heritage{Exits: b.exits, Own: b.own, Crashed: b.crashed, State: b.table, Adopted: b.progress()}
	if !b.own {
		h.State.Seq = s.seq()
	}
	for _, r := range b.records {
		if session.IsSession(r) {
			h.Records = append(h.Records, r)
		}
	}
	return h
}

// progressEvery is how often the keeper is told that sessions are still being adopted: some
// times in the shortest start_timeout.
const progressEvery = 200 * time.Millisecond

// progress returns a function that tells the keeper, which ends a supervisor that gets no
// further, that another session was adopted. Any goroutine may call it.
func (b *before) progress() func() {
	if b.vault == nil {
		return func() {}
	}
	var last atomic.Int64 // in ns since begun
	begun := time.Now()
	return func() {
		now, then := int64(time.Since(begun)), last.Load()
		if now-then >= int64(progressEvery) && last.CompareAndSwap(then, now) {
			_ = inKeeperTime(b.vault.Alive) // a keeper of an older release waits for ever
		}
	}
}

// inKeeperTime asks the keeper for something.
func inKeeperTime(ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), keeperTime)
	defer cancel()
	return ask(ctx)
}

// ready says that all is taken over: this program is one to go on with.
func (b *before) ready(log zerolog.Logger) {
	if b.vault == nil {
		return
	}
	if err := inKeeperTime(func(ctx context.Context) error { return b.vault.Ready(ctx, os.Args...) }); err != nil {
		log.Error().Err(err).Msg("the keeper does not know that this program is good")
	}
	if err := fdstore.Ready(); err != nil {
		log.Warn().Err(err).Msg("the service manager cannot be told")
	}
}

// keeperPID is the keeper's, 0 without one: it is this process's parent.
func (b *before) keeperPID() int {
	if b.vault == nil {
		return 0
	}
	return os.Getppid()
}

// quit lets the keeper end with us.
func (b *before) quit(log zerolog.Logger) {
	if b.vault == nil {
		return
	}
	if err := inKeeperTime(b.vault.Quit); err != nil {
		log.Error().Err(err).Msg("the keeper will start another supervisor")
	}
}

// selfRecord is the id of the record that is no session's: the listening socket, its
// lock, and a slate.
const selfRecord = "supervisor"

const (
	selfVersion = 1

	// Words of the slate.
	wordSeq     = 0 // the last event's number
	wordReading = 1 // how many dear reads (package linkserver) are worked on
	wordNoReads = 2 // until when none is: Unix time in ms
)

// noReadsTime is how long dear reads are refused after a supervisor that worked on one died by
// itself. Deaths of that cause so stay far below the keeper's crash limit, of five a minute.
const noReadsTime = time.Minute

// self is what stays the same as long as the sessions do, whoever serves them.
type self struct {
	Version  int               `json:"version"`
	Instance protocol.Instance `json:"instance"`
	Started  time.Time         `json:"started"`
	Upgrades int               `json:"upgrades"`
	Lost     int               `json:"lost"` // keepers

	slate *slate.Slate
	ln    *socket.Listener
	vault *vault.Vault
}

// self goes on with the socket and the name of the supervisor before, or begins.
func (b *before) self(path string, log zerolog.Logger) (*self, *socket.Listener, error) {
	refused := logging.Refuser(log)
	opts := socket.Options{OnRefuse: func(p socket.Peer, err error) { refused(p.UID, p.PID, err) }}
	var s *self
	for _, r := range b.records {
		if r.ID == selfRecord {
			var err error
			if s, err = adoptSelf(r, path, opts, log); err != nil {
				log.Error().Err(err).Msg("the socket is not what was left; a new one is made")
				b.letGo(r.ID)
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
	s.keep(log)
	return s, s.ln, nil
}

func (b *before) letGo(id string) {
	if b.vault == nil {
		return
	}
	_ = inKeeperTime(func(ctx context.Context) error { return b.vault.Delete(ctx, id) }) // it is put anew
}

// adoptSelf returns the socket, and what its slate says of it. If only the slate cannot be
// read, the socket stays: it then is served under another instance.
func adoptSelf(r vault.Record, path string, opts socket.Options, log zerolog.Logger) (*self, error) {
	var files []*os.File
	for _, fd := range r.FDs {
		files = append(files, os.NewFile(uintptr(fd), selfRecord))
	}
	if len(files) != 3 {
		for _, f := range files {
			_ = f.Close() // they are of no use
		}
		return nil, fmt.Errorf("%d files, not 3", len(files))
	}
	ln, err := socket.Adopt(path, files[:2], opts)
	if err != nil {
		_ = files[2].Close() // it was only read
		return nil, err
	}
	if _, err := ln.Check(); err != nil { // a supervisor of an older release may have removed it
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

// readSelf takes the file over.
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
		err = fmt.Errorf("version %d of instance %q", s.Version, s.Instance)
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

// keep writes down what we are, and has the keeper hold the socket.
func (s *self) keep(log zerolog.Logger) {
	data, err := json.Marshal(s)
	if err == nil {
		err = s.slate.Write(data)
	}
	if err != nil {
		log.Error().Err(err).Msg("not written down")
	}
	if s.vault == nil {
		return
	}
	r, free, err := s.record()
	if err == nil {
		err = inKeeperTime(func(ctx context.Context) error { return s.vault.Put(ctx, r) })
		free()
	}
	if err != nil {
		log.Error().Err(err).Msg("the keeper does not hold the socket")
	}
}

func (s *self) record() (r vault.Record, free func(), err error) {
	files, err := s.ln.Files()
	if err != nil {
		return r, nil, err
	}
	free = func() {
		for _, f := range files {
			_ = f.Close() // duplicates
		}
	}
	r = vault.Record{ID: selfRecord}
	for _, f := range append(files, s.slate.File()) {
		fd, err := session.Descriptor(f)
		if err != nil {
			free()
			return r, nil, err
		}
		r.FDs = append(r.FDs, fd)
	}
	return r, free, nil
}

// reading notes how many dear reads are worked on.
func (s *self) reading(n int) { _ = s.slate.SetWord(wordReading, uint64(n)) } // then a successor does not refuse them

// noReads returns until when dear reads are refused, as a supervisor has died by itself while
// it worked on one. crashed says that the one before this has died so.
func (s *self) noReads(crashed bool) time.Time {
	now, err := s.slate.Word(wordReading)
	until, untilErr := s.slate.Word(wordNoReads)
	if errors.Join(err, untilErr) != nil {
		return time.Time{}
	}
	if crashed && now > 0 {
		until = uint64(time.Now().Add(noReadsTime).UnixMilli())
		_ = s.slate.SetWord(wordNoReads, until) // this program refuses them anyway
	}
	s.reading(0)
	return time.UnixMilli(int64(until))
}

func (s *self) published(seq uint64) { _ = s.slate.SetWord(wordSeq, seq) } // then a successor's numbers begin too low

func (s *self) seq() uint64 {
	seq, err := s.slate.Word(wordSeq)
	if err != nil {
		return 0
	}
	return seq
}
