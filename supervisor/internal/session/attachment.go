package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/ring"
	"holdfast/supervisor/internal/screen"
)

const (
	maxAttachments = 1024 // of one session
	// Accepted input is told at once when this much was not told yet, else
	// after ackDelay, so that a keystroke's echo does not wait behind its
	// receipt.
	ackBytes = 32 << 10
	ackDelay = 20 * time.Millisecond
)

// ItemKind says what an Item is.
type ItemKind int

// The kinds of items, in the order in which Next prefers them.
const (
	ItemAccepted ItemKind = iota // this writer's input was accepted up to Offset
	ItemStolen                   // another came in this one's place; io.EOF follows
	ItemSnapshot                 // Data is a piece of the snapshot that stands for Offset
	ItemResized                  // from here on the terminal has this Size
	ItemResync                   // Missed bytes are skipped, a snapshot of Bytes and output from Offset follow
	ItemOutput                   // Data was printed at Offset
	ItemView                     // Data brings a view of the viewer's own up to Offset
	ItemPaused                   // nothing more comes for now; input up to Offset was accepted
	ItemTyped                    // Data was typed when so much was printed; where it is empty, something that is left out
	ItemExited                   // the session has ended; io.EOF follows
)

// An Item is one thing to tell a viewer.
type Item struct {
	Kind   ItemKind
	Offset uint64
	Data   []byte // aliases the buffer given to Next
	Size   protocol.Size
	Missed uint64
	Bytes  int
	By     string
	At     time.Time // of ItemTyped
	Masked bool      // the same: asterisks stand for characters

	View       bool // of ItemResync: a view of the viewer's own begins
	ScreenOnly bool // of ItemResync: the snapshot has no lines above the screen
}

// An Attachment is one client's view of a session. It holds a position, not a
// queue: a viewer that does not call Next costs nothing, and one that the ring
// has overtaken is given a snapshot.
//
// Next belongs to one goroutine; the other methods may be called from any.
// Close has to be called also after the end.
type Attachment struct {
	s      *Session
	spec   protocol.AttachSpec
	shadow bool   // none of the viewers
	number uint64 // in the order of coming
	since  time.Time
	wake   chan struct{}
	cancel sync.Once
	seen   atomic.Uint64 // pos, of one that the child waits for
	moved  chan struct{} // that has changed

	// Owned by the session's loop.
	window  protocol.Size // of the viewer's terminal; zero where that is not known
	deaf    bool          // what is printed does not reach it: it sees a view of its own, or nothing yet
	focused bool
	pasting bool // what it has typed so far ends within a paste

	// Of a viewer that comes anew over another proxy or connection while its earlier
	// attachment stands, as in a handoff: nobody came or went, and no event says so.
	continues bool // it took its own earlier one's place
	continued bool // its own later one took its place

	// Owned by the goroutine that calls Next.
	pos          uint64
	size         protocol.Size // last told; zero where that is not known
	snapshot     []byte        // not yet delivered
	snapshotSize protocol.Size
	questions    screen.Mask
	fitted       bool        // what it is given is for a terminal of its own size
	view         *screen.Own // what it was shown, while that is not the session's
	update       []byte      // of that, not yet delivered
	viewDue      time.Time   // when it may be brought up to date again
	over         bool

	mu        sync.Mutex
	renewed   bool // it needs another snapshot
	whole     bool // that has all lines, for the viewer's were cleared
	viewTimer bool // runs until viewDue
	accepted  uint64
	told      uint64
	ackDue    bool
	ackTimer  bool
	stolenBy  *string
	ended     bool
	paused    bool
	pauseTold bool
	overheard overheard
}

// Attach adds a viewer and says how it is brought up to date. Zero cols and
// rows leave the size as it is, and so do read-only viewers and resumed ones,
// and one that comes to where somebody decides.
//
// Errors: session_exited (unless what is missing from before the end can still
// be resumed), already_attached, superseded, instance_mismatch, limit_exceeded,
// permission_denied for a read-only viewer that names the writer of one that may
// type, invalid_argument for an offset that was never printed.
func (s *Session) Attach(spec protocol.AttachSpec) (*Attachment, protocol.AttachInfo, error) {
	if spec.Mode == "" {
		spec.Mode = protocol.ModeShared
	}
	if spec.Writer == "" {
		spec.Writer = protocol.NewToken(8)
	}
	return s.newAttachment(spec, false)
}

