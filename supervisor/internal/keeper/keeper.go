//go:build linux || darwin

// Package keeper is the parent of the supervisor: it holds duplicates of the
// descriptors that must not be lost, starts the supervisor again when it has
// died, and collects the children that have lost it. It is hardly ever replaced, so
// it knows as little as can be, in less than 800 lines.
//
// Invariant: a record is let go of only because a supervisor said so, or because
// the keeper ends, which it does only in order. On doubt it holds: it never ends
// a supervisor that serves, and one that does not read costs it nothing. To end one that
// has never served loses no session.
//
// Not here: what is in a record, what is said on the socket (package wire), the
// supervisor's side, and what comes after a keeper that has died (package vault).
package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"holdfast/supervisor/internal/keeper/wire"
)

// Config says what to run. Fields with a default may be zero, and so may Records and Chosen.
type Config struct {
	Argv       []string                            // the supervisor's program, by path, and its arguments
	Log        func(line string)                   // must not block
	Held       func(deaths int)                    // told when nothing is started any more, until SIGHUP; the same
	Chosen     func() string                       // asked at SIGHUP: the path of the program to start next, or ""
	MemoryFile func(name string) (*os.File, error) // as that of shared/machine
	Records    []Record                            // held from the first start on; none replaces one that is held
	Backoff    time.Duration                       // before the second start in a minute, twice that before the third, ...; default 100 ms
	Deaths     int                                 // as many in a minute, and nothing is started any more; default 5

	// StartTime is how long a supervisor may take to serve, from its start, or from when
	// its process becomes another program, or from the last message before it serves. Then
	// it is ended. It doubles with each that is ended so, up to 16 times, and a default of 10 s so gives
	// the slowest machine minutes.
	StartTime time.Duration
	// GoodTime is how long a program must serve to be the one that is started when others
	// fail; default 10 s.
	GoodTime time.Duration
}

// A program is a supervisor's.
type program struct {
	FD     int      `json:"fd"`             // of its file; -1: only its path is known, Argv[0]
	Argv   []string `json:"argv,omitempty"` // nil: as configured
	Deaths int      `json:"deaths,omitempty"`
}

// A Record is what is held under an id, and whose exit is kept; pid 0 is not known yet.
type Record struct {
	ID   string `json:"-"`
	PID  int    `json:"pid,omitempty"`
	Meta []byte `json:"meta,omitempty"`
	FDs  []int  `json:"fds,omitempty"`
}

// An exit is how an orphan ended: its raw wait status, and when.
type exit struct {
	PID    int       `json:"pid"`
	Status uint32    `json:"status"`
	At     time.Time `json:"at"`
	untold bool      // the supervisor does not know
}

// maxExits leaves room for orphans that no record names: a shell may end before.
const maxExits = wire.MaxRecords + 4096

// state is what outlives a supervisor. As JSON it is a manifest: what is left to
// the next image of this process. Like the protocol it only ever grows.
type state struct {
	Version    int                `json:"version"`
	Records    map[string]*Record `json:"records"` // descriptors by number
	Exits      []exit             `json:"exits,omitempty"`
	Starts     int                `json:"starts"`
	Last       string             `json:"last,omitempty"` // how the supervisor before ended
	Status     uint32             `json:"status,omitempty"`
	Supervisor *child             `json:"supervisor"`       // nil: none runs
	Good       int                `json:"good,omitempty"`   // descriptor of the last program that served for GoodTime, or of the first that served
	Argv       []string           `json:"argv,omitempty"`   // as that one said; nil: as configured
	New        *program           `json:"new,omitempty"`    // the last that served, if it has not done so for GoodTime
	Next       *program           `json:"next,omitempty"`   // to be started next, as asked for
	Answer     uint64             `json:"answer,omitempty"` // seq of the exec
}

// lossless reports whether the keeper holds no more than its own lock.
func (s *state) lossless() bool {
	return len(s.Records) == 0 || len(s.Records) == 1 && s.Records[wire.OwnID] != nil
}

func (s *state) load(fd int) error {
	f := os.NewFile(uintptr(fd), "manifest")
	defer f.Close()
	err := json.NewDecoder(io.NewSectionReader(f, 0, 1<<40)).Decode(s)
	if err == nil && s.Version != wire.Version {
		err = fmt.Errorf("a manifest of version %d", s.Version)
	}
	return err
}

// fds are all that another image goes on with; -1 is none.
func (s *state) fds() (fds []int) {
	fds = []int{s.Good}
	for _, p := range []*program{s.New, s.Next} {
		if p != nil {
			fds = append(fds, p.FD)
		}
	}
	if s.Supervisor != nil {
		fds = append(fds, s.Supervisor.Socket)
	}
	for _, r := range s.Records {
		fds = append(fds, r.FDs...)
	}
	return fds
}

// put takes the descriptors over, or leaves them to the caller with an error.
func (s *state) put(r *Record) error {
	total, old := len(r.Meta), s.Records[r.ID]
	for id, other := range s.Records {
		if id != r.ID {
			total += len(other.Meta)
		}
	}
	switch {
	case r.ID == "" || len(r.ID) > wire.MaxID || len(r.Meta) > wire.MaxMeta || r.PID < 0:
		return errors.New("no record may be like this")
	case old == nil && len(s.Records) >= wire.MaxRecords || total > wire.MaxMetaTotal:
		return errors.New("no more can be held")
	case old != nil:
		wire.Close(old.FDs)
	}
	s.Records[r.ID] = r
	s.name(r, r.PID)
	return nil
}

// name drops the exit of a pid that is alive: it was another process's. One of a
// pid that is gone may be this record's, whose supervisor died before it said so.
func (s *state) name(r *Record, pid int) {
	r.PID = pid
	if pid > 0 && syscall.Kill(pid, 0) == nil {
		s.dropExit(pid)
	}
}

func (s *state) delete(id string) {
	r := s.Records[id]
	wire.Close(r.FDs)
	delete(s.Records, id)
	s.dropExit(r.PID)
}

func (s *state) dropExit(pid int) {
	s.Exits = slices.DeleteFunc(s.Exits, func(e exit) bool { return e.PID == pid })
}

// ended keeps how an orphan ended, in place of old ones that no record names.
func (s *state) ended(pid int, status uint32) {
	s.dropExit(pid)
	s.Exits = append(s.Exits, exit{pid, status, time.Now(), true})
	if len(s.Exits) > maxExits {
		named, at := map[int]bool{}, s.Exits[maxExits/4].At
		for _, r := range s.Records {
			named[r.PID] = true
		}
		s.Exits = slices.DeleteFunc(s.Exits, func(e exit) bool { return !named[e.PID] && e.At.Before(at) })
	}
}
