package vttest_test

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"holdfast/supervisor/internal/vt"
	. "holdfast/supervisor/internal/vt/vttest"
)

// pair has the steps of two states of one size: that of a terminal now, and that to which a transition must bring it.
type pair struct {
	name     string
	config   Config
	from, to []Step
	snapshot bool // the terminal has the first state by its snapshot
}

// makePair returns the pair with a number. Some pairs are two unrelated streams. Most are a stream, and the same
// stream with a little more output.
func makePair(i int) pair {
	c, other := stream(i), stream(i+1<<20)
	if other.Unicode == byMode && i%4 == 0 { // its steps switch the mode
		c.Unicode = byMode
	}
	p := pair{name: c.Name, config: c.Config, from: c.Steps, to: other.Steps, snapshot: i%3 == 0}
	r := rand.New(rand.NewPCG(seed, uint64(i)+1<<40))
	if i%4 > 0 {
		cols, rows := Size(c.Cols, c.Rows, c.Steps)
		p.config.Cols, p.config.Rows = cols, rows
		more := Stream(r, StreamOptions{
			Cols: cols, Rows: rows, NoResize: true, NoReset: c.Unicode == graphemes, Graphemes: c.Unicode == byMode, Bytes: 1 + r.IntN([]int{10, 100, 1000}[r.IntN(3)]),
		})
		p.to = append(p.from[:len(p.from):len(p.from)], more...)
	}
	// Both must end in the same size.
	cols, rows := p.config.Cols, p.config.Rows
	p.from = append(p.from[:len(p.from):len(p.from)], Step{Cols: cols, Rows: rows})
	p.to = append(p.to[:len(p.to):len(p.to)], Step{Cols: cols, Rows: rows})
	return p
}

func (p pair) of(steps []Step) *Case { return &Case{Name: p.name, Config: p.config, Steps: steps} }

// shown returns the case that brings the terminal to its first state.
func (p pair) shown() *Case {
	c := p.of(p.from)
	if p.snapshot {
		return fromSnapshot(c)
	}
	return c
}

// screenOf returns a state without its history.
func screenOf(s *vt.State) *vt.State {
	c := *s
	c.Normal.Lines = c.Normal.Lines[c.Normal.History:]
	c.Normal.History = 0
	return &c
}

// checkOwn brings a terminal of the core from the first state to the second by a transition, and compares.
func (p pair) checkOwn() (diff string, transition []byte, compared bool) {
	from, to := core(p.shown()), core(p.of(p.to))
	want := to.State()
	if Unprintable(want) {
		return "", nil, false
	}
	transition = to.AppendTransition(nil, from, vt.Shows{})
	before := from.State()
	from.Replies()
	if again := from.Copy(0).AppendTransition(nil, from, vt.Shows{}); len(again) > 0 {
		return "a copy differs from its terminal: " + string(again), transition, true
	}
	from.Write(transition)
	got := from.State()
	if diff = Diff(screenOf(got), screenOf(want), printed); diff != "" {
		return diff, transition, true
	}
	if !reflect.DeepEqual(linesAbove(before), linesAbove(got)) {
		return "the history has changed", transition, true
	}
	if len(from.Replies()) > 0 {
		return "the transition has a query", transition, true
	}
	return diffOwn(got, want), transition, true
}

// diffOwn compares the parts of the state that xterm.js does not show.
func diffOwn(got, want *vt.State) string {
	if want.Alternate == nil { // the keyboard of the hidden screen stays unchanged
		got.Keyboard.Kitty[1] = want.Keyboard.Kitty[1]
	}
	if want.WorkDir == "" {
		got.WorkDir = ""
	}
	same := func(a, b vt.KittyKeyboard) bool { return a.Flags == b.Flags && len(a.Stack) == len(b.Stack) }
	switch {
	case got.Pending != want.Pending:
		return "pending: " + got.Pending
	case !reflect.DeepEqual(got.Colors, want.Colors):
		return "colours"
	case !same(got.Keyboard.Kitty[0], want.Keyboard.Kitty[0]) || !same(got.Keyboard.Kitty[1], want.Keyboard.Kitty[1]) ||
		got.Keyboard.ModifyOtherKeys != want.Keyboard.ModifyOtherKeys:
		return "keyboard"
	case got.WorkDir != want.WorkDir:
		return "directory"
	case got.Modes != want.Modes:
		return "modes"
	}
	return ""
}