// Shadow is Attach for one who compares what it sees with what another sees. It
// is one of the attachments that there may be, and none of the viewers: nobody
// notices that it comes and goes. Its writer is its own, whatever it says, so
// that it takes nobody's place, and is not remembered.
//
// Errors: those of Attach, and invalid_argument for another mode than read_only.
func (s *Session) Shadow(spec protocol.AttachSpec) (*Attachment, protocol.AttachInfo, error) {
	if spec.Mode != protocol.ModeReadOnly {
		return nil, protocol.AttachInfo{}, protocol.Errorf(protocol.CodeInvalidArgument, "a shadow attachment has the mode read_only")
	}
	spec.Writer = protocol.NewToken(8)
	return s.newAttachment(spec, true)
}

func (s *Session) newAttachment(spec protocol.AttachSpec, shadow bool) (*Attachment, protocol.AttachInfo, error) {
	a := &Attachment{s: s, spec: spec, shadow: shadow, wake: make(chan struct{}, 1), moved: make(chan struct{}, 1), deaf: true}
	if window, ok := spec.OwnSize(); ok {
		a.window = window
	}
	var info protocol.AttachInfo
	var err error
	if err = s.request(func() error { info, err = s.attach(a); return err }); err != nil {
		return nil, info, err
	}
	return a, info, nil
}

func (s *Session) attach(a *Attachment) (protocol.AttachInfo, error) {
	var none protocol.AttachInfo
	spec := a.spec
	if r := spec.Resume; r != nil && r.Instance != s.instance {
		return none, protocol.Errorf(protocol.CodeInstanceMismatch, fmt.Sprintf("session %s lives as %s, not as %s", s.id, s.instance, r.Instance))
	}
	if s.exit != nil && spec.Resume == nil {
		return none, exitedError(s.id, s.exit)
	}
	if len(s.attachments) >= maxAttachments {
		return none, protocol.Errorf(protocol.CodeLimitExceeded, fmt.Sprintf("session %s has %d attachments", s.id, len(s.attachments)))
	}
	if _, end, _ := s.ring.Bounds(); spec.Resume != nil && spec.Resume.Offset > end {
		return none, protocol.Errorf(protocol.CodeInvalidArgument, fmt.Sprintf("offset %d was not printed yet, the end is %d", spec.Resume.Offset, end))
	}
	if a.shadow {
		s.attachments[a] = struct{}{}
		s.shadows++
	} else if err := s.admit(a); err != nil {
		return none, err
	}
	info := protocol.AttachInfo{Writer: spec.Writer, Replay: protocol.ReplayExact, InputOffset: a.accepted}
	s.feed()
	start := s.position(a, &info)
	if spec.Resume == nil || a.fitted { // else it is told first thing: who resumes may have missed a change
		a.size = s.size
	}
	if !a.shadow {
		s.chooseAnswerer()
	}
	s.holders.Add(1)
	s.ring.Watch(a.wake)
	info.Session = s.info()
	info.Session.RingStart = start // what was missed was counted from there
	if !a.shadow && !a.continues {
		s.hub.Publish(protocol.EventAttached, &info.Session, nil)
	}
	return info, nil
}

// admit makes a one of the viewers, and its writer's, if it may be.
func (s *Session) admit(a *Attachment) error {
	j, name := s.input.journal, a.spec.Writer
	accepted, attempt, err := j.Writer(name)
	if err != nil {
		return fmt.Errorf("session %s: %w", s.id, err)
	}
	if isLate(a.spec, attempt, j.Move(name)) {
		return protocol.Errorf(protocol.CodeSuperseded, fmt.Sprintf("a later attempt of the same client has attached to session %s", s.id))
	}
	if a.spec.Mode == protocol.ModeReadOnly && (accepted > 0 || s.canType(name)) {
		return protocol.Errorf(protocol.CodePermissionDenied, fmt.Sprintf(
			"the writer of this read-only attachment to session %s may type, or has typed: choose another writer, or none", s.id))
	}
	if err := s.makeRoom(a); err != nil {
		return err
	}
	if err := errors.Join(j.SetAttempt(name, max(attempt, a.spec.Attempt), a.spec.Move), j.Attach(name)); err != nil {
		s.went()
		return fmt.Errorf("session %s: %w", s.id, err) // it was there a moment ago
	}
	a.accepted, a.told = accepted, accepted
	s.joins(a)
	return nil
}

