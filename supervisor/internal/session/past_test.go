//go:build linux

package session

import (
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// shownAt returns the lines of a session's screen at a moment.
func shownAt(t *testing.T, s *Session, at protocol.Moment) (string, protocol.ScreenContent) {
	t.Helper()
	c, err := s.ShowAt(t.Context(), protocol.ScreenSpec{SessionID: s.id, At: &at})
	testkit.Must(t, err)
	return strings.Join(c.Lines, "\n"), c
}

// The screen of an earlier moment is shown while the session runs, also if the store does not have
// its output yet, and after a loss of power.
// demand: D7
func TestPast(t *testing.T) {
	dir := t.TempDir()
	m := boot(t, dir)
	spec := bash(`printf '\e]633;E;make all\a\e]133;C\a'; echo first; printf '\e]133;D;3\a'; read x; printf '\e[H\e[2Jsecond\n'; sleep 1000`)
	spec.Durable = protocol.DurableFull
	s, err := m.create("work", spec, "")
	testkit.Must(t, err)
	v := look(t, s, fromStart(s))
	v.until(t, "first")
	testkit.Eventually(t, patience, func() bool {
		ended, err := s.Commands()
		return err == nil && len(ended.Commands) == 1
	}, "the command has ended")
	before := info(t, s).OutputOffset
	if _, err := s.Type("w", 0, []byte("\n")); err != nil {
		t.Fatal(err)
	}
	v.until(t, "second")
	testkit.Eventually(t, patience, func() bool { return text(t, s) == "second" }, "the session shows the second line alone")
	check := func(s *Session) {
		t.Helper()
		got, c := shownAt(t, s, protocol.Moment{Offset: &before})
		if !strings.HasPrefix(got, "first") || c.Offset != before || c.Inexact || c.Instance != s.instance {
			t.Errorf("the screen at %d is %q of %+v", before, got, c)
		}
		if got, c := shownAt(t, s, protocol.Moment{Command: -1}); got != "first" || c.Offset >= before {
			t.Errorf("after the command the screen was %q at %d", got, c.Offset)
		}
		if got, c := shownAt(t, s, protocol.Moment{AgoMS: new(int64(0))}); got != "second" || c.PrintedAt.IsZero() {
			t.Errorf("the present screen is %q, printed at %v", got, c.PrintedAt)
		}
		p, err := s.Past(t.Context(), protocol.PastSpec{SessionID: s.id})
		if err == nil && (len(p.Commands) != 1 || p.Commands[0].Line != "make all" || *p.Commands[0].ExitCode != 3 || p.Commands[0].End-p.Commands[0].Start != 7) {
			t.Errorf("commands %+v", p.Commands)
		}
		found, searchErr := s.SearchPast(t.Context(), protocol.PastSearchSpec{SessionID: s.id, Pattern: "^f.rst"})
		if searchErr != nil || len(found.Matches) != 1 || found.Instance != s.instance {
			t.Errorf("found %+v, %v", found, searchErr)
		}
		o, readErr := s.ReadPast(t.Context(), 0, 1<<20)
		if readErr != nil || !strings.Contains(string(o.Data), "first") || !strings.Contains(string(o.Data), "second") || len(o.Sizes) != 1 {
			t.Errorf("read %+v, %v", o, readErr)
		}
		if err != nil || p.Start != 0 || p.End != info(t, s).OutputOffset || p.Mode != protocol.DurableFull || len(p.Times) == 0 || len(p.Gaps) > 0 {
			t.Errorf("the past is %+v, %v", p, err)
		}
	}
	check(s)
	m.stored(t, s, nil)
	check(s)
	m.cut(t)
	lost, err := boot(t, dir).Get("work")
	testkit.Must(t, err)
	check(lost)
}
