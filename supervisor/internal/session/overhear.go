package session

import (
	"bytes"
	"slices"
	"unicode/utf8"

	"holdfast/shared/escseq"
)

// An attachment may ask for an echo of the input of all viewers, for example to record a
// session. It receives the input in order, with the offset of the output at that time. While
// the terminal does not echo, each character is replaced by an asterisk, because it may belong
// to a password. A shell that edits its line also turns the echo off, but it shows the line
// itself, so that the input need not be masked.

// Bounds on the echo that is queued for one attachment. If an attachment reads too slowly, its
// oldest items are dropped, and one empty masked item replaces them.
const (
	echoPiece    = 32 << 10  // bytes of one item
	maxEchoHeld  = 256 << 10 // bytes, with echoItemCost for each item
	echoItemCost = 64
)

// inputEcho is the input that an attachment has yet to receive. The attachment's mu guards it.
type inputEcho struct {
	items []Item
	size  int
	cut   *Item // stands for the items that were dropped
}

// inputContext is the state of terminal and output when input arrives. It must be read before
// the input is written, because the program that reads the input may turn the echo on for the
// next input.
type inputContext struct {
	offset uint64 // end of the output
	echoes bool   // the terminal echoes input
}

func (s *Session) inputContext() (m inputContext) {
	if s.viewers.echoCount > 0 {
		_, m.offset, _ = s.ring.Bounds()
		m.echoes = s.pty.Echoes()
		if !m.echoes && s.saved.commands.isEditingLine {
			s.feed() // the shell may have started a command since, which the screen has not seen yet
		}
	}
	return m
}

// echoInput queues accepted input for the attachments that asked for it. It must be called with
// all accepted input, also if no attachment has asked, because it tracks whether the shell
// still edits its line.
func (s *Session) echoInput(now inputContext, p []byte) {
	c := &s.saved.commands
	waits := c.isEditingLine
	if waits && bytes.ContainsAny(p, lineEnds) { // input after the line end is not for the shell's editor
		c.isEditingLine = false
	}
	if s.viewers.echoCount == 0 || len(p) == 0 {
		return
	}
	at := s.cfg.Now()
	tell := func(p []byte, masked bool) {
		for part := range slices.Chunk(p, echoPiece) {
			item := Item{Kind: ItemInput, Offset: now.offset, At: at, Data: part, Masked: masked}
			for a := range s.viewers.attached {
				if a.spec.Typed {
					a.queueEcho(item)
				}
			}
		}
	}
	shown := 0 // bytes at the start of p that need no mask
	switch {
	case now.echoes:
		shown = len(p)
	case waits:
		if shown = bytes.IndexAny(p, lineEnds) + 1; shown == 0 {
			shown = len(p)
		}
	}
	tell(bytes.Clone(p[:shown]), false)
	if remainder := p[shown:]; len(remainder) > 0 {
		hidden, changed := asterisks(remainder)
		tell(hidden, changed)
	}
}

// queueEcho adds an item, and drops the oldest ones if they exceed maxEchoHeld. If the attachment masks secrets, all characters
// are masked, because a secret may be typed one character at a time.
func (a *Attachment) queueEcho(item Item) {
	if a.masksSecrets() && !item.Masked {
		item.Data, item.Masked = asterisks(item.Data)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	o := &a.echo
	o.items = append(o.items, item)
	o.size += len(item.Data) + echoItemCost
	for o.size > maxEchoHeld {
		first := o.items[0]
		o.cut = &Item{Kind: ItemInput, Offset: first.Offset, At: first.At, Data: []byte{}, Masked: true}
		o.items[0] = Item{}
		o.items = o.items[1:]
		o.size -= len(first.Data) + echoItemCost
	}
	a.notify()
}

// next removes and returns the oldest item.
func (o *inputEcho) next() (Item, bool) {
	if o.cut != nil {
		item := *o.cut
		o.cut = nil
		return item, true
	}
	if len(o.items) == 0 {
		return Item{}, false
	}
	item := o.items[0]
	o.items[0] = Item{}
	if o.items = o.items[1:]; len(o.items) == 0 {
		o.items = nil
	}
	o.size -= len(item.Data) + echoItemCost
	return item, true
}

// noteMissedInput tells a viewer that attaches again after its connection was lost that it may
// have missed input.
func (a *Attachment) noteMissedInput() {
	if a.spec.Typed {
		_, end, _ := a.s.ring.Bounds()
		a.echo.cut = &Item{Kind: ItemInput, Offset: end, At: a.s.cfg.Now(), Data: []byte{}, Masked: true}
		a.notify()
	}
}

// inheritEcho moves the queued echo of the client's earlier attachment to a. If the earlier
// attachment had not paused, items may have been lost on their way, and noteMissedInput queues a note about that.
func (a *Attachment) inheritEcho(from *Attachment) {
	if !a.spec.Typed {
		return
	}
	from.mu.Lock()
	defer from.mu.Unlock()
	if a.echo, from.echo = from.echo, (inputEcho{}); from.phase != phasePaused {
		a.noteMissedInput()
	}
}

// asterisks replaces each character in p that a terminal would show by an asterisk, and reports
// whether there was any. It keeps control bytes and the sequences of arrows, function keys and
// the mouse. Of a sequence that may stand for a character it keeps only the ESC.
func asterisks(p []byte) (hidden []byte, changed bool) {
	hidden = make([]byte, 0, len(p))
	for len(p) > 0 {
		u := escseq.NextInput(p)
		unit := p[:u.Len]
		p = p[u.Len:]
		if isKey(&u) {
			hidden = append(hidden, unit...)
			continue
		}
		for _, b := range unit {
			switch {
			case b < 0x20 || b == 0x7f:
				hidden = append(hidden, b)
				continue
			case utf8.RuneStart(b): // the second and later bytes of a character may come separately
				hidden = append(hidden, '*')
			}
			changed = true
		}
	}
	return hidden, changed
}