// canType reports whether a writer has an attachment that may type, or had one that
// is about to come back. A client that may only look must not take its place.
func (s *Session) canType(writer string) bool {
	for a := range s.attachments {
		if a.spec.Writer == writer && a.mayType() {
			return true
		}
	}
	l, ok := s.sizing.lost[writer]
	return ok && l.typed
}

// isLate reports whether a writer's attach was given up before another one, of which attempt
// and move are known. A client numbers its attempts, a proxy how often it has been passed on
// since. One that does not number is never late.
func isLate(spec protocol.AttachSpec, attempt, move uint64) bool {
	if spec.Attempt > 0 && spec.Attempt != attempt {
		return spec.Attempt < attempt
	}
	return spec.Move > 0 && spec.Move < move
}

// joins makes a one of the viewers, with its say about the size: before its
// snapshot is taken, which is for the size that comes of it.
func (s *Session) joins(a *Attachment) {
	if l, ok := s.sizing.lost[a.spec.Writer]; ok {
		a.number, a.since = l.number, l.since
		delete(s.sizing.lost, a.spec.Writer)
		s.unheard(a)
	}
	returns := a.number != 0
	if !returns {
		s.attached++
		a.number = s.attached
	}
	if a.since.IsZero() {
		a.since = s.cfg.Now()
	}
	s.attachments[a] = struct{}{}
	if a.spec.Typed {
		s.overhearing++
	}
	s.came(a, returns)
	s.tells(a, returns)
	s.note()
	fresh := a.spec.Resume == nil
	if s.sizing.decider == "" || fresh && s.mayDecide(a) {
		s.decide(a)
	}
	s.appears(a)
	if fresh {
		s.sizeUp()
	}
	if a.spec.Pace {
		s.pacer.Store(a)
	}
}

// makeRoom decides who else may be attached beside a. An attachment of the
// same writer is the same client's earlier one, whose connection it has given
// up before we were told: it goes without a question.
func (s *Session) makeRoom(a *Attachment) error {
	var own, rivals []*Attachment
	for other := range s.attachments {
		switch {
		case other.spec.Writer == a.spec.Writer:
			own = append(own, other)
		case a.spec.Mode == protocol.ModeReadOnly || other.spec.Mode == protocol.ModeReadOnly:
		case a.spec.Mode == protocol.ModeExclusive || other.spec.Mode == protocol.ModeExclusive:
			rivals = append(rivals, other)
		}
	}
	if len(rivals) > 0 && !a.spec.Steal {
		who := cmp.Or(rivals[0].spec.Client, "another client")
		return protocol.Errorf(protocol.CodeAlreadyAttached, fmt.Sprintf("session %s is attached by %s; steal to take it over", s.id, who))
	}
	for _, other := range own {
		a.number, a.since, a.continues, other.continued = other.number, other.since, true, true
		a.inherit(other)
	}
	for _, other := range append(own, rivals...) {
		s.end(other, &a.spec.Client)
	}
	return nil
}

// position says where the viewer begins: where it left off if the ring still
// has that and what came since fits its terminal, else with a snapshot. It
// returns where the ring began then.
func (s *Session) position(a *Attachment, info *protocol.AttachInfo) (start uint64) {
	start, _, _ = s.ring.Bounds()
	r := a.spec.Resume
	if r != nil && r.Offset >= start && !a.spec.Snapshot && !s.predatesClear(r.Offset) && s.fits(a, r.Offset) {
		a.fitted, a.deaf = a.ownView(), false
		a.move(r.Offset)
		info.Offset = r.Offset
		return start
	}
	s.finishRestore() // while that lasts the ring goes on
	start, _, _ = s.ring.Bounds()
	s.takeSnapshot(a, a.spec.ScreenOnly && !(r != nil && s.predatesClear(r.Offset)))
	info.Replay, info.Offset, info.SnapshotBytes, info.View = protocol.ReplaySnapshot, a.pos, len(a.snapshot), a.deaf
	if r != nil { // else it shows all there is to show
		info.BytesMissed = start - min(start, r.Offset)
	}
	return start
}

