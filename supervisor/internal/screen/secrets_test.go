package screen

import (
	"bytes"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/mask"
	"holdfast/shared/testkit"
)

func secretOf(value string) *mask.Masker {
	m, _ := mask.New([]string{"A=" + value}, []string{"A"}, nil)
	return m
}

// Masking a record without secrets does not change its screen. In a record with secrets, asterisks replace them, and
// everything else stays unchanged.
func TestMaskRecord(t *testing.T) {
	s := New(protocol.Size{Cols: 20, Rows: 4}, 100)
	s.Write([]byte("\x1b]2;title hunter22\x07\x1b]7;file:///hunter22\x07one\r\n0123456789abcd hunter22 end\r\n\x1b[31mhun\x1b[32mter22\x1b[0m\r\n\x1b]8;;http://x/hunter22\x07l\x1b]8;;\x07"))
	s.Write([]byte("\r\n\r\n\x1b]777;notify;hunter22;hunter22\x07\x1b]133;A;hunter22\x07$ "))
	var record saveBuffer
	testkit.Must(t, s.Save(&record, -1))
	masked, err := MaskRecord(record, secretOf("hunter22"))
	testkit.Must(t, err)
	if bytes.Contains(masked, []byte("hunter22")) || !bytes.Contains(record, []byte("hunter22")) {
		t.Errorf("the record is %q", masked)
	}
	restored := restoreAll(t, masked)
	s.SetMasker(secretOf("hunter22"))
	want, _ := s.View(100).Content(protocol.ScreenSpec{Format: protocol.ScreenANSI, Scrollback: 100})
	got, _ := restored.View(100).Content(protocol.ScreenSpec{Format: protocol.ScreenANSI, Scrollback: 100})
	if got.ANSI != want.ANSI || got.Title != "title ********" || got.Cursor != want.Cursor || !strings.Contains(got.ANSI, "********") {
		t.Errorf("the restored screen is %q with title %q, want %q", got.ANSI, got.Title, want.ANSI)
	}
	if restored.Offset() != s.Offset() || restored.lineNumbers() != s.lineNumbers() {
		t.Errorf("offset %d and lines %+v, want %d and %+v", restored.Offset(), restored.lineNumbers(), s.Offset(), s.lineNumbers())
	}

	same, err := MaskRecord(record, secretOf("something else"))
	testkit.Must(t, err)
	var again saveBuffer
	if err := restoreAll(t, same).Save(&again, -1); err != nil || !bytes.Equal(again, record) {
		t.Errorf("a record without secrets became %q, want %q", again, record)
	}
	if _, err := MaskRecord([]byte("nonsense"), secretOf("abcd")); err == nil {
		t.Error("an invalid record is accepted")
	}
}

func restoreAll(t *testing.T, record []byte) *Screen {
	t.Helper()
	r, err := Restore(record, 100)
	testkit.Must(t, err)
	for !r.Step(1 << 20) {
	}
	return r.Screen()
}

type saveBuffer []byte

func (b *saveBuffer) WriteAt(p []byte, off int64) (int, error) {
	if end := int(off) + len(p); end > len(*b) {
		*b = append(*b, make([]byte, end-len(*b))...)
	}
	return copy((*b)[off:], p), nil
}

// A secret is masked in each column, with wide characters and over many rows.
func TestMaskedCells(t *testing.T) {
	for _, tt := range []struct {
		cols        int
		value, text string
		want        string
	}{
		{20, "hunter22", "a hunter22 b", "a ******** b"},
		{5, "hunter22", "a hunter22 b", "a ******** b"},
		{3, "hunter22hunter22hunter22", "a hunter22hunter22hunter22 b", "a ************************ b"},
		{20, "漢字xy", "a漢字xyb", "a******b"},
		{5, "漢字xy", "a漢字xyb", "a******b"},
		{7, "e\u0301abc", "xe\u0301abcx", "x****x"},
		{20, "hunter22", "hunter2 hunter222", "hunter2 ********2"},
		{20, "a b c", "xa b cx", "x*****x"},
	} {
		s := New(protocol.Size{Cols: tt.cols, Rows: 12}, 100)
		s.Write([]byte(tt.text))
		s.SetMasker(secretOf(tt.value))
		text, _ := s.View(0).Content(protocol.ScreenSpec{})
		if got := strings.Join(text.Lines, "\n"); got != tt.want {
			t.Errorf("%q in %d columns: the text is %q, want %q", tt.text, tt.cols, got, tt.want)
		}
		cells, _ := s.View(0).Content(protocol.ScreenSpec{Format: protocol.ScreenCells})
		var b strings.Builder
		for _, l := range cells.Cells {
			for _, c := range l.Cells {
				b.WriteString(c.Text)
			}
		}
		if got := b.String(); got != tt.want {
			t.Errorf("%q in %d columns: the cells are %q, want %q", tt.text, tt.cols, got, tt.want)
		}
		line := s.History(protocol.HistorySpec{Lines: 100, Before: new(uint64(100))}).Content().Lines
		b.Reset()
		for _, l := range line {
			for _, span := range l.Spans {
				b.WriteString(span.Text)
			}
		}
		if got := b.String(); got != tt.want {
			t.Errorf("%q in %d columns: the line is %q, want %q", tt.text, tt.cols, got, tt.want)
		}
		if tail := s.Text(5); strings.Join(tail, "\n") != tt.want {
			t.Errorf("%q in %d columns: the tail is %q, want %q", tt.text, tt.cols, tail, tt.want)
		}
	}
}
