package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

const (
	maxAttachments = 1024 // of one session
	// Accepted input is acknowledged at once if ackBytes are unacknowledged, otherwise after
	// ackDelay. The delay lets the echo of a keystroke reach the viewer before the
	// acknowledgement.
	ackBytes = 32 << 10
	ackDelay = 20 * time.Millisecond
)

// Attachment is one client's view of a session. It holds a position in the ring and no queue, and the
// snapshot with which it begins until the viewer has received it (held.go). A viewer that the ring has
// overtaken receives a new one.
//
// Only one goroutine may call Next. Any goroutine may call the other methods. Close must be
// called, also after Next has returned io.EOF.
type Attachment struct {
	s      *Session
	spec   protocol.AttachSpec
	shadow bool   // not counted as a viewer
	number uint64 // order of arrival among the viewers
	since  time.Time
	wake   chan struct{}
	cancel sync.Once
	pacer  pacer // has a copy of pos for other goroutines

	// Owned by the session's loop.
	window   protocol.Size // size of the viewer's terminal; zero if unknown
	noOutput bool          // the viewer receives no output: it has a view of its own, or no content yet
	focused  bool
	pictureRenewal
	inPaste bool // the writer's input so far ends within a bracketed paste

	// Owned by the goroutine that calls Next.
	pos          uint64
	size         protocol.Size // the terminal size that the viewer knows; zero if it knows none
	receivedTo   uint64        // the viewer has received the queries before this offset, although it receives that output again
	left         int           // bytes of the snapshot that are not yet delivered
	snapshotSize protocol.Size
	queryMask    screen.Mask
	cover        screen.PictureCover
	masked       maskedOutput
	fitsWindow   bool        // snapshot and output are for a terminal of the viewer's own size
	view         *screen.Own // state of the viewer's own view; nil if the viewer receives the session's output
	viewUpdate   []byte      // changes of the view that are not yet delivered
	viewDue      time.Time   // earliest time of the next update

	held *heldSnapshot // until the snapshot is delivered or dropped; the session's held owns it

	alike atomic.Uint32 // the picture.Formats of which the viewer receives the program's bytes; loop changes it

	mu        sync.Mutex
	phase     phase
	thief     string // the client that attached in the place of this one, if the phase is stolen
	detached  bool   // the thief has only ended this attachment, and leaves
	renewal   renewal
	viewTimer bool // a timer runs until viewDue
	acks      acks
	echo      inputEcho
}

// Attach adds a viewer. The returned info tells how the viewer is brought up to date: by a
// replay of output or by a snapshot. The size policy decides whether the viewer's window
// changes the size of the session. It never does if cols and rows are zero, if the viewer is
// read-only or resumes, or if another viewer decides.
//
// Errors: session_exited, unless the viewer can resume from before the end; already_attached;
// superseded; instance_mismatch; limit_exceeded; permission_denied if a read-only viewer names
// the writer of a viewer that may write; invalid_argument if the offset has not been printed
// yet, unless the session is lost; internal if the viewer resumes, and the journal of its input was damaged; ctx's, if
// ctx ends while the session is busy.
func (s *Session) Attach(ctx context.Context, spec protocol.AttachSpec) (*Attachment, protocol.AttachInfo, error) {
	if spec.Mode == "" {
		spec.Mode = protocol.ModeShared
	}
	if spec.Writer == "" {
		spec.Writer = protocol.NewToken(8)
	}
	return s.newAttachment(ctx, spec, false)
}

// Shadow adds an attachment that observes the session in order to record it, or to compare it with what another
// proxy shows. A shadow counts towards the limit of attachments, but it is no viewer: no event
// reports it and the size does not depend on it. It has a random writer, whatever spec says, so
// that it replaces no other attachment.
//
// Errors: those of Attach, and invalid_argument if the mode is not read_only.
func (s *Session) Shadow(ctx context.Context, spec protocol.AttachSpec) (*Attachment, protocol.AttachInfo, error) {
	if spec.Mode != protocol.ModeReadOnly {
		return nil, protocol.AttachInfo{}, protocol.Errorf(protocol.CodeInvalidArgument, "a shadow attachment must have the mode read_only")
	}
	spec.Writer = protocol.NewToken(8)
	return s.newAttachment(ctx, spec, true)
}

