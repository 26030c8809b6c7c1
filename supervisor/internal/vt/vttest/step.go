package vttest

// A Step is a write to a terminal or, if Cols is not 0, a resize.
type Step struct {
	Write      []byte
	Cols, Rows int
}

// IsResize reports whether the step is a resize.
func (s Step) IsResize() bool { return s.Cols > 0 }

// A Terminal can execute steps.
type Terminal interface {
	Write([]byte)
	Resize(cols, rows int)
}

// Do executes the steps on a terminal.
func Do(t Terminal, steps []Step) {
	for _, s := range steps {
		if s.IsResize() {
			t.Resize(s.Cols, s.Rows)
			continue
		}
		t.Write(s.Write)
	}
}

// Size returns the size of a terminal after the steps.
func Size(cols, rows int, steps []Step) (int, int) {
	for _, s := range steps {
		if s.IsResize() {
			cols, rows = s.Cols, s.Rows
		}
	}
	return cols, rows
}

// Join returns the steps with each run of writes joined to one write.
func Join(steps []Step) []Step {
	var joined []Step
	var run []byte
	for i, s := range steps {
		if s.IsResize() {
			joined = append(joined, s)
			continue
		}
		run = append(run, s.Write...)
		if i+1 == len(steps) || steps[i+1].IsResize() {
			joined = append(joined, Step{Write: run})
			run = nil
		}
	}
	return joined
}

// Bytes returns the steps with each write cut into writes of one byte.
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
