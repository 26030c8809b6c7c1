package session

import (
	"maps"
	"slices"

	"holdfast/protocol"
)

// The info of a session is read far more often than it changes: by each list, each info request
// and each proxy's hello. Therefore loop publishes it, and readers use the last published
// value. They do not wait for a loop that is busy with output.
//
// A client still reads its own changes. do publishes before it returns, so that a client that
// has received the answer to a resize reads the new size.

// publish replaces the published info if it has changed. A published value is never modified;
// Info adds recent offsets and times to a copy. loop calls publish after each piece of work, so
// publish must not allocate while only output arrives.
func (s *Session) publish() {
	old := s.published.Load()
	title, cwd := s.display.titles()
	if old != nil && !s.isUnpublished && old.State == s.saved.State && old.Size == s.size &&
		old.Title == title && old.CurrentCwd == cwd && old.Command == s.saved.Command {
		return
	}
	s.isUnpublished = false
	info := s.info()
	if s.isAside { // to all readers this instance is forgotten
		info.State = protocol.StateForgotten
	}
	s.published.Store(&info)
	s.recording.changed()
}

// Info returns the current info of the session. It does not wait for loop.
//
// Errors: session_not_found if the session was forgotten.
func (s *Session) Info() (protocol.SessionInfo, error) {
	i := *s.published.Load()
	if i.State == protocol.StateForgotten || s.isGone() {
		return protocol.SessionInfo{}, notFound(s.id)
	}
	i.RingStart, i.OutputOffset, _ = s.ring.Bounds()
	i.LastIOAt, i.Frozen = s.activity.lastIO(s.cfg.Now()), s.cage.frozen.Load()
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

// publishEvent publishes an event with the present info of the session. It is called in loop.
func (s *Session) publishEvent(kind protocol.EventKind) {
	info := s.info()
	s.hub.Publish(kind, &info, nil)
}