func (s *Session) newAttachment(ctx context.Context, spec protocol.AttachSpec, shadow bool) (*Attachment, protocol.AttachInfo, error) {
	a := &Attachment{s: s, spec: spec, shadow: shadow, wake: make(chan struct{}, 1), pacer: pacer{moved: make(chan struct{}, 1)}, noOutput: true}
	if window, ok := spec.OwnSize(); ok {
		a.window = window
	}
	var info protocol.AttachInfo
	var err error
	if err = s.requestWhile(ctx, answerTime, func() error { info, err = s.attach(a); return err }); err != nil {
		return nil, info, err
	}
	return a, info, nil
}

func (s *Session) attach(a *Attachment) (protocol.AttachInfo, error) {
	var none protocol.AttachInfo
	s.display.restoreDropped()
	exit := s.exit
	_, end, _ := s.ring.Bounds()
	if s.isLost() { // its stored screen can be attached
		exit = nil
		if r := a.spec.Resume; r != nil && r.Offset > end { // the viewer has output that was not stored
			a.spec.Snapshot, a.spec.ScreenOnly, end = true, true, r.Offset
		}
	}
	spec := a.spec
	count := len(s.viewers.attached)
	if !a.shadow {
		own, _ := s.viewers.conflicts(a)
		count -= len(own) // a replaces them
	}
	if err := s.checkAttach(spec, exit, count, end); err != nil {
		return none, err
	}
	isReplacement := false
	if a.shadow {
		s.viewers.add(a)
	} else if replaces, err := s.admit(a); err != nil {
		return none, err
	} else {
		isReplacement = replaces
	}
	info := protocol.AttachInfo{Writer: spec.Writer, Replay: protocol.ReplayExact, InputOffset: a.acks.accepted}
	s.feed()
	s.viewers.updatePictures(s.saved.Appearance)
	start := a.begin(resumable{s.ring, s.size, max(s.recording.clearedTo.Load(), s.saved.ClearEnd)}, &info, func(screenOnly bool) (start uint64) {
		s.display.finishRestore() // output continues during the restoration, so the bounds must be read after it
		start, _, _ = s.ring.Bounds()
		a.takeSnapshot(screenOnly)
		if spec.Resume != nil { // the viewer does not receive the output up to the snapshot
			s.answerFor(spec.Writer, spec.Resume.Offset)
		}
		return start
	})
	if spec.Resume == nil || a.fitsWindow { // a viewer that resumes may have missed a change of size, so its first item tells the size
		a.size = s.size
	}
	if !a.shadow {
		s.chooseResponder()
	}
	s.ringHolders.Add(1)
	s.ring.Watch(a.wake)
	info.Session = s.info()
	info.Session.RingStart = start // BytesMissed was counted from there
	if !a.shadow && !isReplacement {
		s.hub.Publish(protocol.EventAttached, &info.Session, nil)
	}
	return info, nil
}

// checkAttach returns the error of an attach request that the session refuses to every client. exit
// is the exit record if the session has no new viewers any more, count the number of the attachments
// that stay beside the new one, and end the end of its output. Errors: instance_mismatch, session_exited, limit_exceeded,
// invalid_argument.
func (i *identity) checkAttach(spec protocol.AttachSpec, exit *protocol.ExitRecord, count int, end uint64) error {
	r := spec.Resume
	switch {
	case r != nil && r.Instance != i.instance:
		return protocol.Errorf(protocol.CodeInstanceMismatch, "session %s is instance %s, not %s; attach without resume", i.id, i.instance, r.Instance)
	case r == nil && exit != nil:
		return exitedError(i.id, exit)
	case count >= maxAttachments:
		return protocol.Errorf(protocol.CodeLimitExceeded, "session %s has %d attachments, which is the limit; detach one", i.id, count)
	case r != nil && r.Offset > end:
		return protocol.Errorf(protocol.CodeInvalidArgument, "cannot resume at offset %d: the output ends at %d", r.Offset, end)
	}
	return nil
}

