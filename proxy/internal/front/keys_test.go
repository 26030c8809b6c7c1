package front

import (
	"bytes"
	"regexp"
	"testing"
	"time"

	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/sysexits"
	"holdfast/shared/testkit"
)

func TestParseDetachKey(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want DetachKey
		ok   bool
	}{
		{`ctrl-\ d`, DetachKey{{'\\', true}, {'d', false}}, true},
		{`ctrl-]`, DetachKey{{']', true}}, true},
		{"CTRL-A  D", DetachKey{{'a', true}, {'D', false}}, true},
		{"ctrl-p ctrl-q", DetachKey{{'p', true}, {'q', true}}, true},
		{"ctrl-_", DetachKey{{'_', true}}, true},
		{"~ .", DetachKey{{'~', false}, {'.', false}}, true},
		{"none", nil, true},
		{"", nil, false},
		{"  ", nil, false},
		{"ctrl-a b c", nil, false},
		{"ctrl-[", nil, false},
		{"ctrl-", nil, false},
		{"ctrl-1", nil, false},
		{"ctrl-ab", nil, false},
		{"F1", nil, false},
		{"é", nil, false},
	} {
		got, err := ParseDetachKey(tt.in)
		if (err == nil) != tt.ok || !equalKeys(got, tt.want) {
			t.Errorf("parseDetachKey(%q) = %v, %v, want %v", tt.in, got, err, tt.want)
		}
		if err != nil && exitcode.Of(err) != sysexits.Usage {
			t.Errorf("parseDetachKey(%q) exits with %d", tt.in, exitcode.Of(err))
		}
	}
}

func equalKeys(a, b DetachKey) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// A recorder is a key filter whose wait does not end, with the input that it passed on.
type recorder struct {
	*keyFilter
	sent []byte
}

func newRecorder(t testing.TB, keys string) *recorder {
	t.Helper()
	k, err := ParseDetachKey(keys)
	testkit.Must(t, err)
	r := &recorder{}
	r.keyFilter = newKeyFilter(k, func(p []byte) { r.sent = append(r.sent, p...) })
	r.wait = time.Hour
	return r
}

func TestKeyFilter(t *testing.T) {
	const kitty = "\x1b[92;5u"
	for _, tt := range []struct {
		name, keys string
		typed      []string
		sent       string // input that is passed on before the detach, or until the flush
		detach     bool
	}{
		{"plain", `ctrl-\ d`, []string{"ls\r"}, "ls\r", false},
		{"both at once", `ctrl-\ d`, []string{"ab\x1cdcd"}, "ab", true},
		{"one by one", `ctrl-\ d`, []string{"a", "\x1c", "d"}, "a", true},
		{"ctrl still down", `ctrl-\ d`, []string{"\x1c", "\x04"}, "", true},
		{"another second key", `ctrl-\ d`, []string{"\x1c", "x"}, "\x1cx", false},
		{"the first key alone", `ctrl-\ d`, []string{"a\x1c"}, "a\x1c", false},
		{"the first key twice", `ctrl-\ d`, []string{"\x1c\x1cx"}, "\x1c\x1cx", false},
		{"twice, then the second", `ctrl-\ d`, []string{"\x1c\x1cd"}, "\x1c", true},
		{"the second key alone", `ctrl-\ d`, []string{"d\x1c"}, "d\x1c", false},
		{"one key", "ctrl-]", []string{"a\x1db"}, "a", true},
		{"the same key twice", "ctrl-a ctrl-a", []string{"\x01b\x01\x01"}, "\x01b", true},
		{"ctrl of the second is the first", "ctrl-a a", []string{"\x01\x01b"}, "\x01\x01b", false},
		{"ctrl of the second is Enter", "ctrl-a m", []string{"\x01\rb"}, "\x01\rb", false},
		{"none", "none", []string{"\x1cd" + kitty + "d"}, "\x1cd" + kitty + "d", false},

		{"kitty", `ctrl-\ d`, []string{"a" + kitty + "d"}, "a", true},
		{"kitty, all keys as sequences", `ctrl-\ d`, []string{kitty, "\x1b[100u"}, "", true},
		{"kitty, ctrl still down", `ctrl-\ d`, []string{kitty, "\x1b[100;5u"}, "", true},
		{"kitty, locks are on", `ctrl-\ d`, []string{"\x1b[92;197u", "\x1b[100;193u"}, "", true},
		{"kitty, keys go up", `ctrl-\ d`, []string{"\x1b[92;5:1u", "\x1b[92;5:3u", "\x1b[57442;1:3u", "\x1b[100;1:1u"}, "", true},
		{"kitty, alternate keys and text", `ctrl-\ d`, []string{"\x1b[92:124:92;5u", "\x1b[100;;100u"}, "", true},
		{"kitty, keys up alone", `ctrl-\ d`, []string{"\x1b[92;5:3u\x1b[100;1:3u"}, "\x1b[92;5:3u\x1b[100;1:3u", false},
		{"kitty, shift is another key", `ctrl-\ d`, []string{"\x1b[92;6ud"}, "\x1b[92;6ud", false},
		{"kitty, a key release is passed on", `ctrl-\ d`, []string{kitty + "\x1b[92;5:3ux"}, kitty + "\x1b[92;5:3ux", false},
		{"kitty, a capital", "ctrl-a D", []string{"\x1b[97;5u\x1b[100;2u"}, "", true},
		{"kitty, cut", `ctrl-\ d`, []string{"a\x1b[9", "2;5", "ud"}, "a", true},
		{"kitty, cut and something else", `ctrl-\ d`, []string{"a\x1b[9", "2;5", "Hd"}, "a\x1b[92;5Hd", false},
		{"modifyOtherKeys", `ctrl-\ d`, []string{"\x1b[27;5;92~", "d"}, "", true},
		{"modifyOtherKeys, a letter", "ctrl-b d", []string{"\x1b[27;5;98~\x1b[27;5;100~"}, "", true},
		{"a cut sequence that ends there", `ctrl-\ d`, []string{"\x1b[1;5"}, "\x1b[1;5", false},
		{"cursor keys and functions", `ctrl-\ d`, []string{"\x1b[A\x1b[1;5C\x1b[15~\x1bOP\x1b[<0;1;1M\x1b[I"}, "\x1b[A\x1b[1;5C\x1b[15~\x1bOP\x1b[<0;1;1M\x1b[I", false},
		{"escape, then something else", `ctrl-\ d`, []string{"\x1b", "[92;5u", "d"}, "\x1b[92;5ud", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRecorder(t, tt.keys)
			detach := false
			for _, p := range tt.typed {
				if detach = r.filter([]byte(p)); detach {
					break
				}
			}
			if !detach {
				r.flush()
			}
			if string(r.sent) != tt.sent || detach != tt.detach {
				t.Errorf("sent %q, detach %v, want %q, %v", r.sent, detach, tt.sent, tt.detach)
			}
		})
	}
}

