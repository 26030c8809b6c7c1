package vt_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"

	"holdfast/supervisor/internal/vt"
)

// TestRowText compares Blank and AppendText with the cells of the row, for rows of every kind.
func TestRowText(t *testing.T) {
	pieces := []string{
		"plain text ", "   ", "中文", "\u3000", "e\u0301", "\x1b[31mred ", "\x1b[m", "\x1b[44m \x1b[K", "\x1b[K", "\x1b[3C", "\x1b[G中\x1b[2Gx", "\x1b[19G中",
		"\u0085", "\x1b[1\"qp\x1b[\"q", "\x1b]8;;http://x\x1b\\L\x1b]8;;\x1b\\", "\r\n", "\r\n", "\x1b[?2027h\U0001f468\u200d\U0001f469\x1b[?2027l", "\x1b[4;44m中\x1b[D \x1b[m",
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		term := vt.New(vt.Config{Cols: 20, Rows: 5, HistoryLines: 50})
		var printed strings.Builder
		for range 200 {
			printed.WriteString(pieces[r.IntN(len(pieces))])
		}
		term.Write([]byte(printed.String()))
		if r.IntN(4) == 0 {
			term.Pack()
		}
		rows := term.Rows()
		for i := range rows.Len() {
			cells := append([]vt.Cell(nil), rows.Cells(i)...)
			var blank, plain = true, true
			text := ""
			for _, c := range cells {
				blank = blank && strings.Trim(c.Text, " \u3000") == ""
				plain = plain && rows.Look(c.Attr) == (vt.Attr{})
				switch {
				case c.Text == "" && c.Width == 1:
					text += " "
				case strings.ContainsFunc(c.Text, unicode.IsControl):
					text += "\ufffd"
				default:
					text += c.Text
				}
			}
			where := fmt.Sprintf("seed %d, row %d, cells %+v", seed, i, cells)
			for _, looks := range []bool{false, true} {
				if got, _ := rows.Blank(i, looks); got != (blank && (plain || !looks)) {
					t.Fatalf("%s: Blank(%v) is %v", where, looks, got)
				}
			}
			if got, n := rows.AppendText(nil, i, false); string(got) != text || n != len(cells) {
				t.Fatalf("%s: AppendText is %q of %d cells, want %q", where, got, n, text)
			}
			if n := len(cells); n > 0 && cells[n-1].Text == "" && cells[n-1].Width == 1 {
				text, cells = text[:len(text)-1], cells[:n-1]
			}
			if missing := 19 - len(cells); missing > 0 {
				text += strings.Repeat(" ", missing+1)
			}
			if got, _ := rows.AppendText(nil, i, true); string(got) != text {
				t.Fatalf("%s: AppendText of a line that continues is %q, want %q", where, got, text)
			}
		}
	}
}
