package vt

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"holdfast/supervisor/internal/packed"
)

// A history holds the lines that have left the screen, oldest first, in arenas. Lines are only
// appended to the newest arena, and dropped one by one from the oldest.
//
// A line begins with a header, uvarint(length of all that follows << lineFlags | flags). If
// lineMarked is set, its marks follow. If lineStyled is set, the number of runs follows, and
// for each run the columns since the last run and its style (an index into the arena's
// styles); all of these are uvarints. The last part is the text form of the row.
type history struct {
	maxLines int
	maxBytes int
	lines    int
	first    uint64 // number (lines.go) of the oldest row; if the history is empty, that row is on the screen
	bytes    int    // bytes of all arenas, as they are held
	arenas   []*arena
	spare    *arena
	scratch  []byte  // scratch space for the bytes of a line before its text
	packing  []byte  // scratch space for the content of an arena, and behind it the compressed content
	serials  uint32  // serial of the last arena
	known    []known // by style id: its index in the newest arena
	runs     []run
	text     []byte
}

type arena struct {
	b         []byte
	start     int    // offset of the oldest line
	lines     int    // number of lines from start on
	starts    int    // number of these lines that do not continue the line above
	widest    int    // bound of the columns of each line
	marked    bool   // lines may have marks
	packed    bool   // b is compressed; start counts unpacked bytes
	goesOn    bool   // if packed: its oldest line continues the line above
	shared    bool   // the content of its slices is also used by a copy of the terminal
	serial    uint32 // number of the arena, for known
	looks     []storedLook
	links     []*link
	linkBytes int
}

// storedLook is a style in 16 bytes without a pointer. In a packed arena, the styles follow
// the lines.
type storedLook struct {
	fg, bg, extended uint32
	link             uint32 // 1 + index into the arena's links, or 0
}

// known is the index of a style in the arena with the given serial.
type known struct {
	serial uint32
	index  uint32
}

const (
	lineWrapped = 1 << iota
	lineStyled
	lineASCII  // one byte is one column
	lineMarked // the line has marks
	lineFlags  = 4
)

const (
	firstArena = 4 << 10
	// arenaLooks bounds the styles of an arena to half of the memory of its lines.
	arenaLooks = 2048
	lookBytes  = 16
	// linkOverhead is the memory of a link besides its texts: the link itself, its entry in the
	// arena, and the rounding of the allocator.
	linkOverhead = 96
)

// push appends the first row of the normal screen to the history. The line keeps all visible content of the row.
func (t *Term) push() {
	h, b := &t.hist, &t.normal
	if h.maxLines == 0 {
		if b.bot == 0 || !b.wrapped(1) {
			h.first++
		}
		return
	}
	r := b.row(0)
	t.work += len(r.cells)
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

// appendFill appends the columns behind the content of a row, in the style of its fill. n is
// the number of columns in text.
func appendFill(text []byte, runs []run, n int, r *row) ([]byte, []run) {
	if n < r.n { // empty cells of default style
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

func (t *Term) pushText(text []byte, runs []run, marks []shellMark, flags int) {
	h := &t.hist
	a := h.newest()
	if len(runs) == 0 && len(marks) == 0 {
		h.put(a, nil, text, flags)
	} else {
		h.putStyled(a, text, runs, marks, flags, &t.styles)
	}
	h.limit()
}

// limit drops the oldest lines until the others are within the bounds.
func (h *history) limit() {
	for h.lines > h.maxLines || h.bytes > h.maxBytes && len(h.arenas) > 1 {
		h.dropLine()
	}
}

func (h *history) putStyled(a *arena, text []byte, runs []run, marks []shellMark, flags int, styles *styleTable) {
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
			id := r.style()
			if int(id) >= len(h.known) || h.known[id].serial != a.serial {
				h.learn(a, id, styles)
			}
			head = binary.AppendUvarint(head, uint64(r.col()-col))
			head = binary.AppendUvarint(head, uint64(h.known[id].index))
			col = r.col()
		}
		h.scratch = head
		if h.put(a, head, text, flags) {
			return
		}
		a = h.newest() // in another arena, styles have other indexes
	}
}

// put appends a line to a, which must be the newest arena. If a is full, put opens another
// arena. If the line then has a head, put appends nothing and returns false, because the head
// refers to styles of the old arena.
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

// learn adds a style to the arena a, which must be the newest.
func (h *history) learn(a *arena, id styleID, styles *styleTable) {
	if int(id) >= len(h.known) {
		h.known = append(h.known, make([]known, styles.count-len(h.known))...)
	}
	s := styles.at(id)
	h.known[id] = known{a.serial, h.addLook(a, storedLook{fg: s.fg, bg: s.bg, extended: s.extended}, s.link)}
}

// addLook adds a style, with a link or nil, to the arena a, which must be the newest. It
// returns the index of the style.
func (h *history) addLook(a *arena, look storedLook, l *link) uint32 {
	if l != nil {
		a.links = append(a.links, l)
		look.link = uint32(len(a.links))
		size := l.size()
		h.bytes += size
		a.linkBytes += size
	}
	before := cap(a.looks)
	a.looks = append(a.looks, look)
	h.bytes += (cap(a.looks) - before) * lookBytes
	return uint32(len(a.looks) - 1)
}

func (l *link) size() int { return len(l.uri) + len(l.id) + linkOverhead }

// cutLooks removes the styles and links that were added last to the arena a. looks and links
// are the numbers that stay.
func (h *history) cutLooks(a *arena, looks, links int) {
	for _, l := range a.links[links:] {
		h.bytes -= l.size()
		a.linkBytes -= l.size()
	}
	clear(a.links[links:])
	a.looks, a.links = a.looks[:looks], a.links[:links]
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
		size, looks := arenaSize, 0
		if k := len(h.arenas); k == 0 || h.arenas[k-1].packed { // perhaps there will be few lines
			size = firstArena
		} else {
			looks = len(h.arenas[k-1].looks) // probably there will be as many again
		}
		a = &arena{b: make([]byte, 0, size), looks: make([]storedLook, 0, looks)}
	}
	*a = arena{b: a.b[:0], looks: a.looks[:0], serial: h.serials}
	h.bytes += a.size()
	h.arenas = append(h.arenas, a)
	return a
}

