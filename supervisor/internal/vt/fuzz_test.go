package vt

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"holdfast/shared/testkit"
)

// fuzzTerm returns a small terminal, so that output wraps and scrolls.
func fuzzTerm(size, mode byte) *Term {
	return New(Config{Cols: 2 + int(size&31), Rows: 1 + int(size>>5), HistoryLines: int(mode & 15), Graphemes: mode&16 != 0})
}

// feed writes data to a terminal in pieces of n bytes. A byte 0xff, which no text has, changes the size instead.
func feed(t *Term, data []byte, n int) {
	for len(data) > 0 {
		if data[0] == 0xff && len(data) > 2 {
			t.Resize(2+int(data[1]&31), 1+int(data[2]&7))
			data = data[3:]
			continue
		}
		k := min(n, len(data))
		if i := bytes.IndexByte(data[1:k], 0xff); i >= 0 {
			k = i + 1
		}
		t.Write(data[:k])
		data = data[k:]
	}
}

// FuzzTerm checks four promises for arbitrary output. Nothing panics, and the held memory is bounded. The state does
// not depend on how the output was cut. A terminal that is made of a snapshot has a snapshot that makes the same
// terminal. A terminal that is made of the result of Save and its remainder is the same.
func FuzzTerm(f *testing.F) {
	for _, s := range []string{
		"hello\r\nworld\x1b[31m!\x1b[2J", "\xe4\xb8\xad\xe6\x96\x87\xcc\x81\xff\x03\x02x\x1b[5b",
		"\x1b[2;3r\x1b[?6h\x1bM\x1b[L\x1b[4h\x1b(0qqq\x0e\x1b)A#", "\x1b[?1049h\x1b7\x1b[1\"q\x1b[?2J\x1b]8;id=a;x\x1b\\a\x1b]8;;\x1b\\",
		"\x1b[38:2::1:2:3m\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\x1bP$qm\x1b\\\x1b[6n\x1b[?u", "\x1b]2;\xc3", "\xc2\x9b3", "\x1bPq#0\x1b\\\x1b_x",
	} {
		f.Add(byte(9|1<<5), byte(5), []byte(s))
	}
	f.Add(byte(9|1<<5), byte(5|16), []byte("\u0604\x0fw\U0001f1e6\x0f\U0001f1e7"))
	f.Add(byte(0), byte(5), []byte("ab c\r\u035f"))
	f.Add(byte(5), byte(5), []byte("\x1b[?7ln\u231a\x1b[5b["))
	f.Fuzz(func(t *testing.T, size, mode byte, data []byte) {
		if len(data) > 4<<10 {
			return
		}
		whole, cut := fuzzTerm(size, mode), fuzzTerm(size, mode)
		feed(whole, data, len(data))
		feed(cut, data, 1)
		a, b := whole.State(), cut.State()
		if x, y := encodeState(t, a), encodeState(t, b); !bytes.Equal(x, y) || a.Pending != b.Pending {
			t.Fatalf("written byte by byte the state is\n%s\nwant\n%s", y, x)
		}
		if !bytes.Equal(whole.Replies(), cut.Replies()) {
			t.Fatal("written byte by byte the replies differ")
		}
		again := func(snapshot []byte) *Term {
			c := Config{HistoryLines: int(mode & 15), Graphemes: mode&16 != 0}
			c.Cols, c.Rows = whole.Size()
			t := New(c)
			t.Write(snapshot)
			return t
		}
		second := again(whole.Snapshot())
		if r := second.Replies(); len(r) > 0 {
			t.Fatalf("the snapshot %q has queries, with the replies %q", whole.Snapshot(), r)
		}
		third := again(second.Snapshot())
		if x, y := encodeState(t, second.State()), encodeState(t, third.State()); !bytes.Equal(x, y) {
			t.Fatalf("the snapshot\n%q\nof a snapshot's terminal\n%s\nmakes\n%s", second.Snapshot(), x, y)
		}
		save, rest := savedOf(t, whole, 100)
		c := Config{HistoryLines: int(mode & 15), Graphemes: mode&16 != 0}
		c.Cols, c.Rows = whole.Size()
		restored := New(c)
		restored.PrepareRestore(rest)
		restored.Refill(save)
		testkit.Must(t, rest.Validate())
		restored.FinishRestore(rest)
		save2, rest2 := savedOf(t, restored, 100)
		if x, y := encodeState(t, whole.State()), encodeState(t, restored.State()); !bytes.Equal(x, y) || !bytes.Equal(save, save2) || !reflect.DeepEqual(rest, rest2) {
			t.Fatalf("restored from\n%s\n%q\n%+v\nthe terminal is\n%s\n%q\n%+v", x, save, rest, y, save2, rest2)
		}
		whole.Pack()
		if x, y := encodeState(t, a), encodeState(t, whole.State()); !bytes.Equal(x, y) {
			t.Fatalf("packed the state is\n%s\nwant\n%s", y, x)
		}
	})
}

func encodeState(t *testing.T, s *State) []byte {
	t.Helper()
	if s.Alternate != nil { // the cursor of the hidden normal screen does not show
		s.Normal.X, s.Normal.Y = 0, 0
	}
	data, err := json.Marshal(s)
	testkit.Must(t, err)
	return data
}