// fits reports whether all that was printed from offset on may be written to
// a's terminal: it was printed in one as wide, or just as large where a has a
// size of its own.
func (s *Session) fits(a *Attachment, offset uint64) bool {
	_, end, _ := s.ring.Bounds()
	if a.ownView() {
		_, changes := s.ring.NextMark(offset)
		return a.window == s.size && !changes && s.ring.SizeAt(offset) == s.size
	}
	return offset == end || !s.ring.WidthChanged(offset)
}

// takeSnapshot is called in loop, for an attachment whose Next is not running.
func (s *Session) takeSnapshot(a *Attachment, screenOnly bool) {
	history := protocol.DefaultHistory
	if h := a.spec.History; h != nil {
		history = *h
	}
	if screenOnly {
		history = 0
	}
	shown := s.shownSize()
	size := shown
	if a.fitted = a.ownView(); a.fitted {
		size, a.size = a.window, shown
	}
	var pos uint64
	s.core(func() { a.snapshot, pos = s.screen.Snapshot(history, size) })
	if s.degraded { // what was printed last has to do
		a.snapshot, shown, size = nil, s.size, s.size
		a.fitted = false
		pos, _, _ = s.ring.Bounds()
	}
	a.move(pos)
	a.snapshotSize = shown
	a.deaf = size != shown
	a.mu.Lock()
	a.renewed = a.fitted && shown != s.size // the screen has yet to come to the last resize
	a.whole = false
	a.mu.Unlock()
	a.view, a.update = nil, nil
	if a.deaf {
		a.view = screen.NewOwn(size)
	}
	a.questions = screen.Mask{}
	s.idle.touch()
}

// end removes an attachment; by is who came in its place, if anybody did.
func (s *Session) end(a *Attachment, by *string) {
	if _, ok := s.attachments[a]; !ok {
		return
	}
	delete(s.attachments, a)
	s.note()
	s.ring.Unwatch(a.wake)
	if a.shadow {
		s.shadows--
		a.end(by)
		return
	}
	s.input.journal.Detach(a.spec.Writer)
	s.pacer.CompareAndSwap(a, nil)
	s.chooseAnswerer()
	s.unfocus(a)
	a.end(by)
	a.stir()
	if a.mayType() {
		s.away.viewers--
	}
	if a.spec.Typed {
		s.overhearing--
	}
	if by == nil { // else another is about to come
		s.went()
	}
	if a.continued {
		return
	}
	info := s.info()
	s.hub.Publish(protocol.EventDetached, &info, nil)
}

func (a *Attachment) end(by *string) {
	a.mu.Lock()
	a.ended, a.stolenBy = true, by
	a.mu.Unlock()
	a.poke()
}

// Writer is the name this attachment's input goes by.
func (a *Attachment) Writer() string { return a.spec.Writer }

// Close is for a viewer that was lost; the session lives on, and for a while
// keeps its size. Close may be called again.
func (a *Attachment) Close() {
	a.close(func() {
		if a.attached() == nil {
			a.s.sizing.lose(a)
			a.s.end(a, nil)
		}
	})
}

// Detach is Close for a viewer that has said good-bye: its size counts no more.
func (a *Attachment) Detach() {
	a.close(func() {
		if a.attached() == nil {
			a.s.end(a, nil)
			if !a.shadow {
				a.s.sizeUp()
			}
		}
	})
}

func (a *Attachment) close(end func()) {
	a.cancel.Do(func() {
		if !a.s.do(end) {
			a.end(nil)
		}
		a.s.releaseRing()
	})
}

// attached is called in loop. Who was ended has no say any more, whatever is
// still under way from it.
func (a *Attachment) attached() error {
	if _, ok := a.s.attachments[a]; !ok {
		return a.notAttached()
	}
	return nil
}

func (a *Attachment) notAttached() error {
	return protocol.Errorf(protocol.CodeNotAttached, fmt.Sprintf("this attachment of session %s has ended", a.s.id))
}

