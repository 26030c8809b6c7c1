package vt

import (
	"strconv"
	"strings"
	"testing"

	"holdfast/shared/termmode"
)

// stateOf returns the state of a mode as DECRPM reports it.
func stateOf(t *Term, m *termmode.Mode) int {
	if m.Private {
		return t.modeState(privateModes, int32(m.Number))
	}
	return t.modeState(ansiModes, int32(m.Number))
}

func reported(on bool) int {
	if on {
		return modeSet
	}
	return modeReset
}

// termWith returns a terminal to which a program has written some text and in.
func termWith(in string) *Term {
	t := New(Config{Cols: 20, Rows: 4, HistoryLines: 10})
	t.Write([]byte("text\r\n" + in))
	return t
}

// TestModeTable demands that each mode that the core keeps is in the table of package termmode,
// and that DECRQM, resets, snapshots, transitions and saved screens agree with the table.
func TestModeTable(t *testing.T) {
	listed := map[string]bool{}
	for _, m := range termmode.All {
		name := m.Parameter()
		if listed[name] {
			t.Errorf("%s is in the table twice", name)
		}
		listed[name] = true
		if _, ok := bound[name]; ok != (m.Core == termmode.Kept || m.Core == termmode.Acts) {
			t.Errorf("%s has a binding: %v, which contradicts the table", name, ok)
		}
		t.Run(name, func(t *testing.T) { checkMode(t, &m) })
	}
	for name := range bound {
		if !listed[name] {
			t.Errorf("%s is not in the table", name)
		}
	}
}

func checkMode(t *testing.T, m *termmode.Mode) {
	expect := func(what string, term *Term, want int) {
		t.Helper()
		if got := stateOf(term, m); got != want {
			t.Errorf("%s: DECRQM reports %d, want %d", what, got, want)
		}
	}
	if m.Core != termmode.Kept {
		want := map[termmode.Core]int{termmode.AlwaysSet: modeAlwaysSet, termmode.AlwaysReset: modeAlwaysReset}[m.Core]
		if m.Core == termmode.Acts && m.Number == 1048 {
			want = modeSet // as in xterm.js
		}
		for _, in := range []string{"", m.Sequence(true), m.Sequence(false)} {
			expect(strconv.Quote(in), termWith(in), want)
		}
		if m.Snapshot != termmode.Absent || m.Resets != termmode.ByNone {
			t.Error("the table has a snapshot or a reset of a mode without a state")
		}
		return
	}
	expect("a new terminal", New(Config{}), reported(m.Default))
	if m.Undo == termmode.Stays {
		t.Error("the mode stays in an attached terminal, although a snapshot changes it")
	}
	for reset, by := range map[string]termmode.Resets{"\x1b[!p": termmode.BySoft, "\x1bc": termmode.ByHard} {
		expect(strconv.Quote(reset), termWith(m.Sequence(!m.Default)+reset), reported(m.Default == (m.Resets&by != 0)))
	}
	for _, on := range []bool{true, false} {
		term := termWith(m.Sequence(!on) + m.Sequence(on) + "x")
		expect("the sequence", term, reported(on))
		checkSnapshot(t, m, term, on)

		next := New(Config{Cols: 20, Rows: 4, HistoryLines: 10})
		saved, remainder := savedOf(t, term, 10)
		next.PrepareRestore(remainder)
		next.Refill(saved)
		next.FinishRestore(remainder)
		expect("a saved screen", next, reported(on))

		if m.Snapshot != termmode.Saved {
			viewer := termWith(m.Sequence(!on))
			viewer.Write(term.AppendTransition(nil, viewer, Shows{}))
			expect("a transition", viewer, reported(on))
		}
	}
}

// checkSnapshot checks the snapshot of a terminal in which the mode has the state on.
func checkSnapshot(t *testing.T, m *termmode.Mode, term *Term, on bool) {
	snapshot := string(term.Snapshot())
	before := ""
	switch m.Snapshot {
	case termmode.Absent:
		t.Error("the core keeps the mode, but the table has no snapshot of it")
	case termmode.Saved:
		if strings.Contains(snapshot, strconv.Itoa(m.Number)) {
			t.Errorf("a viewer gets the mode: %q", snapshot)
		}
		return
	case termmode.Screen: // the client shows the normal screen before
	default:
		before = m.Sequence(!on)
	}
	viewer := New(Config{Cols: 20, Rows: 4, HistoryLines: 10})
	viewer.Write([]byte(before + snapshot))
	if got := stateOf(viewer, m); got != reported(on) {
		t.Errorf("a snapshot %q: DECRQM reports %d, want %d", snapshot, got, reported(on))
	}
}
