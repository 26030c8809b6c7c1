package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"holdfast/protocol"
	"holdfast/shared/machine"
	"holdfast/supervisor/internal/journal"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/vault"
)

// The roles of a session's files in its vault entry.
const (
	fileMaster   = "master"   // absent after the child has ended and its output is read
	fileRing     = "ring"     // with the journal's room
	fileState    = "state"    // a savedState, as JSON
	fileKeyframe = "keyframe" // the screen
	filePipe     = "pipe"     // of the journal; absent if it has none
	fileQueue    = "queue"    // of the journal, after it needed one
)

// entryMeta tells the roles of the files in a session's vault entry. Files with unknown roles
// are closed.
type entryMeta struct {
	Version int      `json:"version"`
	Files   []string `json:"files"`
	known
}

// known is what a vault entry itself tells of a session, for a successor that finds the state damaged.
type known struct {
	SessionID protocol.SessionID `json:"session,omitempty"` // absent in an entry of an older program
	PTY       *pty.State         `json:"pty,omitempty"`     // absent without a terminal; it may lack the child
}

const entryVersion = 1

// entryPrefix begins the id of each session in the vault.
const entryPrefix = "session "

// fileSet is the set of files from which a successor adopts a session. An absent file is nil, or
// -1 in journal.
type fileSet struct {
	master, ring, state, keyframe *os.File
	journal                       journal.Files
	known                         known
}

// noJournal stands for absent files of a journal.
var noJournal = journal.Files{Pipe: -1, Queue: -1}

// entry returns a vault entry of the files.
func (in *fileSet) entry(id string, pid int) (vault.Entry, error) {
	r := vault.Entry{ID: id, PID: pid}
	meta := entryMeta{Version: entryVersion, known: in.known}
	add := func(role string, fd int) { meta.Files, r.FDs = append(meta.Files, role), append(r.FDs, fd) }
	var err error
	for _, f := range []struct {
		role string
		file *os.File
	}{{fileMaster, in.master}, {fileRing, in.ring}, {fileState, in.state}, {fileKeyframe, in.keyframe}} {
		if f.file != nil {
			fd, unusable := machine.Descriptor(f.file)
			err = errors.Join(err, unusable)
			add(f.role, fd)
		}
	}
	if in.journal.Pipe >= 0 {
		add(filePipe, in.journal.Pipe)
	}
	if in.journal.Queue >= 0 {
		add(fileQueue, in.journal.Queue)
	}
	if err == nil {
		r.Meta, err = json.Marshal(meta)
	}
	return r, err
}

// openEntry opens the files of a vault entry. The entry must have files of the given roles. Its
// descriptors are used up, even if openEntry returns an error.
func openEntry(r vault.Entry, roles ...string) (*fileSet, error) {
	in := &fileSet{journal: noJournal}
	var meta entryMeta
	err := json.Unmarshal(r.Meta, &meta)
	if err == nil && (meta.Version != entryVersion || len(meta.Files) != len(r.FDs)) {
		err = fmt.Errorf("its version is %d, and it has %d descriptors for %d files", meta.Version, len(r.FDs), len(meta.Files))
	}
	if err != nil {
		meta.Files = make([]string, len(r.FDs)) // their roles are unknown, so the files are closed
	}
	in.known = meta.known
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
			err = fmt.Errorf("its file %q is missing", role)
		}
	}
	if err != nil {
		in.close()
		return nil, fmt.Errorf("unusable vault entry %q: %w", r.ID, err)
	}
	return in, nil
}

func (in *fileSet) close() {
	for _, f := range []*os.File{in.master, in.ring, in.state, in.keyframe} {
		if f != nil {
			_ = f.Close() // a duplicate, or a file that no code has used yet
		}
	}
	for _, fd := range []int{in.journal.Pipe, in.journal.Queue} {
		if fd >= 0 {
			_ = os.NewFile(uintptr(fd), "journal").Close()
		}
	}
}
