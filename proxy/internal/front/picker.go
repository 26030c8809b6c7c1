package front

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"holdfast/shared/escseq"
	"holdfast/shared/plain"
)

// An Item is a session in the list of Pick. Its texts may come from other programs.
type Item struct {
	Name string // the session's id
	Age  string // how long the session has been idle
	Runs string // its title and command
	Dir  string // its directory
}

// ErrLeft is the error of Pick if the user leaves the list without choosing a session.
var ErrLeft = errors.New("the user has left the list")

// Pick shows a list of sessions on the terminal t until the user has chosen one, and restores t. It
// returns the index of the chosen item, and the input after the key that ended the choice. If ctx
// ends, the error is the cause of that; if the terminal is gone, it is ErrGone.
func Pick(ctx context.Context, t *Terminal, items []Item) (chosen int, earlyInput []byte, err error) {
	if err := t.Raw(); err != nil {
		return 0, nil, err
	}
	// The terminal must be restored in every case, even after a panic. Restore undoes all output of
	// draw.
	defer t.Restore()
	p := &picker{items: items}
	if err := p.run(ctx, t); err != nil {
		if t.HasKeyboard() {
			return 0, nil, err
		}
		select { // a signal may tell why the terminal is gone
		case <-ctx.Done():
			return 0, nil, context.Cause(ctx)
		case <-time.After(hangUpTime):
			return 0, nil, ErrGone
		}
	}
	return p.chosen, p.earlyInput, nil
}

// A picker is a list from which the user chooses a session.
type picker struct {
	items      []Item
	chosen     int
	number     int    // the number typed so far; 0 after any other key
	earlyInput []byte // input after the key that ended the choice
}

// The keys of a picker, in the form that a terminal in raw mode sends.
var (
	upKeys    = []string{"\x1b[A", "\x1bOA", "k", "\x10"}
	downKeys  = []string{"\x1b[B", "\x1bOB", "j", "\x0e", "\t"}
	enterKeys = []string{"\r", "\n"}
	leaveKeys = []string{"q", "\x03", "\x04", "\x1c"}
)

// run shows the list until a session is chosen. It starts a read only after it has processed the
// previous one, so that no read is pending when it returns without an error.
func (p *picker) run(ctx context.Context, t *Terminal) error {
	seen := make(chan os.Signal, 1)
	signal.Notify(seen, sizeChanged, continued)
	defer signal.Stop(seen)
	type input struct {
		typed []byte
		err   error
	}
	inputs := make(chan input, 1) // buffered, so that a read that is pending at a signal can end
	read := func() {
		buf := make([]byte, 4<<10)
		n, err := t.in.read(buf, nil)
		inputs <- input{buf[:n], err}
	}
	go read()
	for {
		if err := p.draw(t); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case s := <-seen:
			if s == continued {
				t.rawAgain()
			}
		case in := <-inputs:
			done, err := p.filter(in.typed)
			if done || err != nil {
				return err
			}
			if in.err != nil {
				return fmt.Errorf("read the terminal: %w", in.err)
			}
			go read()
		}
	}
}

// filter processes keys, and reports whether a session is chosen. It returns an error if the user
// wants to leave.
func (p *picker) filter(b []byte) (done bool, err error) {
	for len(b) > 0 {
		k := firstKey(b)
		b = b[len(k):]
		number := 0
		switch {
		case slices.Contains(enterKeys, k):
			p.earlyInput = b
			return true, nil
		case slices.Contains(leaveKeys, k), k == "\x1b" && len(b) == 0: // Esc followed by other bytes is another key
			return false, ErrLeft
		case slices.Contains(upKeys, k):
			p.chosen = max(0, p.chosen-1)
		case slices.Contains(downKeys, k):
			p.chosen = min(len(p.items)-1, p.chosen+1)
		case k >= "0" && k <= "9":
			number = p.choose(int(k[0] - '0'))
		}
		p.number = number
	}
	return false, nil
}

// choose selects the session with the number of the previous digits and digit, or of digit alone.
// It returns that number, or 0 if there is no such session.
func (p *picker) choose(digit int) int {
	for _, n := range []int{10*p.number + digit, digit} {
		if n >= 1 && n <= len(p.items) {
			p.chosen = n - 1
			return n
		}
	}
	return 0
}

// firstKey returns the bytes of the first key in b: one byte, or a sequence. It returns all of b if
// the sequence is incomplete.
func firstKey(b []byte) string {
	u := escseq.NextInput(b)
	if u.Kind == escseq.Text {
		return string(b[:1])
	}
	return string(b[:u.Len])
}

// draw shows the part of the list around the chosen session that fits into the terminal. It
// disables wrapping, so that the terminal cuts long lines.
func (p *picker) draw(t *Terminal) error {
	size := t.Size()
	cols, rows := cmp.Or(size.Cols, 80), cmp.Or(size.Rows, 24)
	room := max(1, min(rows-2, len(p.items))) // without the line end, so that the last line may be the last row
	first := min(max(0, p.chosen-room/2), len(p.items)-room)
	var b strings.Builder
	b.WriteString("\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[0m\x1b[J")
	b.WriteString("Attach to which session? Arrows or digits choose, Enter attaches, q leaves.\r\n")
	for i, line := range p.lines(cols)[first : first+room] {
		if first+i == p.chosen {
			line = "\x1b[7m>" + line + "\x1b[0m"
		} else {
			line = " " + line
		}
		b.WriteString("\r\n" + line)
	}
	_, err := t.Write([]byte(b.String()))
	return err
}

// maxIDShown is the maximum width of an id in the list.
const maxIDShown = 24

// lines returns a line for each session, without escape sequences.
func (p *picker) lines(cols int) []string {
	widest := 0
	for _, item := range p.items {
		widest = max(widest, min(len(item.Name), maxIDShown))
	}
	lines := make([]string, len(p.items))
	for i, item := range p.items {
		head := fmt.Sprintf("%*d  %-*s  %4s  ", len(strconv.Itoa(len(p.items))), i+1, widest, cutEnd(item.Name, maxIDShown), item.Age)
		dir := plain.Text(item.Dir)
		left := max(0, cols-1-plain.Width(head)-2)
		runs := cutEnd(plain.Text(item.Runs), max(left*3/5, left-plain.Width(dir)))
		lines[i] = head + runs + "  " + cutBegin(dir, left-plain.Width(runs))
	}
	return lines
}

// cutEnd returns the beginning of s that has at most n columns, with … for the remainder if s is wider.
func cutEnd(s string, n int) string {
	if plain.Width(s) <= n {
		return s
	}
	room := n - 1
	for i, r := range s {
		if room -= plain.RuneWidth(r); room < 0 {
			return s[:i] + "…"
		}
	}
	return s
}

// cutBegin returns the end of s that has at most n columns, with … for the remainder if s is wider.
func cutBegin(s string, n int) string {
	if plain.Width(s) <= n {
		return s
	}
	room, begin := n-1, len(s)
	for begin > 0 {
		r, size := utf8.DecodeLastRuneInString(s[:begin])
		if room -= plain.RuneWidth(r); room < 0 {
			break
		}
		begin -= size
	}
	return "…" + s[begin:]
}
