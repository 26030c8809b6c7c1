package vttest

import "slices"

// A Step is what happens to a terminal: a write or, where Cols is not 0, a
// resize.
type Step struct {
	Write      []byte
	Cols, Rows int
}

// IsResize tells a resize from a write.
func (s Step) IsResize() bool { return s.Cols > 0 }

// A Terminal is what steps are done to.
type Terminal interface {
	Write([]byte)
	Resize(cols, rows int)
}

// Do does the steps to a terminal.
func Do(t Terminal, steps []Step) {
	for _, s := range steps {
		if s.IsResize() {
			t.Resize(s.Cols, s.Rows)
			continue
		}
		t.Write(s.Write)
	}
}

// Size returns the size that a terminal has after the steps.
func Size(cols, rows int, steps []Step) (int, int) {
	for _, s := range steps {
		if s.IsResize() {
			cols, rows = s.Cols, s.Rows
		}
	}
	return cols, rows
}

// Join makes one write of each run of writes.
func Join(steps []Step) []Step {
	var joined []Step
	for _, s := range steps {
		if last := len(joined) - 1; last >= 0 && !s.IsResize() && !joined[last].IsResize() {
			joined[last].Write = append(slices.Clone(joined[last].Write), s.Write...)
			continue
		}
		joined = append(joined, s)
	}
	return joined
}

// Bytes makes a write of every byte.
func Bytes(steps []Step) []Step {
	var each []Step
	for _, s := range steps {
		if s.IsResize() {
			each = append(each, s)
			continue
		}
		for i := range s.Write {
			each = append(each, Step{Write: s.Write[i : i+1]})
		}
	}
	return each
}
