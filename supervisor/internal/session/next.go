package session

import (
	"context"
	"errors"
	"io"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/picture"
	"holdfast/supervisor/internal/ring"
)

// ItemKind tells which fields of an Item are set.
type ItemKind int

// The kinds of items, in the order in which Next prefers them.
const (
	ItemAccepted ItemKind = iota // the writer's input up to Offset was accepted
	ItemStolen                   // the attachment of By took this one's place; io.EOF follows
	ItemSnapshot                 // Data is a piece of the snapshot of the screen at Offset
	ItemResized                  // output from here on is for a terminal of this Size
	ItemResync                   // Missed bytes are skipped; a snapshot of Bytes and then output from Offset follow
	ItemOutput                   // Data was printed at Offset
	ItemView                     // Data updates the viewer's own view to Offset
	ItemPaused                   // no more items until Unpause; input up to Offset was accepted
	ItemInput                    // Data is input that came when output had reached Offset; empty Data stands for omitted input
	ItemExited                   // the session has ended; io.EOF follows
)

// Item is one event for a viewer.
type Item struct {
	Kind     ItemKind
	Offset   uint64
	Data     []byte // aliases the buffer given to Next
	Size     protocol.Size
	Missed   uint64
	Bytes    int
	By       string
	Detached bool      // of ItemStolen: the client By has only ended this attachment
	At       time.Time // of ItemInput
	Masked   bool      // of ItemInput: asterisks replace the characters

	View       bool // of ItemResync: the snapshot begins a view of the viewer's own
	ScreenOnly bool // of ItemResync: the snapshot has no lines above the screen
}