// Type accepts input at the writer's offset; see Session.Type.
func (a *Attachment) Type(offset uint64, p []byte) error {
	if a.spec.Mode == protocol.ModeReadOnly {
		return protocol.Errorf(protocol.CodePermissionDenied, "a read-only attachment does not type")
	}
	var err error
	if !a.s.do(func() {
		if err = a.attached(); err != nil {
			return
		}
		var accepted uint64
		accepted, err = a.s.typed(a, a.spec.Writer, offset, p)
		a.acknowledge(accepted)
	}) {
		return notFound(a.s.id)
	}
	return err
}

// Resize tells the size of this viewer's terminal; whether it becomes the
// session's is for the policy to say.
func (a *Attachment) Resize(size protocol.Size) error {
	return a.s.try(func() error {
		if err := a.s.open(); err != nil {
			return err
		}
		if err := a.attached(); err != nil {
			return err
		}
		a.resize(size.Normalize())
		return nil
	})
}

func (a *Attachment) resize(window protocol.Size) {
	if window != a.window {
		a.window = window
		a.s.note()
		a.renew()
	}
	if a.shadow {
		return
	}
	s := a.s
	s.lastIO.set(s.cfg.Now())
	if a.counts() && s.mayDecide(a) {
		s.decide(a)
	}
	s.sizeUp()
	s.chooseAnswerer()
}

// Appear tells what the viewer's terminal looks like now.
func (a *Attachment) Appear(look protocol.Appearance) error {
	if err := look.Validate(); err != nil {
		return err
	}
	return a.s.try(func() error {
		if err := a.attached(); err != nil {
			return err
		}
		a.spec.Appearance = &look
		a.s.appears(a)
		return nil
	})
}

// Interrupt sends SIGINT to the foreground process group.
func (a *Attachment) Interrupt() error {
	if a.spec.Mode == protocol.ModeReadOnly {
		return protocol.Errorf(protocol.CodePermissionDenied, "a read-only attachment does not interrupt")
	}
	if err := a.s.open(); err != nil {
		return err
	}
	a.mu.Lock()
	ended := a.ended
	a.mu.Unlock()
	if ended {
		return a.notAttached()
	}
	return a.s.signal(PTY.Interrupt)
}

// Pause has Next tell of nothing more, when it has said so, until Unpause: the
// viewer is about to go on by another attachment. What was typed before has been
// accepted or refused.
func (a *Attachment) Pause() {
	a.mu.Lock()
	a.paused = true
	a.mu.Unlock()
	a.poke()
}

// Unpause ends what Pause began.
func (a *Attachment) Unpause() {
	a.mu.Lock()
	a.paused, a.pauseTold = false, false
	a.mu.Unlock()
	a.poke()
}

// acknowledge is called in loop.
func (a *Attachment) acknowledge(accepted uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.accepted = max(a.accepted, accepted)
	switch {
	case a.accepted-a.told >= ackBytes:
		a.ackDue = true
		a.poke()
	case a.accepted > a.told && !a.ackTimer:
		a.ackTimer = true
		time.AfterFunc(ackDelay, func() {
			a.mu.Lock()
			a.ackTimer, a.ackDue = false, true
			a.mu.Unlock()
			a.poke()
		})
	}
}

func (a *Attachment) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Next returns the next thing to tell the viewer, and blocks while there is
// none. Data is placed in buf, at most its length. It returns io.EOF after the
// exit, after Close and after the attachment was stolen.
func (a *Attachment) Next(ctx context.Context, buf []byte) (Item, error) {
	for {
		item, ok, err := a.poll(buf)
		if ok || err != nil {
			return item, err
		}
		exited := a.s.exited
		if paused, _ := a.waits(); paused {
			exited = nil // Unpause pokes
		}
		select {
		case <-a.wake:
		case <-exited:
		case <-ctx.Done():
			return Item{}, ctx.Err()
		}
	}
}

