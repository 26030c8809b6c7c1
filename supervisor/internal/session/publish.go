package session

import (
	"maps"
	"slices"
	"sync"
	"time"

	"holdfast/protocol"
)

// What is known of a session is read far more often than it changes: by each list, each
// info and each proxy's hello. So loop publishes it, and readers take what was published
// last. They do not wait for a loop that is busy with the output of its program.
//
// The order holds all the same: do publishes before it returns, so that a client that has
// had the answer to a resize reads the new size.

// publish replaces what others read, if that has changed. What was published is never
// changed; Info adds to a copy what has moved since. loop calls publish after each piece of
// work, so that it allocates nothing while only output comes.
func (s *Session) publish() {
	old := s.published.Load()
	title, cwd := s.titles()
	if old != nil && !s.unpublished && old.State == s.state && old.Size == s.size &&
		old.Title == title && old.CurrentCwd == cwd && old.Command == s.commands.info {
		return
	}
	s.unpublished = false
	info := s.info()
	if s.isAside { // for all others it is forgotten
		info.State = protocol.StateForgotten
	}
	s.published.Store(&info)
}

// Info returns what is known of the session now. It does not wait for loop.
//
// Errors: session_not_found for a session that was forgotten.
func (s *Session) Info() (protocol.SessionInfo, error) {
	i := *s.published.Load()
	if i.State == protocol.StateForgotten || isClosed(s.gone) {
		return protocol.SessionInfo{}, notFound(s.id)
	}
	i.RingStart, i.OutputOffset, _ = s.ring.Bounds()
	i.LastIOAt, i.Frozen = s.lastIO.get(), s.stopped.Load()
	i.Argv, i.Labels, i.Viewers = slices.Clone(i.Argv), maps.Clone(i.Labels), slices.Clone(i.Viewers)
	if i.Exit != nil {
		exit := copyExit(i.Exit)
		i.ExitCode, i.Exit = &exit.ExitCode, exit
	}
	return i, nil
}

func copyExit(exit *protocol.ExitRecord) *protocol.ExitRecord {
	c := *exit
	c.Tail, c.LastLines, c.Survivors = slices.Clone(c.Tail), slices.Clone(c.LastLines), slices.Clone(c.Survivors)
	return &c
}

// An instant is a time that loop sets with each piece of output, and that others read.
type instant struct {
	mu sync.Mutex
	at time.Time
}

func (i *instant) set(at time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.at = at
}

func (i *instant) get() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.at
}