// checkReal brings xterm.js from the first state to the second by a transition, and compares. It returns errNothing
// if xterm.js shows a defect.
func (p pair) checkReal(o *Oracle) (diff string, transition []byte, err error) {
	shown := p.shown()
	from, to := core(shown), core(p.of(p.to))
	want := screenOf(to.State())
	if Unprintable(want) {
		return "", nil, errNothing
	}
	transition = to.AppendTransition(nil, from, vt.Shows{})
	s := o.New(p.config)
	defer s.Close()
	Do(s, Join(shown.Steps))
	before, err := s.State()
	if err != nil {
		return "", nil, errNothing
	}
	if defects, err := s.Defects(); err != nil || defects != "" {
		return "", nil, errNothing
	}
	if Diff(from.State(), before, compared) != "" {
		return "", nil, errNothing // another check reports it
	}
	s.Write(transition)
	got, err := s.State()
	if err != nil {
		return "", transition, err
	}
	if !reflect.DeepEqual(linesAbove(before), linesAbove(got)) {
		return "the history has changed", transition, nil
	}
	return Diff(screenOf(got), want, printed), transition, nil
}

// linesAbove returns the texts of the history.
func linesAbove(s *vt.State) (lines []string) {
	for _, l := range s.Normal.Lines[:s.Normal.History] {
		text := ""
		for _, c := range l.Cells {
			text += c.Text
		}
		lines = append(lines, text)
	}
	return lines
}

// A transition brings a terminal to the screen of another one, and does not change its history.
func TestTransition(t *testing.T) {
	n := streams(t, 600)
	failures, met, full := 0, 0, 0
	for i := 0; i < n && failures < maxFailures; i++ {
		p := makePair(i)
		diff, transition, compared := p.checkOwn()
		if !compared {
			met++
		}
		full += len(transition)
		if diff != "" {
			failures++
			p = p.least(func(p pair) bool {
				diff, _, _ := p.checkOwn()
				return diff != ""
			})
			diff, transition, _ = p.checkOwn()
			t.Errorf("pair %d of %dx%d, from\n%sto\n%sby %q:\n%s", i, p.config.Cols, p.config.Rows, Format(p.from), Format(p.to), transition, diff)
		}
	}
	t.Logf("%d of %d could not be compared; %d bytes each", met, n, full/n)
	if 4*met > n {
		t.Errorf("%d of %d pairs could not be compared", met, n)
	}
}

// Transitions of the core bring the real xterm.js to the same screen.
func TestTransitionReal(t *testing.T) {
	o := Open(t)
	n := streams(t, 300)
	failures, met := 0, 0
	for i := 0; i < n && failures < maxFailures; i++ {
		p := makePair(i)
		diff, transition, err := p.checkReal(o)
		switch {
		case err == errNothing:
			met++
		case err != nil:
			t.Errorf("pair %d: %v, by %q", i, err, transition)
			failures++
		case diff != "":
			failures++
			p = p.least(func(p pair) bool {
				diff, _, err := p.checkReal(o)
				return err == nil && diff != ""
			})
			diff, transition, _ = p.checkReal(o)
			t.Errorf("pair %d of %dx%d %s, from\n%sto\n%sby %q:\n%s", i, p.config.Cols, p.config.Rows, p.config.Unicode, Format(p.from), Format(p.to), transition, diff)
		}
	}
	t.Logf("%d of %d could not be compared", met, n)
	if 2*met > n {
		t.Errorf("%d of %d pairs could not be compared", met, n)
	}
}

// least returns the shortest pair that still fails. It shortens both parts, one after the other.
func (p pair) least(fails func(pair) bool) pair {
	sized := func(steps []Step) []Step {
		return append(steps[:len(steps):len(steps)], Step{Cols: p.config.Cols, Rows: p.config.Rows})
	}
	// Steps that both have in common are removed from both.
	k := 0
	for k < min(len(p.from), len(p.to)) && bytes.Equal(p.from[k].Write, p.to[k].Write) && p.from[k].Cols == p.to[k].Cols {
		k++
	}
	common := Minimise(p.from[:k], func(steps []Step) bool {
		q := p
		q.from, q.to = sized(append(steps[:len(steps):len(steps)], p.from[k:]...)), sized(append(steps[:len(steps):len(steps)], p.to[k:]...))
		return fails(q)
	})
	q := p
	q.from, q.to = sized(append(common[:len(common):len(common)], p.from[k:]...)), sized(append(common[:len(common):len(common)], p.to[k:]...))
	if fails(q) {
		p = q
	}
	p.from = sized(Minimise(p.from, func(steps []Step) bool {
		q := p
		q.from = sized(steps)
		return fails(q)
	}))
	p.to = sized(Minimise(p.to, func(steps []Step) bool {
		q := p
		q.to = sized(steps)
		return fails(q)
	}))
	return p
}