// Next returns the next item for the viewer, and blocks while there is none. Item.Data is at
// most as long as buf and lies in it. Errors: io.EOF after ItemExited, ItemStolen and Close;
// ctx's.
func (a *Attachment) Next(ctx context.Context, buf []byte) (Item, error) {
	for {
		item, ok, err := a.poll(buf)
		if ok || err != nil {
			return item, err
		}
		exited := a.s.exited
		if paused, _ := a.waitState(); paused {
			exited = nil // Unpause wakes this loop
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
	if paused, renewed := a.waitState(); paused {
		return Item{}, false, nil
	} else if renewed {
		return a.resync()
	}
	if a.left > 0 {
		return a.pollSnapshot(buf)
	}
	if a.view != nil {
		return a.pollView(buf)
	}
	n, err := a.readOutput(buf)
	switch {
	case errors.Is(err, ring.ErrGone) && a.shadow:
		return a.skipOvertaken(), true, nil
	case errors.Is(err, ring.ErrGone):
		return a.resync()
	case err != nil: // the session was forgotten and the ring closed
		return Item{}, false, io.EOF
	}
	// The size must be read after the bytes. A resize in between then concerns only later
	// bytes.
	if size := a.s.ring.SizeAt(a.pos); size != a.size {
		if a.fitsWindow {
			return Item{}, false, nil // another snapshot is about to be requested
		}
		return a.resized(size), true, nil
	}
	if m, ok := a.s.ring.NextMark(a.pos); ok { // stop where the size changes
		n = int(min(uint64(n), m.Offset-a.pos))
	}
	if n > 0 {
		a.mask(a.pos, buf[:n])
		a.moveTo(a.pos + uint64(n))
		return Item{Kind: ItemOutput, Offset: a.pos - uint64(n), Data: buf[:n]}, true, nil
	}
	return a.pollExit()
}

// pollSnapshot returns the next piece of the snapshot.
func (a *Attachment) pollSnapshot(buf []byte) (Item, bool, error) {
	if a.size != a.snapshotSize && !a.fitsWindow {
		return a.resized(a.snapshotSize), true, nil
	}
	a.maskSnapshot()
	snapshot := a.s.held.use(a)
	if snapshot == nil { // it was dropped since waitState, so another one is requested
		return Item{}, false, nil
	}
	n := copy(buf, snapshot[len(snapshot)-a.left:])
	if a.view != nil {
		a.view.Shown(buf[:n])
	} else {
		if canRespond(&a.spec) {
			a.queryMask.Follow(buf[:n])
		}
		a.cover.Apply(buf[:n], picture.AllFormats)
	}
	if a.left -= n; a.left == 0 {
		a.s.held.release(a)
	}
	return Item{Kind: ItemSnapshot, Offset: a.pos, Data: buf[:n]}, true, nil
}

func (a *Attachment) resized(size protocol.Size) Item {
	a.size = size
	return Item{Kind: ItemResized, Size: size}
}

func (a *Attachment) pollControl() (Item, bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase == phaseOver {
		return Item{}, false, io.EOF
	}
	if a.phase == phaseStolen || a.phase == phaseEnded { // its client must not take accepted input for lost
		a.acks.expire()
	}
	if offset, ok := a.acks.take(); ok {
		return Item{Kind: ItemAccepted, Offset: offset}, true, nil
	}
	if a.phase != phasePaused { // after a pause, the attachment that replaces this one delivers the echo
		if item, ok := a.echo.next(); ok {
			return item, true, nil
		}
	}
	switch a.phase {
	case phaseStolen:
		a.enter(onFinish)
		return Item{Kind: ItemStolen, By: a.thief, Detached: a.detached}, true, nil
	case phaseEnded:
		a.enter(onFinish)
		return Item{}, false, io.EOF
	case phasePausing:
		a.enter(onTellPaused)
		a.acks.acknowledged = a.acks.accepted
		return Item{Kind: ItemPaused, Offset: a.acks.accepted}, true, nil
	}
	return Item{}, false, nil
}

// pollExit returns ItemExited if the session has exited and the viewer has all output.
func (a *Attachment) pollExit() (Item, bool, error) {
	select {
	case <-a.s.exited:
	default:
		return Item{}, false, nil
	}
	// The ring's end became final before exited was closed.
	if _, end, _ := a.s.ring.Bounds(); end != a.pos {
		return Item{}, false, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.acks.expire() // the client must not take input for lost that has ended the session
	if offset, ok := a.acks.take(); ok {
		return Item{Kind: ItemAccepted, Offset: offset}, true, nil
	}
	a.enter(onFinish)
	return Item{Kind: ItemExited}, true, nil
}

// skipOvertaken lets a shadow that the ring has overtaken continue in the middle of the ring. The output behind the beginning is
// about to be overwritten, too, if the session prints all the time.
func (a *Attachment) skipOvertaken() Item {
	start, end, _ := a.s.ring.Bounds()
	item := Item{Kind: ItemResync, Offset: start + (end-start)/2}
	item.Missed = item.Offset - min(item.Offset, a.pos)
	a.moveTo(item.Offset)
	return item
}

// resync gives a viewer a fresh snapshot, if the ring has overtaken the viewer, if its snapshot was
// dropped, if its terminal has another size than its output, or if its lines were cleared. A viewer that was
// detached or replaced meanwhile receives none: the attachment in its place answers its queries. The snapshot may omit the lines
// above the screen only if the viewer has missed no output and none of its lines were cleared, and if
// there are no pictures: the viewer resets its terminal, which may remove those above the screen.
func (a *Attachment) resync() (Item, bool, error) {
	item := Item{Kind: ItemResync}
	take := func() {
		a.s.display.finishRestore() // output continues during the restoration, so the bounds must be read after it
		start, _, _ := a.s.ring.Bounds()
		item.Missed = start - min(start, a.pos)
		a.mu.Lock()
		whole := a.renewal == newLines
		a.mu.Unlock()
		item.ScreenOnly = item.Missed == 0 && a.left == 0 && !whole && !a.showsPictures()
		a.takeSnapshot(item.ScreenOnly)
		item.Offset, item.Bytes, item.View = a.pos, a.left, a.noOutput
	}
	skipped, isOver := a.pos, false
	if !a.s.do(func() {
		if isOver = a.checkAttached() != nil; isOver {
			return
		}
		a.s.feed()
		take()
		a.s.answerFor(a.spec.Writer, skipped)
		a.s.chooseResponder()
	}) {
		a.s.afterLoop.Lock()
		take()
		a.s.afterLoop.Unlock()
	}
	return item, !isOver, nil // if it is over, Next tells so, because its phase has changed
}