// TestKeyFilterReleases checks that the first key of the detach keys is passed on after the wait, and a single
// escape, too.
func TestKeyFilterReleases(t *testing.T) {
	k, err := ParseDetachKey(DefaultDetachKey)
	testkit.Must(t, err)
	sent := make(chan string, 4)
	f := newKeyFilter(k, func(p []byte) { sent <- string(p) })
	f.wait = time.Millisecond
	if f.filter([]byte("\x1b")) {
		t.Fatal("detached by escape")
	}
	if got := <-sent; got != "\x1b" {
		t.Fatalf("sent %q", got)
	}
	if f.filter([]byte{0x1c}) {
		t.Fatal("detached by the first key")
	}
	if got := <-sent; got != "\x1c" {
		t.Errorf("sent %q", got)
	}
	if f.filter([]byte("d")) {
		t.Error("detached by a second key long after the first")
	}
}

// detachWords matches input in one piece that detaches with the default keys. It is the plain model of the filter.
var detachWords = regexp.MustCompile(`(?:\x1c|\x1b\[0*92(?::[\d:]*)?;0*(?:5|69|133|197)(?::(?:0*[12]?|[\d:]*:[\d:]*|0*[4-9]\d*))?(?:;[\d;:]*)?u)` +
	`(?:\x1b\[[\d:]+;\d*:3u)*(?:d|\x04)`)

// FuzzKeyFilter checks that input is passed on unchanged up to the detach keys, however it is cut.
func FuzzKeyFilter(f *testing.F) {
	for _, s := range []string{"ls -la\r", "\x1cd", "a\x1c\x1cd", "\x1b[92;5ud", "\x1b[92;5u\x1b[92;5:3ud", "\x1b[27;5;92~d", "\x1b[9", "\x1b\x1b[[92u", "\x1b[200~\x1cx\x1b[201~"} {
		f.Add([]byte(s), uint8(3))
		f.Add([]byte(s), uint8(255))
	}
	f.Fuzz(func(t *testing.T, in []byte, piece uint8) {
		r := newRecorder(t, DefaultDetachKey)
		detach, given := false, 0
		for given < len(in) && !detach {
			n := min(len(in)-given, int(piece)+1)
			detach = r.filter(bytes.Clone(in[given : given+n]))
			given += n
		}
		if !detach {
			r.flush()
			if !bytes.Equal(r.sent, in) {
				t.Fatalf("the input %q was passed on as %q", in, r.sent)
			}
		} else if rest, ok := bytes.CutPrefix(in[:given], r.sent); !ok || !startsWithDetach(rest) {
			t.Fatalf("the input %q detached after %q was passed on", in[:given], r.sent)
		}
		if whole := given == len(in) && len(in) <= int(piece)+1; whole && !detach && detachWords.Match(in) {
			t.Fatalf("the input %q in one piece did not detach", in)
		}
	})
}

// startsWithDetach reports whether p begins with the first key and the second one, with no other key press between
// them.
func startsWithDetach(p []byte) bool {
	first, n := readPress(p)
	if n == 0 || !first.is(key{'\\', true}) {
		return false
	}
	for p = p[n:]; len(p) > 0; p = p[n:] {
		var next press
		if next, n = readPress(p); n == 0 {
			return false
		}
		if next.is(key{'d', false}) || next.is(key{'d', true}) {
			return true
		}
		if !next.idle() {
			return false
		}
	}
	return false
}
