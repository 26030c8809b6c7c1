package vt

import (
	"encoding/binary"
	"math"
)

// Limits of what a program can make us hold.
const (
	MinCols, MinRows = 2, 1 // as xterm.js: one column has no room for a wide character
	maxSize          = 1 << 15

	maxString   = 64 << 10 // bytes of an OSC, DCS or APC that are looked at
	maxParams   = 32       // as xterm.js
	maxParam    = 1<<31 - 1
	maxTitle    = 4 << 10 // bytes of a title
	maxStack    = 10      // titles and icon names kept by XTWINOPS 22, as xterm.js
	maxReply    = 4 << 10 // bytes of answers that nobody has fetched
	maxURI      = 8 << 10
	maxKeyboard = 16 // kitty keyboard flags kept by a push

	// What bytes and rows cost, in cells that are touched (WriteSome): the
	// slowest text is printed at some 20 MB/s, a row is emptied in some 5 ns.
	byteWork = 16
	rowWork  = 4
)

// Config says what terminal to make. A zero field means its default.
type Config struct {
	Cols, Rows   int  // default 80x24
	HistoryLines int  // lines kept above the screen; default 0
	HistoryBytes int  // bytes they may take; default 16 MiB or 1 KiB a line, whichever is more
	Graphemes    bool // mode 2027 is set at the beginning, and by RIS
	Events       func(Event)
	Version      string // what XTVERSION is answered with
}

// A Term is a terminal without a display. It is not safe for concurrent use.
type Term struct {
	cols, rows int
	normal     buffer
	alt        buffer
	b          *buffer // the one that is shown

	hist     history
	styles   styleTable
	clusters clusterTable
	links    linkTable
	scratch  []cell
	work     int // cells touched since WriteSome has begun

	parser
	pen      style
	penID    styleID // of pen
	eraseID  styleID // of what erasing leaves
	join     joinState
	printing bool // the last thing done was to print

	gsets [4]*charset
	gl    int
	cs    *charset // in use; after DECRC not always gsets[gl]

	modes      Modes
	focusAsked uint64 // how often mode 1004 was set
	protected  bool   // some cell may be protected

	title, icon           string
	titleStack, iconStack []string
	workDir               string
	notice                notice         // of OSC 99, the end of which has not come
	colors                map[int]uint32 // set by OSC 4, 10, 11, 12
	keyboard              Keyboard
	replies               []byte
	alone                 []byte // those of them that RepliesAlone returns
	replyLost             bool   // one did not fit
	look                  Appearance
	config                Config
}

// buffer is one of the two screens.
type buffer struct {
	rows     []row
	order    []uint16 // order[y] is the index in rows of the row y
	x, y     int
	top, bot int // scroll region, both inclusive
	tabs     []uint64
	saved    saved
}

// saved is what DECSC keeps. y counts from the oldest line of the history, as
// in xterm.js: lines that scroll away take it along.
type saved struct {
	x, y int
	pen  style // without what is extended
	cs   *charset
}

func (b *buffer) row(y int) *row { return &b.rows[b.order[y]] }

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
	t := &Term{config: c, styles: newStyleTable()}
	t.cols, t.rows = clampSize(c.Cols, c.Rows)
	t.hist.maxLines, t.hist.maxBytes = c.HistoryLines, c.HistoryBytes
	t.modes = defaultModes
	t.modes.Graphemes = c.Graphemes
	t.resetBuffers()
	return t
}

func clampSize(cols, rows int) (int, int) {
	return min(max(cols, MinCols), maxSize), min(max(rows, MinRows), maxSize)
}

// Size returns columns and rows.
func (t *Term) Size() (cols, rows int) { return t.cols, t.rows }

// HistoryLines returns how many lines are kept above the screen.
func (t *Term) HistoryLines() int { return t.hist.lines }

// resetBuffers leaves two empty screens. What they hold is used again: a program
// may reset the terminal as often as it likes.
func (t *Term) resetBuffers() {
	t.work += 2 * rowWork * t.rows
	t.hist.clear()
	t.normal.reset(t.cols, t.rows)
	t.normal.open(t.cols, t.rows, 0)
	t.alt.reset(t.cols, t.rows)
	t.normal.saved, t.alt.saved = saved{}, saved{}
	t.b = &t.normal
}

// reset brings everything but the rows and what was saved to its beginning.
func (b *buffer) reset(cols, rows int) {
	b.x, b.y, b.top, b.bot = 0, 0, 0, rows-1
	b.tabs = b.tabs[:0]
	b.setTabs(0, cols)
}

// open gives a buffer its rows, which are empty and look like fill.
func (b *buffer) open(cols, rows int, fill styleID) {
	if len(b.rows) != rows {
		b.rows = make([]row, rows)
		b.order = make([]uint16, rows)
	}
	for y := range b.rows {
		r := &b.rows[y]
		if r.n != 0 || r.fill != fill || !r.ascii || r.wrapped || r.marks != nil { // else it is empty already
			r.clear(fill)
		}
		r.w = cols
		b.order[y] = uint16(y)
	}
}

// Write takes what the program printed, in any pieces.
func (t *Term) Write(p []byte) { t.WriteSome(p, math.MaxInt) }

// WriteSome is Write that stops early: it takes bytes of p until they have cost
// about budget, and returns how many bytes it took, at least one unless p is
// empty, and what they have cost. The unit is one cell that is touched, which
// takes some nanoseconds; each byte costs byteWork. A sequence is never carried
// out in part, but none touches a cell of the screen more than a few times.
func (t *Term) WriteSome(p []byte, budget int) (n, cost int) {
	all := len(p)
	budget = max(budget, byteWork)
	if room := budget / byteWork; len(p) > room {
		p = p[:room]
	}
	left := all - len(p)
	t.work = 0
	t.tidy()
	for len(p) > 0 && t.work < budget {
		if t.state != ground || t.partial > 0 {
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
			t.lineFeed()
			t.join, t.printing = 0, false
			p = p[1:]
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
	return n, t.work + n*byteWork
}

// tidy frees the numbers of looks and texts that no cell has any more, once
// there are many.
func (t *Term) tidy() {
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
		t.clusters.sweep(live)
	}
}

func (t *Term) sweepStyles() {
	live := make([]bool, len(t.styles.all))
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
