package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/logging"
	"holdfast/shared/machine"
	"holdfast/shared/socket"
	"holdfast/supervisor/internal/slate"
	"holdfast/supervisor/internal/vault"
)

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
