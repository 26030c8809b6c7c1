package vt_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"holdfast/supervisor/internal/vt"
	"holdfast/supervisor/internal/vt/vttest"
)

// TestHistoryWithin takes snapshots with as many rows as HistoryWithin returns. Without the screen they are not
// longer than the limit and, for common output, not much shorter.
func TestHistoryWithin(t *testing.T) {
	const room = 256 << 10
	long := strings.Repeat("x", 2000)
	for _, tt := range []struct {
		name   string
		line   func(i int) string
		filled bool
	}{
		{"text", func(i int) string { return fmt.Sprintf("line %d of plain text\r\n", i) }, true},
		{"one long line", func(int) string { return "0123456789" }, true},
		{"looks", func(i int) string {
			return fmt.Sprintf("\x1b[3%dmcolour \x1b[1;38;2;%d;9;9mand more\x1b[m\r\n", i%8, i%256)
		}, true},
		{"wide", func(i int) string { return "中文字符测试中文字符测试中文字符测试\r\n" }, true},
		{"a background", func(int) string { return "\x1b[44mx\x1b[K\r\n" }, false},
		{"gaps", func(int) string { return "a\x1b[2Cb\x1b[2Cc\x1b[2Cd\r\n" }, false},
		{"short wrapped rows", func(int) string { return "\x1b[79G\u3000\u3000\x1b[2D" }, false},
		{"halves", func(int) string { return strings.Repeat("\x1b[4;44m中\x1b[D \x1b[m", 20) + "\r\n" }, false},
		{"links", func(i int) string {
			return fmt.Sprintf("\x1b]8;;http://%s/%d\x1b\\a\x1b]8;;http://%d/\x1b\\b\x1b]8;;\x1b\\\r\n", long, i%2, i)
		}, false},
		{"marks", func(i int) string { return fmt.Sprintf("\x1b]133;A\a$ \x1b]133;B\acommand %d\r\n", i) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			term := vt.New(vt.Config{Cols: 80, Rows: 10, HistoryLines: 40_000})
			for i := range 40_000 {
				term.Write([]byte(tt.line(i)))
			}
			all := term.HistoryLines()
			rows := term.HistoryWithin(all, room)
			screen := len(term.AppendSnapshot(nil, 0, vt.Shows{}))
			n := len(term.AppendSnapshot(nil, rows, vt.Shows{}))
			t.Logf("%d of %d rows are %d bytes", rows, all, n)
			if n > room+screen {
				t.Errorf("%d rows of %d take %d bytes and the screen %d, want at most %d", rows, all, n, screen, room)
			}
			if tt.filled && rows < all && n < room*3/4 {
				t.Errorf("%d rows of %d take only %d bytes of %d", rows, all, n, room)
			}
			if got := term.HistoryWithin(10, room); got != 10 && tt.filled {
				t.Errorf("of 10 rows only %d have room", got)
			}
			term.Pack()
			if got := term.HistoryWithin(all, room); got != rows {
				t.Errorf("packed, %d rows have room, want %d", got, rows)
			}
		})
	}
}

// TestLinksOnScreen takes a snapshot of a screen whose columns have two long links in turn. Links beyond some MiB are
// left out of the snapshot, and the text is not. A saved screen has all links.
func TestLinksOnScreen(t *testing.T) {
	term := vt.New(vt.Config{Cols: 80, Rows: 40})
	long := strings.Repeat("x", 8000)
	for i := range 80*40 - 1 {
		term.Write(fmt.Appendf(nil, "\x1b]8;;http://%d/%s\x1b\\%c", i%2, long, 'a'+i%26))
	}
	snapshot := term.Snapshot()
	if most := 5 << 20; len(snapshot) > most {
		t.Errorf("the snapshot takes %d bytes, want at most %d", len(snapshot), most)
	}
	viewer := vt.New(vt.Config{Cols: 80, Rows: 40})
	viewer.Write(snapshot)
	rows, want := viewer.Rows(), term.Rows()
	for i := range want.Len() {
		got, _ := rows.AppendText(nil, i, false)
		if text, _ := want.AppendText(nil, i, false); string(got) != string(text) {
			t.Fatalf("row %d is %q, want %q", i, got, text)
		}
	}
	if first := rows.Look(rows.Cells(0)[0].Attr); !strings.HasPrefix(first.URI, "http://0/x") {
		t.Errorf("the style of the first column is %+v, want its link", first)
	}
	var record strings.Builder
	rest, err := term.Save(&record, 0)
	if err != nil {
		t.Fatal(err)
	}
	again := vt.New(vt.Config{Cols: 80, Rows: 40})
	again.PrepareRestore(rest)
	again.Refill([]byte(record.String()))
	again.FinishRestore(rest)
	if d := vttest.Diff(again.State(), term.State()); d != "" {
		t.Errorf("the restored terminal differs: %.300s", d)
	}
}

// TestSaveInPieces checks that Save writes the bytes of a snapshot, although it writes them in pieces.
func TestSaveInPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	term := vt.New(vt.Config{Cols: 80, Rows: 10, HistoryLines: 40_000})
	for range 30_000 {
		term.Write(fmt.Appendf(nil, "\x1b[3%dmsome text \x1b[mof a line 世界 %d\r\n", r.IntN(8), r.IntN(1000)))
	}
	var record strings.Builder
	if _, err := term.Save(&record, 1<<20); err != nil {
		t.Fatal(err)
	}
	if record.String() != string(term.Snapshot()) {
		t.Error("the saved bytes differ from the snapshot")
	}
}