// dropLine drops the oldest line.
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

// reuse keeps the memory of a dropped arena for the next arena.
func (h *history) reuse(a *arena) {
	if !a.packed && !a.shared && cap(a.b) == arenaSize {
		h.spare = a
	}
}

// size returns the memory of the arena in bytes.
func (a *arena) size() int { return cap(a.b) + cap(a.looks)*lookBytes + a.linkBytes }

// continues reports whether the oldest line of the arena continues the line above.
func (a *arena) continues() bool {
	if a.packed {
		return a.goesOn
	}
	return a.b[a.start]&lineWrapped != 0
}

// clear drops all lines. Their numbers are not used again.
func (h *history) clear() {
	h.first += h.numbered()
	if k := len(h.arenas); k > 0 && !h.arenas[k-1].packed && !h.arenas[k-1].shared {
		h.spare = h.arenas[k-1] // kept, because a program may do this very often
	}
	clear(h.arenas)
	h.arenas, h.lines, h.bytes = h.arenas[:0], 0, 0
}

// clearHistory executes ED 3. If the last line of the history continues on the screen, it
// keeps its number there.
func (t *Term) clearHistory() {
	h := &t.hist
	ends := h.lines > 0 && t.normal.wrapped(0)
	h.clear()
	if ends {
		h.first--
	}
}

// Clear drops the history, as ED 3 does. If screen is set and the normal screen is shown, it
// also drops the rows of the screen, except for the cursor's row, which moves to the top. The
// content of the alternate screen belongs to a program; if it is shown, both screens stay. No
// line changes its number.
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
	b.late[0], b.late[b.y] = b.late[b.y], b.late[0]
	b.y = 0
	b.emptyRows(1, len(b.order)-1, 0) // none if the screen has one row
}

// numbered returns the number of lines, in the sense of lines.go, that begin in the history or
// are cut at its beginning.
func (h *history) numbered() uint64 {
	if h.lines == 0 {
		return 0
	}
	n := 0
	for _, a := range h.arenas {
		n += a.starts
	}
	if h.arenas[0].continues() {
		n++ // the end of a line without its beginning, which was dropped
	}
	return uint64(n)
}

// A storedLine is a decoded line of the history. Its bytes are valid until the history
// changes.
type storedLine struct {
	arena *arena
	looks []storedLook
	flags int
	marks []shellMark // if lineMarked is set
	runs  []byte      // if lineStyled is set
	text  []byte
}

