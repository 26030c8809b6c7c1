package vt

import (
	"encoding/binary"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// A history holds the lines that have left the screen, oldest first, in arenas
// that are only appended to and dropped line by line from the front.
//
// A line is a header, uvarint(length of what follows << lineFlags | flags);
// then, with lineMarked, its marks; with lineStyled, the number of runs and for
// each the columns since the last one and its look (an index into the arena's),
// all uvarints; then the text form of the row.
type history struct {
	maxLines int
	maxBytes int
	lines    int
	first    uint64 // the number (lines.go) of the oldest row: here, or on the screen if none is here
	bytes    int    // of all arenas, as they are held
	arenas   []*arena
	spare    *arena
	scratch  []byte  // what comes before the text of a line that is being made
	serials  uint32  // the last arena's
	known    []known // by style id: its index in the newest arena
	runs     []run
	text     []byte
}

type arena struct {
	b         []byte
	start     int    // where the oldest line begins
	lines     int    // lines from there on
	starts    int    // of these, how many do not continue the one above
	widest    int    // no line has more columns
	marked    bool   // some may have marks
	packed    bool   // b is compressed; start counts unpacked bytes
	goesOn    bool   // packed: its oldest line continues the one above
	shared    bool   // what is in its slices is in a copy's, too
	serial    uint32 // numbers arenas, for known
	looks     []storedLook
	links     []*link
	linkBytes int
}

// storedLook is a style, of 16 bytes and without a pointer; packed they follow
// the lines.
type storedLook struct {
	fg, bg, extended uint32
	link             uint32 // 1 + index into the arena's links, or 0
}

// known says which of the looks of an arena a style is.
type known struct {
	serial uint32
	index  uint32
}

const (
	lineWrapped = 1 << iota
	lineStyled
	lineASCII  // one byte is one column
	lineMarked // marks come first
	lineFlags  = 4
)

const (
	firstArena = 4 << 10
	// arenaLooks bounds the looks of an arena to half of what its lines take.
	arenaLooks = 2048
	lookBytes  = 16
	// linkOverhead is what a link takes besides its texts: itself, its place in
	// the arena, and what the allocator rounds up.
	linkOverhead = 96
)

// push appends what is in r. The line keeps all that can be seen of it.
func (t *Term) push(r *row) {
	h := &t.hist
	if h.maxLines == 0 {
		if b := &t.normal; b.bot == 0 || !b.row(1).wrapped {
			h.first++
		}
		return
	}
	text, runs := r.text, r.runs
	flags := 0
	if r.inCells {
		n, ascii := 0, false
		text, runs, n, ascii = t.encode(h.text[:0], h.runs[:0], r.cells)
		if r.fill != 0 {
			text, runs = appendFill(text, runs, n, r)
		} else if ascii {
			flags = lineASCII
		}
		h.text, h.runs = text, runs
	} else {
		if r.ascii {
			flags = lineASCII
		}
		if r.fill != 0 && r.n < r.w {
			h.text, h.runs = append(h.text[:0], text...), append(h.runs[:0], runs...)
			text, runs = appendFill(h.text, h.runs, r.n, r)
			h.text, h.runs = text, runs
			flags = 0
		}
	}
	if r.wrapped {
		flags |= lineWrapped
	}
	t.pushText(text, runs, r.marks, flags)
}

// appendFill appends what a row of n columns in use is filled with behind them.
func appendFill(text []byte, runs []run, n int, r *row) ([]byte, []run) {
	if n < r.n { // empty cells of default look
		text = append(text, markSkip, byte(r.n-n), byte((r.n-n)>>8))
		if k := len(runs); k > 0 && runs[k-1].style() != 0 {
			runs = append(runs, newRun(n, 0))
		}
	}
	if gap := r.w - r.n; gap > 0 {
		text = append(text, markSkip, byte(gap), byte(gap>>8))
		if k := len(runs); k == 0 || runs[k-1].style() != r.fill {
			runs = append(runs, newRun(r.n, r.fill))
		}
	}
	return text, runs
}

func (t *Term) pushText(text []byte, runs []run, marks []mark, flags int) {
	h := &t.hist
	a := h.newest()
	if len(runs) == 0 && len(marks) == 0 {
		h.put(a, nil, text, flags)
	} else {
		h.putStyled(a, text, runs, marks, flags, t.styles.all)
	}
	for h.lines > h.maxLines || h.bytes > h.maxBytes && len(h.arenas) > 1 {
		h.dropLine()
	}
}

func (h *history) putStyled(a *arena, text []byte, runs []run, marks []mark, flags int, all []style) {
	if len(runs) > 0 {
		flags |= lineStyled
	}
	if len(marks) > 0 {
		flags |= lineMarked
	}
	if len(a.looks)+len(runs) > arenaLooks && len(a.looks) > 0 {
		a = h.newArena()
	}
	for {
		head := h.scratch[:0]
		if len(marks) > 0 {
			head = appendMarks(head, marks)
		}
		if len(runs) > 0 {
			head = binary.AppendUvarint(head, uint64(len(runs)))
		}
		col := 0
		for _, r := range runs {
			head = binary.AppendUvarint(head, uint64(r.col()-col))
			head = binary.AppendUvarint(head, uint64(h.index(a, r.style(), all)))
			col = r.col()
		}
		h.scratch = head
		if h.put(a, head, text, flags) {
			return
		}
		a = h.newest() // where looks have other numbers
	}
}

// put appends a line to the arena a, the newest. Where that is full it opens
// another, and if there are looks it puts nothing and returns false.
func (h *history) put(a *arena, head, text []byte, flags int) bool {
	size := len(head) + len(text)
	if need := binary.MaxVarintLen32 + size; len(a.b)+need > cap(a.b) {
		if len(a.b)+need > arenaSize && a.lines > 0 {
			a = h.newArena()
			if head != nil {
				return false
			}
		}
		h.bytes -= cap(a.b)
		a.b = slices.Grow(a.b, need)
		h.bytes += cap(a.b)
	}
	b := a.b
	v := uint64(size)<<lineFlags | uint64(flags)
	for ; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	b = append(b, byte(v))
	b = append(b, head...)
	a.b = append(b, text...)
	a.lines++
	a.starts += flags&lineWrapped ^ lineWrapped
	a.widest = max(a.widest, textColumns(text, flags))
	a.marked = a.marked || flags&lineMarked != 0
	h.lines++
	return true
}

// index returns the number that the style id has in the arena a, the newest.
func (h *history) index(a *arena, id styleID, all []style) uint32 {
	if int(id) >= len(h.known) {
		h.known = append(h.known, make([]known, len(all)-len(h.known))...)
	}
	k := &h.known[id]
	if k.serial != a.serial {
		s := &all[id]
		look := storedLook{fg: s.fg, bg: s.bg, extended: s.extended}
		if s.link != nil {
			a.links = append(a.links, s.link)
			look.link = uint32(len(a.links))
			size := len(s.link.uri) + len(s.link.id) + linkOverhead
			h.bytes += size
			a.linkBytes += size
		}
		before := cap(a.looks)
		a.looks = append(a.looks, look)
		h.bytes += (cap(a.looks) - before) * lookBytes
		*k = known{a.serial, uint32(len(a.looks) - 1)}
	}
	return k.index
}

func (h *history) newest() *arena {
	if k := len(h.arenas); k > 0 && !h.arenas[k-1].packed {
		return h.arenas[k-1]
	}
	return h.newArena()
}

func (h *history) newArena() *arena {
	h.serials++
	a := h.spare
	h.spare = nil
	if a == nil {
		size := arenaSize
		if k := len(h.arenas); k == 0 || h.arenas[k-1].packed { // perhaps little comes
			size = firstArena
		}
		a = &arena{b: make([]byte, 0, size)}
	}
	*a = arena{b: a.b[:0], looks: a.looks[:0], serial: h.serials}
	h.bytes += a.size()
	h.arenas = append(h.arenas, a)
	return a
}

// dropLine forgets the oldest line.
func (h *history) dropLine() {
	a := h.arenas[0]
	a.lines--
	h.lines--
	if a.lines > 0 {
		h.unpack(a)
		size, k := binary.Uvarint(a.b[a.start:])
		a.starts -= int(size&lineWrapped ^ lineWrapped)
		a.start += k + int(size>>lineFlags)
		h.first += uint64(a.b[a.start]&lineWrapped ^ lineWrapped)
		return
	}
	if len(h.arenas) == 1 || !h.arenas[1].continues() {
		h.first++
	}
	h.bytes -= a.size()
	copy(h.arenas, h.arenas[1:])
	h.arenas[len(h.arenas)-1] = nil
	h.arenas = h.arenas[:len(h.arenas)-1]
	h.reuse(a)
}

// reuse keeps the room of an arena that was dropped for the next one.
func (h *history) reuse(a *arena) {
	if !a.packed && !a.shared && cap(a.b) == arenaSize {
		h.spare = a
	}
}

// size is what the arena takes, in bytes.
func (a *arena) size() int { return cap(a.b) + cap(a.looks)*lookBytes + a.linkBytes }

// continues reports whether the oldest line of the arena continues the one above.
func (a *arena) continues() bool {
	if a.packed {
		return a.goesOn
	}
	return a.b[a.start]&lineWrapped != 0
}

// clear forgets all lines. Their numbers are not used again.
func (h *history) clear() {
	h.first += h.numbered()
	if k := len(h.arenas); k > 0 && !h.arenas[k-1].packed && !h.arenas[k-1].shared {
		h.spare = h.arenas[k-1] // a program may do this all the time
	}
	clear(h.arenas)
	h.arenas, h.lines, h.bytes = h.arenas[:0], 0, 0
}

// clearHistory is ED 3. A line that ends on the screen stays that line.
func (t *Term) clearHistory() {
	h := &t.hist
	ends := h.lines > 0 && t.normal.row(0).wrapped
	h.clear()
	if ends {
		h.first--
	}
}

// Clear forgets the history, as ED 3 does. With screen it also forgets the rows of the normal
// screen but the cursor's, which moves to the top; the alternate screen is a program's, and
// while that is shown both are left. No line changes its number.
func (t *Term) Clear(screen bool) {
	if !screen || t.b != &t.normal {
		t.clearHistory()
		return
	}
	line := t.CursorLine()
	t.hist.clear()
	t.hist.first = line
	b := &t.normal
	b.order[0], b.order[b.y] = b.order[b.y], b.order[0]
	b.y = 0
	for _, i := range b.order[1:] {
		b.rows[i].clear(0)
	}
}

// numbered is how many numbers the lines that are held have.
func (h *history) numbered() uint64 {
	if h.lines == 0 {
		return 0
	}
	n := 0
	for _, a := range h.arenas {
		n += a.starts
	}
	if h.arenas[0].continues() {
		n++ // what is left of one whose beginning was forgotten
	}
	return uint64(n)
}

// A storedLine is a line of history as it is held; its bytes are valid until
// the history changes.
type storedLine struct {
	arena *arena
	looks []storedLook
	flags int
	marks []mark // what lineMarked announces
	runs  []byte // what lineStyled announces
	text  []byte
}

// each calls f for the lines from number from on, oldest first, until it
// returns false.
func (h *history) each(from int, f func(i int, l storedLine) bool) {
	i := 0
	var buf []byte
	for _, a := range h.arenas {
		if i+a.lines <= from {
			i += a.lines
			continue
		}
		b, looks := a.b, a.looks
		if a.packed {
			b, looks = unpack(buf[:0], a.b)
			buf = b
		}
		b = b[a.start:]
		for n := a.lines; n > 0; n-- {
			var l storedLine
			l, b = parseLine(b)
			l.arena, l.looks = a, looks
			if i >= from && !f(i, l) {
				return
			}
			i++
		}
	}
}

func parseLine(b []byte) (l storedLine, rest []byte) {
	v, k := binary.Uvarint(b)
	l.flags = int(v & (1<<lineFlags - 1))
	size := int(v >> lineFlags)
	body := b[k : k+size : k+size]
	rest = b[k+size:]
	if l.flags&lineMarked != 0 {
		l.marks, body = parseMarks(body)
	}
	if l.flags&lineStyled != 0 {
		n, at := binary.Uvarint(body)
		for ; n > 0; n-- {
			for range 2 {
				_, k := binary.Uvarint(body[at:])
				at += k
			}
		}
		l.runs, body = body[:at], body[at:]
	}
	l.text = body
	return l, rest
}

// eachRun calls f for every run of the line.
func (l storedLine) eachRun(f func(col int, s style)) {
	if l.flags&lineStyled == 0 {
		return
	}
	n, at := binary.Uvarint(l.runs)
	col := uint64(0)
	for ; n > 0; n-- {
		d, k := binary.Uvarint(l.runs[at:])
		at += k
		id, k := binary.Uvarint(l.runs[at:])
		at += k
		col += d
		f(int(col), l.look(int(id)))
	}
}

func (l storedLine) look(i int) style {
	look := l.looks[i]
	s := style{fg: look.fg, bg: look.bg, extended: look.extended}
	if look.link > 0 {
		s.link = l.arena.links[look.link-1]
	}
	return s
}

// storedCells appends the line's cells to dst.
func (t *Term) storedCells(dst []cell, l storedLine) []cell {
	runs := t.hist.runs[:0]
	l.eachRun(func(col int, s style) { runs = append(runs, newRun(col, t.styles.id(s))) })
	t.hist.runs = runs
	return t.decode(dst, l.text, runs)
}

// packWorth is the smallest arena that is compressed.
const packWorth = 1 << 10

// Pack compresses the history; it is for a terminal that has been idle for a
// while. What is read of it later is unpacked for the reader.
func (t *Term) Pack() {
	h := &t.hist
	for _, a := range h.arenas {
		h.pack(a)
	}
	t.sweepStyles()
	if t.b != &t.alt {
		t.alt.rows, t.alt.order = nil, nil
	}
	t.scratch = nil
	h.spare, h.scratch, h.text, h.runs, h.known = nil, nil, nil, nil, nil
}

// pack compresses an arena, or gives up its room if it is small.
func (h *history) pack(a *arena) {
	if a.packed {
		return
	}
	h.bytes -= a.size()
	defer func() { h.bytes += a.size() }()
	if len(a.b) < packWorth {
		a.b = slices.Clone(a.b)
		return
	}
	plain := a.b[a.start:]
	for _, l := range a.looks {
		for _, v := range [...]uint32{l.fg, l.bg, l.extended, l.link} {
			plain = binary.LittleEndian.AppendUint32(plain, v)
		}
	}
	plain = binary.LittleEndian.AppendUint32(plain, uint32(len(a.looks)))
	packed := encoder.EncodeAll(plain, make([]byte, 0, len(plain)*2/3))
	a.goesOn = a.continues()
	a.b, a.start, a.packed, a.looks = append(make([]byte, 0, len(packed)), packed...), 0, true, nil
}

func (h *history) unpack(a *arena) {
	if !a.packed {
		return
	}
	h.bytes -= a.size()
	a.b, a.looks = unpack(nil, a.b)
	a.packed = false
	h.bytes += a.size()
}

// The coders are shared by all terminals: each costs hundreds of KiB, and
// EncodeAll and DecodeAll may be called from everywhere.
var (
	encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(arenaSize), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
	decoder, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
)

// unpack appends the lines of an arena to dst, and returns its looks. They were
// packed in this process: that they cannot be unpacked is our mistake.
func unpack(dst, packed []byte) ([]byte, []storedLook) {
	b, err := decoder.DecodeAll(packed, dst)
	if err != nil {
		panic("vt: packed history: " + err.Error())
	}
	count := len(b) - 4
	n := int(binary.LittleEndian.Uint32(b[count:]))
	from := count - n*lookBytes
	looks := make([]storedLook, n)
	for i := range looks {
		at := b[from+i*lookBytes:]
		looks[i] = storedLook{
			binary.LittleEndian.Uint32(at), binary.LittleEndian.Uint32(at[4:]),
			binary.LittleEndian.Uint32(at[8:]), binary.LittleEndian.Uint32(at[12:]),
		}
	}
	return b[:from], looks
}
