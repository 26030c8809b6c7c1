//go:build linux || darwin

package keeper

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/supervisor/internal/keeper/message"
)

// An Entry is a vault entry.
type Entry = message.Entry

// An exit is the raw wait status of an orphan, and when it was collected.
type exit struct {
	PID      int       `json:"pid"`
	Status   uint32    `json:"status"`
	At       time.Time `json:"at"`
	isUnsent bool      // the supervisor does not know it yet
}

// maxExits leaves room for orphans that no entry names, because a shell may end
// before its entry has its pid.
const maxExits = message.MaxRecords + 4096

// state is everything that outlives a supervisor. Encoded as JSON it is the manifest
// for the next program of this process. Fields may be added to the manifest, and
// never removed or changed, because an older or newer program reads it.
type state struct {
	Version    int               `json:"version"`
	Entries    map[string]*Entry `json:"records"` // descriptors by number
	Exits      []exit            `json:"exits,omitempty"`
	Starts     int               `json:"starts"`
	Last       string            `json:"last,omitempty"`   // how the last supervisor ended, as text
	Status     uint32            `json:"status,omitempty"` // its wait status
	Supervisor *child            `json:"supervisor"`       // nil: none runs
	Good       int               `json:"good,omitempty"`   // descriptor of the last program that served for GoodTime, or of the first that served
	Argv       []string          `json:"argv,omitempty"`   // arguments of that program; nil: as configured
	New        *program          `json:"new,omitempty"`    // the last program that served, until it has done so for GoodTime
	Next       *program          `json:"next,omitempty"`   // the program to start next, by request
	Answer     uint64            `json:"answer,omitempty"` // seq of the exec request
}

// A program is a supervisor's program.
type program struct {
	FD     int      `json:"fd"`             // descriptor of its file; -1: only its path, Argv[0], is known
	Argv   []string `json:"argv,omitempty"` // nil: as configured
	Deaths int      `json:"deaths,omitempty"`
}

// holdsNoSession reports whether the keeper holds no entry except its own lock.
func (s *state) holdsNoSession() bool {
	return len(s.Entries) == 0 || len(s.Entries) == 1 && s.Entries[message.OwnID] != nil
}

// load reads a manifest from the start of a file, and closes the descriptor.
func (s *state) load(fd int) error {
	f := os.NewFile(uintptr(fd), "manifest")
	defer f.Close()
	const unlimited = 1 << 40
	err := json.NewDecoder(io.NewSectionReader(f, 0, unlimited)).Decode(s)
	if err == nil && s.Version != message.Version {
		err = fmt.Errorf("manifest has version %d, this program reads version %d", s.Version, message.Version)
	}
	return err
}

// descriptors returns all descriptors that the next program must inherit; -1 is none.
func (s *state) descriptors() []int {
	fds := []int{s.Good}
	for _, p := range []*program{s.New, s.Next} {
		if p != nil {
			fds = append(fds, p.FD)
		}
	}
	if s.Supervisor != nil {
		fds = append(fds, s.Supervisor.Socket)
	}
	for _, e := range s.Entries {
		fds = append(fds, e.FDs...)
	}
	return fds
}

// putEntry adds an entry, or replaces the entry of the same id. The state then owns the
// entry's descriptors; with an error they stay the caller's.
func (s *state) putEntry(e *Entry) error {
	total, old := len(e.Meta), s.Entries[e.ID]
	for id, other := range s.Entries {
		if id != e.ID {
			total += len(other.Meta)
		}
	}
	switch {
	case e.ID == "" || len(e.ID) > message.MaxID || len(e.Meta) > message.MaxMeta || e.PID < 0:
		return fmt.Errorf("invalid vault entry: id is empty or longer than %d bytes, metadata exceeds %d KiB, or pid is negative", message.MaxID, message.MaxMeta>>10)
	case old == nil && len(s.Entries) >= message.MaxRecords || total > message.MaxMetaTotal:
		return fmt.Errorf("vault is full: it holds at most %d entries and %d MiB of metadata", message.MaxRecords, message.MaxMetaTotal>>20)
	case old != nil:
		message.Close(old.FDs)
	}
	s.Entries[e.ID] = e
	s.setPID(e, e.PID)
	return nil
}

// setPID sets the pid of an entry. If the process lives, a kept exit status of that pid
// belongs to an earlier process and is dropped. If it does not live, the exit status may be
// that of this entry, because its supervisor may have died before it reported the pid.
func (s *state) setPID(e *Entry, pid int) {
	e.PID = pid
	if pid > 0 && syscall.Kill(pid, 0) == nil {
		s.dropExit(pid)
	}
}

// deleteEntry releases an entry, its descriptors and the exit status of its pid.
func (s *state) deleteEntry(id string) {
	e := s.Entries[id]
	message.Close(e.FDs)
	delete(s.Entries, id)
	s.dropExit(e.PID)
}

func (s *state) dropExit(pid int) {
	s.Exits = slices.DeleteFunc(s.Exits, func(e exit) bool { return e.PID == pid })
}

// recordExit keeps the exit status of an orphan. Above the limit it drops the oldest
// quarter of those that no entry names.
func (s *state) recordExit(pid int, status uint32) {
	s.dropExit(pid)
	s.Exits = append(s.Exits, exit{pid, status, time.Now(), true})
	if len(s.Exits) <= maxExits {
		return
	}
	isNamed, cutoff := map[int]bool{}, s.Exits[maxExits/4].At
	for _, e := range s.Entries {
		isNamed[e.PID] = true
	}
	s.Exits = slices.DeleteFunc(s.Exits, func(e exit) bool { return !isNamed[e.PID] && e.At.Before(cutoff) })
}

// closeProgram closes the descriptor of a program's file. An error is ignored, because
// the descriptor is gone in either case, and -1 is a valid value.
func closeProgram(fd int) { _ = unix.Close(fd) }
