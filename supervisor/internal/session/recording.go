package session

import (
	"cmp"
	"errors"
	"io/fs"
	"sync/atomic"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/recorder"
	"holdfast/supervisor/internal/replay"
)

// recording tells whether a session has a recording on disk, and has the commands for its description. It counts the clears,
// because the recording must not have the lines that were cleared. Any goroutine may call its methods, but only loop those that say so.
type recording struct {
	*identity
	recorder *recorder.Recorder // nil: nothing is stored
	mode     protocol.Durable

	isOpen    bool                                   // the recorder has the session; owned by loop
	isStopped atomic.Bool                            // the session has ended with the machine; see endWithMachine
	isLocked  bool                                   // the machine has lost the session, and its recording cannot be read without its key
	lost      *protocol.Lost                         // not nil if the machine has lost the session; its recording made it
	clears    atomic.Uint64                          // how often lines were cleared
	clearedTo atomic.Uint64                          // offset of the last Clear, or 0; it is set before clears
	last      atomic.Pointer[[]protocol.CommandInfo] // the last ended commands, without secrets
}

// use connects the recording with the session.
func (r *recording) use(i *identity, cfg *Config) {
	r.identity, r.recorder, r.mode = i, cfg.Recorder, cmp.Or(i.spec.Durable, cfg.Durable)
}

// isStored reports whether anything of the session is stored on disk.
func (r *recording) isStored() bool { return r.recorder != nil && r.mode != protocol.DurableOff }

// begin passes the session to the recorder. Only loop may call it, or the goroutine that starts loop.
func (r *recording) begin(s recorder.Source, ended commandLog) {
	r.isOpen = true
	r.keepCommands(ended)
	r.recorder.Add(s, past.Mode(r.mode))
}

// endWithMachine stores that the shutdown of the machine has ended the session, although the exit record says that the
// child has ended by itself. The session must have its exit record.
func (r *recording) endWithMachine(s recorder.Source) {
	r.isStopped.Store(true)
	r.recorder.Add(s, past.Mode(r.mode)) // the recording may be complete
}

// changed tells the recorder that the description of the session has changed. Only loop may call it.
func (r *recording) changed() {
	if r.isOpen {
		r.recorder.Poke(r.life())
	}
}

// erase erases the recording, because a user has forgotten the session. A session that is not stored may have a
// recording, too, from before the setting was changed.
func (r *recording) erase() {
	if r.recorder != nil {
		r.recorder.Forget(r.life())
	}
}

var errNotErased = errors.New("the disk fails or does not answer; they are erased when it works again")

// renew replaces the recording by one without the lines that were cleared, or erases it if the session is not stored any
// more. It waits at most for the given time.
func (r *recording) renew(within time.Duration) error {
	if r.recorder == nil {
		return nil
	}
	if r.isStored() {
		return r.recorder.Renew(r.life(), within)
	}
	r.recorder.Forget(r.life())
	if left := r.recorder.AwaitErased(within, func(l past.Life) bool { return l == r.life() }); len(left) > 0 {
		return errNotErased
	}
	return nil
}

// storeLabels stores the labels of a lost session.
func (r *recording) storeLabels(labels map[string]string, limits protocol.Limits) {
	spec, err := r.identity.save(labels, limits)
	if err != nil || r.recorder == nil {
		return // the spec came as JSON, so it can be encoded
	}
	r.recorder.ChangeMeta(r.life(), func(m *past.Meta) { m.Labels, m.Spec = labels, spec })
}

// keepCommands makes the last ended commands a part of the description of the session. Only loop may call it.
func (r *recording) keepCommands(ended commandLog) {
	if !r.isOpen {
		return
	}
	last := lastOf(ended)
	for i := range last {
		last[i] = *maskCommand(&last[i], r.masker)
	}
	r.last.Store(&last)
}

// commands returns the commands that keepCommands has kept.
func (r *recording) commands() []protocol.CommandInfo {
	if last := r.last.Load(); last != nil {
		return *last
	}
	return nil
}

// markCommands marks the output of the commands that have ended. Only loop may call it.
func (r *recording) markCommands(events []commandEvent) {
	for _, e := range events {
		if p, ok := pastCommand(*maskCommand(&e.command, r.masker)); ok && r.isOpen && e.kind == protocol.EventCommandFinished {
			r.recorder.Mark(r.life(), past.Note{Offset: p.End, Kind: replay.MarkCommand, Text: replay.EncodeCommand(p, past.MaxMark)})
		}
	}
}

// open returns a reader of the recording. It returns nil if nothing is stored yet, if the recording
// cannot be read without a key, or if it may still have lines that were cleared: its count of clears
// is below the given one.
func (r *recording) open(clears uint64) (*past.Reader, error) {
	stored, err := r.recorder.Store().Open(r.life())
	if err == nil && clears > 0 {
		var m past.Meta
		if m, err = stored.Meta(); m.Clears < clears {
			stored = nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, past.ErrLocked) { // nothing is stored yet, or nothing that can be read
		return nil, nil
	}
	return stored, err
}

// RecordingStatus counts the sessions that cannot be stored, and the lost sessions with recordings
// that cannot be read. It returns nil if there is neither.
func (t *Table) RecordingStatus() *protocol.RecordingStatus {
	if t.cfg.Recorder == nil {
		return nil
	}
	var st protocol.RecordingStatus
	if c, err := t.cfg.Recorder.Counts(); c.Failing > 0 && err != nil {
		st.Failing, st.Error = int(c.Failing), err.Error()
	}
	all, _ := t.registry.all()
	for _, s := range all {
		if s.recording.isLocked {
			st.Sealed++
		}
	}
	if st == (protocol.RecordingStatus{}) {
		return nil
	}
	return &st
}

// eraseTime is how long an upgrade, and the end of the supervisor, wait until the recordings of forgotten sessions are
// erased.
const eraseTime = 500 * time.Millisecond

// awaitErased waits until the recordings of the forgotten sessions with an id are erased, or those of
// all forgotten sessions if id is empty. After the given time it returns the lives that the disk may
// still have.
func (t *Table) awaitErased(within time.Duration, id protocol.SessionID) []past.Life {
	if t.cfg.Recorder == nil {
		return nil
	}
	return t.cfg.Recorder.AwaitErased(within, func(l past.Life) bool { return id == "" || l.ID == id })
}

// eraseFor erases the recordings of the sessions that a predecessor has forgotten.
func (t *Table) eraseFor(forgotten []past.Life) {
	for _, l := range forgotten {
		if t.cfg.Recorder != nil {
			t.cfg.Recorder.Forget(l)
		}
	}
}