func (a *Attachment) poll(buf []byte) (Item, bool, error) {
	if item, ok, err := a.pollControl(); ok || err != nil {
		return item, ok, err
	}
	if paused, renewed := a.waits(); paused {
		return Item{}, false, nil
	} else if renewed {
		return a.resync()
	}
	if len(a.snapshot) > 0 {
		if a.size != a.snapshotSize && !a.fitted {
			return a.resized(a.snapshotSize), true, nil
		}
		n := copy(buf, a.snapshot)
		if a.view != nil {
			a.view.Shown(buf[:n])
		} else {
			a.mask(a.pos, buf[:n]) // it has no question, but may end within one
		}
		if a.snapshot = a.snapshot[n:]; len(a.snapshot) == 0 {
			a.snapshot = nil
		}
		return Item{Kind: ItemSnapshot, Offset: a.pos, Data: buf[:n]}, true, nil
	}
	if a.view != nil {
		return a.pollView(buf)
	}
	n, err := a.s.ring.ReadAt(buf, a.pos)
	switch {
	case errors.Is(err, ring.ErrGone):
		return a.resync()
	case err != nil: // closed under Next: there is nobody to tell
		return Item{}, false, io.EOF
	}
	// Sizes are looked at after the bytes: one that changes meanwhile does so
	// behind them.
	if size := a.s.ring.SizeAt(a.pos); size != a.size {
		if a.fitted {
			return Item{}, false, nil // another snapshot is about to come
		}
		return a.resized(size), true, nil
	}
	if m, ok := a.s.ring.NextMark(a.pos); ok { // the size changes there: stop before it
		n = int(min(uint64(n), m.Offset-a.pos))
	}
	if n > 0 {
		a.mask(a.pos, buf[:n])
		a.move(a.pos + uint64(n))
		return Item{Kind: ItemOutput, Offset: a.pos - uint64(n), Data: buf[:n]}, true, nil
	}
	return a.pollExit()
}

func (a *Attachment) resized(size protocol.Size) Item {
	a.size = size
	return Item{Kind: ItemResized, Size: size}
}

func (a *Attachment) pollControl() (Item, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return Item{}, false, io.EOF
	}
	if a.ackDue {
		a.ackDue = false
		if a.accepted > a.told {
			a.told = a.accepted
			return Item{Kind: ItemAccepted, Offset: a.told}, true, nil
		}
	}
	if !a.pauseTold { // else it is for the one that comes in this one's place
		if item, ok := a.overheard.next(); ok {
			return item, true, nil
		}
	}
	switch {
	case a.ended && a.stolenBy != nil:
		a.over = true
		return Item{Kind: ItemStolen, By: *a.stolenBy}, true, nil
	case a.ended:
		a.over = true
		return Item{}, false, io.EOF
	case a.paused && !a.pauseTold:
		a.pauseTold, a.told = true, a.accepted
		return Item{Kind: ItemPaused, Offset: a.accepted}, true, nil
	}
	return Item{}, false, nil
}

// pollExit is called where the viewer has all output so far.
func (a *Attachment) pollExit() (Item, bool, error) {
	select {
	case <-a.s.exited:
	default:
		return Item{}, false, nil
	}
	// The ring was finished before exited was closed.
	if _, end, _ := a.s.ring.Bounds(); end != a.pos {
		return Item{}, false, nil
	}
	a.over = true
	return Item{Kind: ItemExited}, true, nil
}

// resync moves a viewer that the ring has overtaken, or whose terminal is of
// another size than what it sees, or whose lines were cleared, to a fresh
// snapshot. Of these only one that has missed nothing, and of which nothing was
// cleared, has the lines above the screen already.
func (a *Attachment) resync() (Item, bool, error) {
	item := Item{Kind: ItemResync}
	take := func() {
		a.s.finishRestore() // while that lasts the ring goes on
		start, _, _ := a.s.ring.Bounds()
		item.Missed = start - min(start, a.pos)
		a.mu.Lock()
		whole := a.whole
		a.mu.Unlock()
		item.ScreenOnly = item.Missed == 0 && len(a.snapshot) == 0 && !whole
		a.s.takeSnapshot(a, item.ScreenOnly)
		item.Offset, item.Bytes, item.View = a.pos, len(a.snapshot), a.deaf
	}
	if !a.s.do(func() { a.s.feed(); take(); a.s.chooseAnswerer() }) {
		a.s.late.Lock()
		take()
		a.s.late.Unlock()
	}
	return item, true, nil
}
