package vt

import (
	"encoding/binary"

	"holdfast/supervisor/internal/picture"
)

// Limits of the memory that a program can make the core hold.
const (
	MinCols, MinRows = 2, 1 // as in xterm.js: a wide character has no room in one column
	maxSize          = 1 << 15

	maxString   = 64 << 10 // longest OSC, DCS or APC that is executed, in bytes
	maxParams   = 32       // as in xterm.js
	maxParam    = 1<<31 - 1
	maxTitle    = 4 << 10 // bytes of a title
	maxStack    = 10      // titles and icon names that XTWINOPS 22 keeps, as in xterm.js
	maxReply    = 4 << 10 // bytes of answers that Replies has not returned yet
	maxURI      = 8 << 10
	maxKeyboard = 16 // kitty keyboard flags that a push keeps

	// Costs of a byte and of a row, in cells that are touched (WriteSome). The slowest text is
	// printed at about 20 MB/s, and a row is emptied in about 5 ns.
	byteWork  = 16
	rowWork   = 4
	writeWork = 64 << 10 * byteWork // of a piece of Write
)

// Config describes a new terminal. If a field is zero, its default is used.
type Config struct {
	Cols, Rows   int  // default 80x24
	HistoryLines int  // largest number of lines above the screen; default 0
	HistoryBytes int  // bytes that these lines may take; default 16 MiB or 1 KiB a line, whichever is more
	Graphemes    bool // mode 2027 is set at the beginning and after RIS
	Events       func(Event)
	Version      string // version in the answer to XTVERSION
	PictureBytes int    // bytes that the sequences of all pictures may take; default 0, which means that pictures are ignored
}

// A Term is a terminal without a display. It is not safe for concurrent use.
type Term struct {
	cols, rows int
	normal     buffer
	alt        buffer
	b          *buffer // the screen that is shown

	hist     history
	styles   styleTable
	clusters clusterTable
	links    linkTable
	pictures pictures
	graphics graphics
	scratch  []cell
	unmoved  []cell // scratch space of applyMap
	work     int    // cells touched since the beginning of WriteSome

	placeRoom int    // cost that finding the cursor's place may still have (commandEvent)
	placeLine uint64 // the cursor's place when it was found last
	placeByte int

	parser
	pen      style
	penID    styleID // id of pen
	eraseID  styleID // id of the style that erasing leaves
	join     joinState
	printing bool // the last byte was part of printed text

	gsets [4]*charset
	gl    int
	cs    *charset // the set in use; after DECRC it may differ from gsets[gl]

	modes      Modes
	focusAsked uint64 // number of times that mode 1004 was set
	protected  bool   // a cell may be protected

	title, icon           string
	titleStack, iconStack []string
	workDir               string
	notice                notice         // unfinished notification of OSC 99
	colors                map[int]uint32 // colours set by OSC 4, 10, 11, 12
	keyboard              Keyboard
	replies               []byte
	requiredReplies       []byte // those of replies that RequiredReplies returns
	replyLost             bool   // an answer was dropped because replies was full
	appearance            Appearance
	config                Config
}

// buffer is one of the two screens.
type buffer struct {
	t        *Term
	rows     []row
	order    []uint16 // order[y] is the index in rows of the row y
	late     []uint8  // late[y] is the number of the deferral of the row y, or 0
	uneven   bool     // a row may have more columns than are visible
	x, y     int
	top, bot int // scroll region, both inclusive
	tabs     []uint64
	saved    saved

	lateRows  int         // number of rows with a deferral
	deferrals []*deferral // by number
	changed   []*deferral // scratch space of deferRows
	spare     []uint8     // numbers that are free
	filled    uint8       // number of a deferral that has filled rows, or 0
}

// saved is the cursor that DECSC saves. As in xterm.js, y counts from the oldest line of the
// history, so that the position scrolls with its line.
type saved struct {
	x, y int
	pen  style // without extended and link
	cs   *charset
}

// New returns a terminal that has printed nothing.
func New(c Config) *Term {
	if c.Cols == 0 {
		c.Cols = 80
	}
	if c.Rows == 0 {
		c.Rows = 24
	}
	if c.HistoryBytes == 0 {
		c.HistoryBytes = max(16<<20, c.HistoryLines<<10)
	}
	t := &Term{config: c, styles: newStyleTable(), placeRoom: maxPlaceWork}
	t.cols, t.rows = clampSize(c.Cols, c.Rows)
	t.hist.maxLines, t.hist.maxBytes = c.HistoryLines, c.HistoryBytes
	t.modes = defaultModes
	t.modes.Graphemes = c.Graphemes
	t.normal.t, t.alt.t = t, t
	t.resetBuffers()
	return t
}

func clampSize(cols, rows int) (int, int) {
	return min(max(cols, MinCols), maxSize), min(max(rows, MinRows), maxSize)
}

// Size returns the numbers of columns and rows.
func (t *Term) Size() (cols, rows int) { return t.cols, t.rows }

// HistoryLines returns the number of lines above the screen.
func (t *Term) HistoryLines() int { return t.hist.lines }

