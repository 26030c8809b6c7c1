package session

import (
	"bytes"
	"slices"
	"strconv"
	"unicode/utf8"
)

// An attachment may ask to be told what is typed, by whomever: who records a session
// wants that. It is told in order, with how much had been printed by then. Where the
// terminal does not show what is typed an asterisk stands for each character: it may
// be a password. A shell that edits its line shows that by itself.

// Bounds on what is held for one attachment that does not read. Of more the oldest is
// left out, for which comes one that is masked and empty.
const (
	typedPiece = 32 << 10  // bytes told at once
	typedHeld  = 256 << 10 // bytes, with typedHead for each piece
	typedHead  = 64
)

// overheard is what an attachment is to be told; guarded by its mu.
type overheard struct {
	items []Item
	size  int
	cut   *Item // in place of those before that were left out
}

// A moment is what there was when input came. It is looked at before the input is
// typed: the program that reads it may have the terminal show the next input.
type moment struct {
	offset uint64 // of output
	echoes bool   // the terminal shows what is typed
}

func (s *Session) moment() (m moment) {
	if s.overhearing > 0 {
		_, m.offset, _ = s.ring.Bounds()
		m.echoes = s.pty.Echoes()
	}
	return m
}

// overhear tells those who asked for it what was typed at a moment. It is called with
// all that is accepted, for what a shell's line is may be asked later.
func (s *Session) overhear(now moment, p []byte) {
	c := &s.commands
	waits := c.typing
	if waits && bytes.ContainsAny(p, lineEnds) { // what follows is not for the shell's editor
		c.typing = false
	}
	if s.overhearing == 0 || len(p) == 0 {
		return
	}
	at := s.cfg.Now()
	tell := func(p []byte, masked bool) {
		for part := range slices.Chunk(p, typedPiece) {
			item := Item{Kind: ItemTyped, Offset: now.offset, At: at, Data: part, Masked: masked}
			for a := range s.attachments {
				if a.spec.Typed {
					a.overhear(item)
				}
			}
		}
	}
	shown := 0 // so many bytes
	switch {
	case now.echoes:
		shown = len(p)
	case waits:
		if shown = bytes.IndexAny(p, lineEnds) + 1; shown == 0 {
			shown = len(p)
		}
	}
	tell(bytes.Clone(p[:shown]), false)
	if rest := p[shown:]; len(rest) > 0 {
		hidden, changed := asterisks(rest)
		tell(hidden, changed)
	}
}

// overhear queues an item.
func (a *Attachment) overhear(item Item) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := &a.overheard
	o.items = append(o.items, item)
	o.size += len(item.Data) + typedHead
	for o.size > typedHeld {
		first := o.items[0]
		o.cut = &Item{Kind: ItemTyped, Offset: first.Offset, At: first.At, Data: []byte{}, Masked: true}
		o.items[0] = Item{}
		o.items = o.items[1:]
		o.size -= len(first.Data) + typedHead
	}
	a.poke()
}

// next returns what is to be told next.
func (o *overheard) next() (Item, bool) {
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
	o.size -= len(item.Data) + typedHead
	return item, true
}

// unheard tells one that was lost that it may not have been told of all that was
// typed: what was on its way, and since.
func (s *Session) unheard(a *Attachment) {
	if a.spec.Typed {
		_, end, _ := s.ring.Bounds()
		a.overheard.cut = &Item{Kind: ItemTyped, Offset: end, At: s.cfg.Now(), Data: []byte{}, Masked: true}
		a.poke()
	}
}

// inherit takes over what another attachment of the same client was not told. Only of
// one that has come to rest is it known that its client has all the rest.
func (a *Attachment) inherit(from *Attachment) {
	if !a.spec.Typed {
		return
	}
	from.mu.Lock()
	defer from.mu.Unlock()
	if a.overheard, from.overheard = from.overheard, (overheard{}); !from.pauseTold {
		a.s.unheard(a)
	}
}

// asterisks returns input with one in place of each character that a terminal would
// show, and whether there was any. Keys that are none stay: controls, and the
// sequences of arrows, function keys and the mouse.
func asterisks(p []byte) (hidden []byte, changed bool) {
	hidden = make([]byte, 0, len(p))
	for len(p) > 0 {
		if n := keyLen(p); n > 0 {
			hidden = append(hidden, p[:n]...)
			p = p[n:]
			continue
		}
		if utf8.RuneStart(p[0]) { // the rest of a character may come by itself
			hidden = append(hidden, '*')
		}
		changed = true
		p = p[1:]
	}
	return hidden, changed
}

// keyLen is the length of the control or sequence that p begins with, 0 where it
// begins with a character. What is not certain to be none counts as one.
func keyLen(p []byte) int {
	if p[0] != esc {
		if p[0] < 0x20 || p[0] == 0x7f {
			return 1
		}
		return 0
	}
	if len(p) >= 3 && p[1] == 'O' && bytes.IndexByte([]byte("ABCDFHMPQRS"), p[2]) >= 0 {
		return 3
	}
	if len(p) < 3 || p[1] != '[' {
		return 1 // Alt, or Escape and what was typed after it
	}
	i := 2
	for i < len(p) && p[i] >= 0x20 && p[i] < 0x40 {
		i++
	}
	if i == len(p) || i > 32 {
		return 1
	}
	first, _, _ := bytes.Cut(p[2:i], []byte(";"))
	switch p[i] {
	case '~':
		if string(first) == "27" { // modifyOtherKeys
			return 1
		}
	case 'u': // a key by its code: which of them are characters?
		if code, err := strconv.Atoi(string(first)); err != nil || code >= ' ' && code != 0x7f || bytes.Count(p[2:i], []byte(";")) > 1 {
			return 1
		}
	default:
		if bytes.IndexByte([]byte("ABCDEFHIOPQRSZcmntyM"), p[i]) < 0 || p[i] == 'M' && (i == 2 || p[2] != '<') {
			return 1
		}
	}
	return i + 1
}