// admit makes a a viewer and an attachment of its writer, unless one of the errors of Attach
// applies. It reports whether a has replaced an earlier attachment of the same writer. A viewer
// may attach again over another proxy or connection while its earlier attachment still exists,
// for example during a handoff. The number of viewers does not change then, so no event is
// published.
func (s *Session) admit(a *Attachment) (isReplacement bool, err error) {
	j, name := s.input.journal, a.spec.Writer
	if a.spec.Resume != nil {
		if err := s.saved.doubtedInput.check(s.id, name); err != nil {
			return false, err
		}
	}
	accepted, attempt, err := j.Writer(name)
	if err != nil {
		return false, fmt.Errorf("session %s: %w", s.id, err)
	}
	if err := s.checkWriter(a.spec, attempt, j.Move(name), accepted > 0 || s.viewers.canWrite(name)); err != nil {
		return false, err
	}
	if isReplacement, err = s.replaceRivals(a); err != nil {
		return false, err
	}
	if err := errors.Join(j.SetAttempt(name, max(attempt, a.spec.Attempt), a.spec.Move), j.Attach(name)); err != nil {
		s.viewerLeft()
		return false, fmt.Errorf("session %s: %w", s.id, err) // cannot happen, because the writer was found above
	}
	s.saved.beginAnew(name) // join notes the change
	a.acks = acks{accepted: accepted, acknowledged: accepted}
	s.join(a)
	return isReplacement, nil
}

// checkWriter returns the error of an attach request that comes too late, or that must not use the
// name of its writer. attempt and move are those of the last request of the writer; isWriter tells
// that the writer may write, or has written. Errors: superseded, permission_denied.
func (i *identity) checkWriter(spec protocol.AttachSpec, attempt, move uint64, isWriter bool) error {
	switch {
	case isLate(spec, attempt, move):
		return protocol.Errorf(protocol.CodeSuperseded, "a later attach request of the same client has reached session %s; this one is void", i.id)
	case isWriter && spec.Mode == protocol.ModeReadOnly:
		return protocol.Errorf(protocol.CodePermissionDenied, "a read-only attachment to session %s cannot use the name of a writer that may write, or has written; choose another writer, or none", i.id)
	}
	return nil
}

// isLate reports whether an attach request is older than another one of the same writer, which
// had the given attempt and move. A client numbers its attempts; a proxy numbers how often it
// has passed an attempt on. A request without numbers is never late.
func isLate(spec protocol.AttachSpec, attempt, move uint64) bool {
	if spec.Attempt > 0 && spec.Attempt != attempt {
		return spec.Attempt < attempt
	}
	return spec.Move > 0 && spec.Move < move
}

// join adds a to the viewers and applies its window to the session's size. join must come
// before a's snapshot is taken, because the snapshot has the resulting size.
func (s *Session) join(a *Attachment) {
	returns, wasLost := s.viewers.join(a, &s.saved.AttachCount, s.cfg.Now())
	if wasLost {
		a.noteMissedInput()
		if a.focused {
			s.reportFocus()
		}
	}
	s.viewerCame(a, returns)
	if len(a.spec.Env) > 0 && a.canWrite() && (!returns || s.saved.ViewerEnv == nil) { // a lost viewer has sent it before
		s.saved.ViewerEnv = slices.Clone(a.spec.Env)
	}
	s.noteChange()
	fresh := a.spec.Resume == nil
	if s.saved.Decider == "" || fresh && s.viewers.canDecide(a, s.saved.Decider) {
		s.decide(a)
	}
	s.adoptAppearance(a)
	if fresh {
		s.applySizePolicy()
	}
	s.reader.viewerCame(a)
}

// replaceRivals ends the attachments that cannot exist beside a: those of the same writer, and
// with Steal those that exclude a or that a excludes. An attachment of the same writer belongs
// to a connection that its client has given up, so it is ended without Steal. replaceRivals
// reports whether there was such an attachment. Errors: already_attached.
func (s *Session) replaceRivals(a *Attachment) (isReplacement bool, err error) {
	own, rivals := s.viewers.conflicts(a)
	if len(rivals) > 0 && !a.spec.Steal {
		rival := cmp.Or(rivals[0].spec.Client, "another client")
		return false, protocol.Errorf(protocol.CodeAlreadyAttached, "session %s is attached by %s; attach with steal to replace it", s.id, rival)
	}
	for _, other := range own {
		a.number, a.since = other.number, other.since
		a.inheritEcho(other)
		a.inheritFocus(other)
		a.inPaste = other.inPaste
	}
	for _, other := range append(own, rivals...) {
		s.end(other, a)
	}
	return len(own) > 0, nil
}

