package screen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/vt/vttest"
)

// A record does not depend on the core's representation: a core with the tag vtother has the same golden record.
func TestRestoreGolden(t *testing.T) {
	s := New(protocol.Size{Cols: 40, Rows: 10}, 100)
	s.SetAppearance(protocol.Appearance{Foreground: "#101010", Version: "viewer 1"})
	for _, w := range []string{
		"\x1b]2;title\a\x1b]7;file:///srv/\xc3\xa4\a\x1b]9;done\a\x1b]4;3;#abcdef\a\x07\x1b[?1004h\x1b[c", strings.Repeat("世界 and é and e\u0301 ", 9) + "\r\n",
		"\x1b[1;4:3;58;5;9;38;2;1;2;3mlook\x1b[m\x1b]8;id=a;https://a.b/\al\x1b]8;;\a\x1b[44m\x1b[K\x1b[m\r\n", numbers(130),
		"\x1b[?2027h🇩🇪👨‍👩‍👧\x1b[?2027l\x1b[?1049h\x1b[2J\x1b[3;4H\x1b[7m status \x1b[m\x1b[?2004h\x1b[5;9r\x1b(0q\x1b[4;3",
	} {
		s.Write([]byte(w))
	}
	s.Resize(protocol.Size{Cols: 33, Rows: 9})
	record := recordOf(s, -1)
	name := filepath.Join("testdata", "record.golden")
	testkit.Golden(t, name, record)
	golden, err := os.ReadFile(name)
	testkit.Must(t, err)
	if d := diff(restored(t, golden, 100, 33), s); d != "" {
		t.Error(d)
	}
}

// FuzzRestore checks that Restore does not panic, and that a restored screen can be used, saved and restored.
func FuzzRestore(f *testing.F) {
	add := func(s *Screen, more string) {
		snapshot, rest, err := sections(recordOf(s, -1))
		testkit.Must(f, err)
		f.Add(snapshot, rest, []byte(more))
	}
	for i := range 4 {
		c := makeRun(i)
		s := New(c.size, 20)
		vttest.Do(terminal{s}, c.before)
		add(s, "x\x1b[5b\r\n")
	}
	add(printed(small, "\x1b[?1049h世界\x1b[1;2H\x1b[@x"), "\x1b8\x1b[?1049l")
	add(printed(small, "世界\x1b[1;2H\x1b[@x"+numbers(20)), "\x1b[3J")
	f.Fuzz(func(t *testing.T, snapshot, rest, more []byte) {
		if len(snapshot)+len(rest) > 64<<10 || len(more) > 4<<10 {
			return
		}
		_, _ = Restore(rest, 50) // the input alone may also be a record
		record := appendSection([]byte{recordVersion}, sectionSnapshot, snapshot)
		record = appendSection(record, sectionRest, rest)
		r, err := Restore(record, 50)
		if err != nil {
			return
		}
		for !r.Step(1000) {
		}
		s := r.Screen()
		use := func() {
			s.Snapshot(100, protocol.Size{Cols: 30, Rows: 7}, nil)
			s.History(protocol.HistorySpec{}).Content()
			s.Text(100)
			s.Events()
			s.Replies()
		}
		use()
		s.Write(more)
		use()
		s.Resize(protocol.Size{Cols: 13, Rows: 4})
		s.Write(more)
		use()
		restored(t, recordOf(s, -1), 50, 1000)
	})
}