// each calls f for the lines from index from on, oldest first, until f returns false.
func (h *history) each(from int, f func(i int, l storedLine) bool) {
	i := 0
	var buf []byte
	var room []storedLook
	for _, a := range h.arenas {
		if i+a.lines <= from {
			i += a.lines
			continue
		}
		b, looks := a.b, a.looks
		if a.packed {
			b, looks = unpack(buf[:0], room[:0], a.b)
			buf, room = b, looks
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
	p := lineParts(b)
	l.flags, l.runs, l.text = p.flags, p.runs, p.text
	if p.marks != nil {
		l.marks, _ = parseMarks(p.marks)
	}
	return l, b[p.size:]
}

// storedParts are the encoded parts of a line.
type storedParts struct {
	size              int // bytes of the line with its header
	flags             int
	marks, runs, text []byte
}

// lineParts returns the parts of the line at the beginning of b.
func lineParts(b []byte) (p storedParts) {
	v, k := binary.Uvarint(b)
	p.flags = int(v & (1<<lineFlags - 1))
	p.size = k + int(v>>lineFlags)
	body := b[k:p.size:p.size]
	if p.flags&lineMarked != 0 {
		rest := skipMarks(body)
		p.marks, body = body[:len(body)-len(rest)], rest
	}
	if p.flags&lineStyled != 0 {
		n, at := binary.Uvarint(body)
		at += skipNumbers(body[at:], 2*int(n))
		p.runs, body = body[:at], body[at:]
	}
	p.text = body
	return p
}

// skipNumbers returns the length of the first n uvarints in b.
func skipNumbers(b []byte, n int) (at int) {
	for ; n >= 8 && at+8 <= len(b); at += 8 { // the last byte of a number is below 0x80
		n -= bits.OnesCount64(^load64(b[at:]) & highs)
	}
	for ; n > 0; at++ {
		if b[at] < 0x80 {
			n--
		}
	}
	return at
}

// eachRun calls f for each run of the line.
func (l storedLine) eachRun(f func(col int, s style)) {
	l.eachLook(func(col, look int) { f(col, l.look(look)) })
}

// eachLook calls f for each run of the line, with the index of its style in the arena.
func (l storedLine) eachLook(f func(col, look int)) {
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
		f(int(col), int(id))
	}
}

func (l storedLine) look(i int) style { return l.arena.style(l.looks[i]) }

// style decodes a style of the arena.
func (a *arena) style(look storedLook) style {
	s := style{fg: look.fg, bg: look.bg, extended: look.extended}
	if look.link > 0 {
		s.link = a.links[look.link-1]
		s.dropTile()
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

// packWorth is the size of the smallest arena that is compressed.
const packWorth = 1 << 10

// Pack compresses the history, and releases scratch space. It should be called when the
// terminal has been idle for a while. A later reader unpacks the arenas that it needs.
func (t *Term) Pack() {
	h := &t.hist
	for _, a := range h.arenas {
		h.pack(a)
	}
	t.settleAll()
	t.sweepStyles()
	t.sweepPictures()
	if t.b != &t.alt {
		t.alt.setRows(nil)
	}
	t.scratch = nil
	h.spare, h.scratch, h.packing, h.text, h.runs, h.known = nil, nil, nil, nil, nil, nil
}

// PackOld compresses the history except for its newest lines, and returns how many bytes that saves. It should
// be called now and then while a program prints slowly, because Pack is not called then.
func (t *Term) PackOld() (saved int) {
	h := &t.hist
	saved = h.bytes
	for _, a := range h.arenas[:max(0, len(h.arenas)-1)] {
		h.pack(a)
	}
	h.spare, h.packing = nil, nil
	return saved - h.bytes
}

// pack compresses an arena. If the arena is small, pack only releases its unused memory.
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
	plain := append(h.packing[:0], a.b[a.start:]...) // a.b has no room for the styles
	for _, l := range a.looks {
		for _, v := range [...]uint32{l.fg, l.bg, l.extended, l.link} {
			plain = binary.LittleEndian.AppendUint32(plain, v)
		}
	}
	plain = binary.LittleEndian.AppendUint32(plain, uint32(len(a.looks)))
	h.packing = packed.Append(plain, plain)
	content := h.packing[len(plain):]
	a.goesOn = a.continues()
	if h.spare == nil && cap(a.b) == arenaSize && !a.shared {
		h.spare = &arena{b: a.b, looks: a.looks}
	}
	a.b, a.start, a.packed, a.looks = append(make([]byte, 0, len(content)), content...), 0, true, nil
}

func (h *history) unpack(a *arena) {
	if !a.packed {
		return
	}
	h.bytes -= a.size()
	a.b, a.looks = unpack(nil, nil, a.b)
	a.packed = false
	h.bytes += a.size()
}

// unpack appends the lines of a packed arena to dst, and its styles to looks. It panics if the
// bytes are invalid, because they were packed in this process.
func unpack(dst []byte, looks []storedLook, content []byte) ([]byte, []storedLook) {
	b, err := packed.Unpack(dst, content)
	if err != nil {
		panic("vt: packed history: " + err.Error())
	}
	count := len(b) - 4
	n := int(binary.LittleEndian.Uint32(b[count:]))
	from := count - n*lookBytes
	looks = slices.Grow(looks, n)
	for i := range n {
		at := b[from+i*lookBytes:]
		looks = append(looks, storedLook{
			binary.LittleEndian.Uint32(at), binary.LittleEndian.Uint32(at[4:]),
			binary.LittleEndian.Uint32(at[8:]), binary.LittleEndian.Uint32(at[12:]),
		})
	}
	return b[:from], looks
}