// takeSnapshot sets a's snapshot and position. It is called in loop, or under afterLoop. a's
// Next must not be running, unless Next itself called takeSnapshot.
func (a *Attachment) takeSnapshot(screenOnly bool) {
	s := a.s
	history := protocol.DefaultHistory
	if h := a.spec.History; h != nil {
		history = *h
	}
	if screenOnly {
		history = 0
	}
	shown := s.display.shownSize()
	size := shown
	if a.fitsWindow = a.ownView(); a.fitsWindow {
		size, a.size = a.window, shown
	}
	var pos uint64
	var snapshot []byte
	s.held.release(a) // before the next one is made, so that only one takes memory
	s.display.useRestored(func(sc *screen.Screen) { snapshot, pos = sc.Snapshot(history, size, a.spec.Appearance) })
	if s.saved.Degraded { // there is no screen, so the viewer receives the output that the ring has
		snapshot, shown, size = nil, s.size, s.size
		a.fitsWindow = false
		start, _, _ := s.ring.Bounds()
		pos = max(start, s.recording.clearedTo.Load())
	}
	a.noteReceived()
	a.moveTo(pos)
	a.snapshotSize = shown
	a.noOutput = size != shown
	a.mu.Lock()
	a.renewal = noRenewal
	if a.fitsWindow && shown != s.size { // the screen has not reached the last resize yet
		a.renewal = newSnapshot
	}
	a.mu.Unlock()
	a.left = len(snapshot)
	s.held.hold(a, snapshot)
	a.view, a.viewUpdate = nil, nil
	if a.noOutput {
		a.view = screen.NewOwn(size, a.spec.Appearance)
	}
	a.queryMask, a.cover, a.masked = screen.Mask{}, screen.PictureCover{}, maskedOutput{}
	s.idle.touch()
}

// noteReceived notes which queries the viewer has received, before it moves to a snapshot. If the screen is behind, the viewer
// receives the output after the snapshot again. An attachment that does not resume may have the terminal of an earlier one, of
// which the session knows only what it has answered.
func (a *Attachment) noteReceived() {
	a.receivedTo = max(a.receivedTo, a.pos)
	if r := a.spec.Resume; r != nil {
		a.receivedTo = max(a.receivedTo, r.Offset)
	} else if !a.shadow {
		a.receivedTo = max(a.receivedTo, a.s.answers.answeredTo(a.spec.Writer))
	}
}

// end removes an attachment from the session. by is the attachment that takes its place, or nil.
func (s *Session) end(a, by *Attachment) {
	if !s.viewers.has(a) {
		return
	}
	s.viewers.remove(a, by)
	s.idle.touch() // the screen was not dropped while a was attached
	s.noteChange()
	s.ring.Unwatch(a.wake)
	s.held.release(a)
	if a.shadow {
		return
	}
	s.input.journal.Detach(a.spec.Writer)
	if by == nil || by.spec.Writer != a.spec.Writer { // otherwise by responds in its place, or the session when by is attached
		s.chooseResponder()
	}
	if a.focused {
		a.focused = false
		s.reportFocus()
	}
	s.reader.viewerLeft(a)
	if a.canWrite() {
		s.saved.Away.viewers--
	}
	if by == nil { // otherwise another viewer is about to be added
		s.viewerLeft()
	}
	if by != nil && by.spec.Writer == a.spec.Writer {
		return
	}
	if _, isLost := s.viewers.lost[a.spec.Writer]; !isLost { // a lost viewer may still answer
		s.answerFor(a.spec.Writer, 0)
	}
	s.publishEvent(protocol.EventDetached)
}

// end ends the attachment. by is the attachment that takes its place, or nil.
func (a *Attachment) end(by *Attachment) {
	if by == nil {
		a.change(onDetach)
		return
	}
	a.mu.Lock()
	a.thief, a.detached = by.spec.Client, by.spec.Detach
	a.mu.Unlock()
	a.change(onSteal)
}

// Writer returns the name under which the input of this attachment counts.
func (a *Attachment) Writer() string { return a.spec.Writer }

// Close ends the attachment of a viewer after its connection was lost. The session keeps the
// viewer's window in its size for reconnectTime. Close may be called again.
func (a *Attachment) Close() {
	a.close(func() {
		if a.checkAttached() == nil {
			a.s.viewers.addLost(a)
			a.s.end(a, nil)
		}
	})
}

// Detach ends the attachment of a viewer that leaves on purpose. Its window stops counting at
// once.
func (a *Attachment) Detach() {
	a.close(func() {
		if a.checkAttached() == nil {
			a.s.end(a, nil)
			if !a.shadow {
				a.s.applySizePolicy()
			}
		}
	})
}