// resetBuffers empties both screens and the history. It uses their memory again, because a
// program may reset the terminal very often.
func (t *Term) resetBuffers() {
	t.hist.clear()
	t.normal.reset(t.cols, t.rows)
	t.normal.open(t.cols, t.rows, 0)
	t.alt.reset(t.cols, t.rows)
	t.normal.saved, t.alt.saved = saved{}, saved{}
	t.b = &t.normal
}

// reset restores the initial state of a buffer, except for its rows and the saved cursor.
func (b *buffer) reset(cols, rows int) {
	b.x, b.y, b.top, b.bot = 0, 0, 0, rows-1
	b.resetTabs(cols)
}

// open gives a buffer empty rows of style fill.
func (b *buffer) open(cols, rows int, fill styleID) {
	if len(b.rows) != rows {
		b.setRows(make([]row, rows))
		b.uneven = true
	}
	if b.uneven {
		for y := range b.rows {
			b.rows[y].w = cols
		}
		b.t.work += rowWork * rows
		b.uneven = false
	}
	b.fillRows(0, rows-1, filling{style: fill})
}

// Write parses the program's output p. The output may be cut into pieces at any byte. Write
// itself parses long output in pieces, because styles and texts that no cell has any more are
// freed only between them.
func (t *Term) Write(p []byte) {
	for len(p) > 0 {
		n, _ := t.WriteSome(p, writeWork)
		p = p[n:]
	}
}

// WriteSome parses bytes of p until they have cost about budget. It returns the number of
// bytes that it has parsed, and their cost. If p is not empty, it parses at least one byte.
//
// The unit of cost is one cell that is touched, which takes some nanoseconds. Each byte costs
// byteWork. WriteSome never stops in the middle of executing a sequence, but no sequence
// touches a cell of the screen more than a few times.
func (t *Term) WriteSome(p []byte, budget int) (n, cost int) {
	all := len(p)
	budget = max(budget, byteWork)
	room := min(budget/byteWork, len(p))
	p = p[:room:room] // appendText reads up to the capacity
	left := all - len(p)
	t.work = 0
	t.tidy()
	if t.mayPlace(p) {
		t.event(Event{Kind: PicturePrinted, Code: int(picture.Kitty)})
	}
	unseen := len(p) // skipLines has looked at the bytes before these last ones
	for len(p) > 0 && t.work < budget {
		if t.state != ground || t.partial > 0 {
			t.at = all - left - len(p) - t.partial
			p = p[t.step(p):]
			continue
		}
		b := p[0]
		switch {
		case b >= 0x20 && b < 0x7f:
			n := asciiRun(p)
			t.print(p[:n])
			p = p[n:]
		case b == '\n':
			s := t.b
			drops := s.y == s.bot && (s.top > 0 || s == &t.alt) // a row that scrolls away is lost
			t.lineFeed()
			t.join, t.printing = 0, false
			if p = p[1:]; drops && len(p) < unseen {
				n, seen := t.skipLines(p)
				unseen = len(p) - seen
				p = p[n:]
			}
		case b == '\r':
			t.b.x = 0
			t.join, t.printing = 0, false
			p = p[1:]
		case b == 0x1b:
			p = p[t.sequence(p):]
		case b >= 0x80:
			if n := t.printText(p); n > 0 {
				p = p[n:]
			} else {
				p = p[t.step(p):]
			}
		case b == 0x7f:
			t.printing = false
			p = p[1:]
		default:
			t.printing = false
			t.execute(rune(b))
			p = p[1:]
		}
	}
	n = all - left - len(p)
	t.placeRoom = min(t.placeRoom+n*byteWork, maxPlaceWork)
	return n, t.work + n*byteWork
}

// tidy frees the numbers of styles and texts that no cell has any more, if there are many.
func (t *Term) tidy() {
	if t.styles.used() > t.styles.limit || t.clusters.used() > t.clusters.limit {
		t.settleAll() // a deferral may hold the last cell of a style
	}
	if t.styles.used() > t.styles.limit {
		t.sweepStyles()
	}
	if t.clusters.used() > t.clusters.limit {
		live := make([]bool, len(t.clusters.all))
		for _, b := range []*buffer{&t.normal, &t.alt} {
			for i := range b.rows {
				for _, c := range b.rows[i].cells {
					if c&clusterBit != 0 {
						live[c&codeMask] = true
					}
				}
			}
		}
		t.clusters.sweep(live, t.cols*t.rows/32)
	}
}

func (t *Term) sweepStyles() {
	live := make([]bool, t.styles.count)
	live[t.penID], live[t.eraseID] = true, true
	for _, b := range []*buffer{&t.normal, &t.alt} {
		for i := range b.rows {
			r := &b.rows[i]
			live[r.fill] = true
			for _, u := range r.runs {
				live[u.style()] = true
			}
			for _, c := range r.cells {
				live[c.style()] = true
			}
		}
	}
	t.styles.sweep(live)
	t.hist.known = nil
}

func load64(p []byte) uint64 { return binary.LittleEndian.Uint64(p) }

const ones, highs = 0x0101010101010101, 0x8080808080808080