func (a *Attachment) close(end func()) {
	a.cancel.Do(func() {
		if !a.s.do(end) {
			a.end(nil)
			a.s.held.release(a)
		}
		a.s.releaseRing()
	})
}

// checkAttached returns not_attached if the attachment has ended. It is called in loop for each
// message of the viewer, because messages may arrive after the end.
func (a *Attachment) checkAttached() error {
	if !a.s.viewers.has(a) {
		return a.notAttached()
	}
	return nil
}

func (a *Attachment) notAttached() error {
	return protocol.Errorf(protocol.CodeNotAttached, "this attachment of session %s has ended", a.s.id)
}

// Type accepts input of this attachment at the writer's offset. Errors: permission_denied,
// not_attached, session_not_found, and those of acceptInput.
func (a *Attachment) Type(offset uint64, p []byte) error {
	if a.spec.Mode == protocol.ModeReadOnly {
		return protocol.Errorf(protocol.CodePermissionDenied, "a read-only attachment cannot send input; attach with another mode")
	}
	var err error
	if !a.s.do(func() {
		if err = a.checkAttached(); err != nil {
			return
		}
		var accepted uint64
		accepted, err = a.s.acceptInput(a, a.spec.Writer, offset, p)
		a.acknowledge(accepted)
	}) {
		return notFound(a.s.id)
	}
	return err
}

// Resize tells the size of this viewer's terminal. The size policy decides whether the session
// gets it. Errors: not_attached, and those of checkOpen.
func (a *Attachment) Resize(size protocol.Size) error {
	return a.s.try(func() error {
		if err := a.s.checkOpen(); err != nil {
			return err
		}
		if err := a.checkAttached(); err != nil {
			return err
		}
		a.resize(size.Normalize())
		return nil
	})
}

func (a *Attachment) resize(window protocol.Size) {
	if window != a.window {
		a.window = window
		a.s.noteChange()
		a.requestSnapshot()
	}
	if a.shadow {
		return
	}
	s := a.s
	s.activity.noteUse(s.cfg.Now())
	if a.countsForSize() && s.viewers.canDecide(a, s.saved.Decider) {
		s.decide(a)
	}
	s.applySizePolicy()
	s.chooseResponder()
}

// Appear tells the appearance of the viewer's terminal: its colours and the size of its cells.
// Errors: invalid_argument, not_attached, session_not_found.
func (a *Attachment) Appear(look protocol.Appearance) error {
	if err := look.Validate(); err != nil {
		return err
	}
	return a.s.try(func() error {
		if err := a.checkAttached(); err != nil {
			return err
		}
		before := a.spec.Appearance
		a.spec.Appearance = &look
		a.s.adoptAppearance(a)
		a.s.viewers.updatePictures(a.s.saved.Appearance)
		if (before == nil || before.Pictures != look.Pictures) && a.s.display.hasPictures() {
			a.requestRenewal(newSnapshot)
		}
		return nil
	})
}

// Interrupt sends SIGINT to the foreground process group. Errors: permission_denied,
// not_attached, and those of Signal.
func (a *Attachment) Interrupt() error {
	if a.spec.Mode == protocol.ModeReadOnly {
		return protocol.Errorf(protocol.CodePermissionDenied, "a read-only attachment cannot interrupt; attach with another mode")
	}
	if err := a.s.checkOpen(); err != nil {
		return err
	}
	a.mu.Lock()
	hasEnded := a.hasEnded()
	a.mu.Unlock()
	if hasEnded {
		return a.notAttached()
	}
	return a.s.signal(PTY.Interrupt)
}

// Pause makes Next return ItemPaused and then block until Unpause. The viewer is about to
// continue with another attachment. All input that was sent before Pause has been accepted or
// refused.
func (a *Attachment) Pause() { a.change(onPause) }

// Unpause lets Next continue after Pause.
func (a *Attachment) Unpause() { a.change(onUnpause) }

// acknowledge makes Next report how much input was accepted, see ackBytes. It is called in
// loop.
func (a *Attachment) acknowledge(accepted uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wake, setTimer := a.acks.accept(accepted)
	if wake {
		a.notify()
	}
	if setTimer {
		time.AfterFunc(ackDelay, func() {
			a.mu.Lock()
			a.acks.expire()
			a.mu.Unlock()
			a.notify()
		})
	}
}

// moveTo sets the viewer's position.
func (a *Attachment) moveTo(pos uint64) {
	a.pos = pos
	a.pacer.moveTo(pos)
}

func (a *Attachment) notify() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}
