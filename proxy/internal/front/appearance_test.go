package front

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
)

// An asked is an asking, with the input that it passed on, and the appearances that it reported.
type asked struct {
	*asking
	passed []byte
	told   []protocol.Appearance
}

func newAsked() *asked {
	a := &asked{}
	a.asking = ask(protocol.Appearance{CellWidth: 9}, func(p []byte) bool {
		a.passed = append(a.passed, p...)
		return bytes.Contains(p, []byte("\x1c"))
	}, func(looks protocol.Appearance) { a.told = append(a.told, looks) })
	return a
}

func (a *asked) want(t *testing.T, what, passed string, told ...protocol.Appearance) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if string(a.passed) != passed || fmt.Sprint(a.told) != fmt.Sprint(told) {
		t.Errorf("%s: passed %q and reported %+v, want %q and %+v", what, a.passed, a.told, passed, told)
	}
}

// The replies of terminals to the queries.
const (
	xtermSays = "\x1b]10;rgb:e5e5/e5e5/e5e5\x1b\\\x1b]11;rgb:0000/1111/ffff\x1b\\\x1b]12;rgb:ffff/0000/8080\x1b\\\x1bP>|XTerm(390)\x1b\\\x1b[?64;1;2;6;9;15;16;17;18;21;22;28c"
	ttySays   = "\x1b[?1;2c"
)

// The replies of a terminal are removed from the input, and other input is passed on in order. That holds if they
// come in one piece, in two, or byte by byte, and with input before, between and after them.
func TestAnswersAreTaken(t *testing.T) {
	cell := protocol.Appearance{CellWidth: 9}
	xterm := protocol.Appearance{Foreground: "#e5e5e5", Background: "#0011ff", Cursor: "#ff0080", CellWidth: 9, Version: "XTerm(390)"}
	for _, tt := range []struct {
		name, typed, want string
		told              protocol.Appearance
	}{
		{"xterm", xtermSays, "", xterm},
		{"no colours", ttySays, "", cell},
		{"typed before", "ls\r" + xtermSays, "ls\r", xterm},
		{"typed after", xtermSays + "ls\x1b[A", "ls\x1b[A", xterm},
		{"typed between", "a\x1b]11;#00ff7F\ab\x1bP>|x\x1b\\\x1bOAc" + ttySays + "d", "ab\x1bOAcd", protocol.Appearance{Background: "#00ff7f", CellWidth: 9, Version: "x"}},
		{"keys that begin alike", "\x1b]\x1b]1x\x1bP\x1b[?\x1b[1;5A\x1b\x1b\x1b[" + ttySays, "\x1b]\x1b]1x\x1bP\x1b[?\x1b[1;5A\x1b\x1b\x1b[", cell},
		{"replies to queries of programs", xtermSays + xtermSays, xtermSays, xterm},
		{"only the first reply of a kind is removed", "\x1b]11;rgb:1/2/3\a\x1b]11;rgb:4/5/6\a" + ttySays, "\x1b]11;rgb:4/5/6\a", protocol.Appearance{Background: "#112233", CellWidth: 9}},
		{"other answers", "\x1b[?2026;2$y\x1b]4;1;rgb:0/0/0\a\x1b[>0;10;1c\x1b[?997;1n\x1b[5;5R" + ttySays,
			"\x1b[?2026;2$y\x1b]4;1;rgb:0/0/0\a\x1b[>0;10;1c\x1b[?997;1n\x1b[5;5R", cell},
		{"an unknown colour", "\x1b]10;mauve\a\x1b]11;rgb:12345/0/0\a" + ttySays, "", cell},
		{"with alpha", "\x1b]11;rgba:8080/4040/2020/ffff\a" + ttySays, "", protocol.Appearance{Background: "#804020", CellWidth: 9}},
		{"a long name", "\x1bP>|" + strings.Repeat("ä", 100) + "\x1b\\" + ttySays, "", protocol.Appearance{CellWidth: 9, Version: strings.Repeat("ä", 64)}},
		{"no end to it", "\x1b]11;" + strings.Repeat("x", 300) + ttySays, "\x1b]11;" + strings.Repeat("x", 300), cell},
		{"broken off", "\x1b]11;rgb:00\x1b[A" + ttySays, "\x1b]11;rgb:00\x1b[A", cell},
		{"a paste", "\x1b[200~a\x1b]11;\r\x1b[201~" + ttySays, "\x1b[200~a\x1b]11;\r\x1b[201~", cell},
		{"without grapheme clusters", "\x1b[?2027;0$y\x1b[?1007;2$y" + ttySays, "", protocol.Appearance{CellWidth: 9, NoGraphemes: true}},
		{"with them", "\x1b[?2027;1$y" + ttySays + "\x1b[?1007;2$y", "\x1b[?1007;2$y", cell},
		{"of a mode another way", "\x1b[?2027;12$y\x1b[?2027$y\x1b[?2027;u" + ttySays, "\x1b[?2027;12$y\x1b[?2027$y\x1b[?2027;u", cell},
		{"mouse and focus", "\x1b[<0;1;1M\x1b[I\x1b[M !!" + ttySays + "\x1b[O", "\x1b[<0;1;1M\x1b[I\x1b[M !!\x1b[O", cell},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for cut := range len(tt.typed) {
					a := newAsked()
					a.filter([]byte(tt.typed[:cut]))
					a.filter([]byte(tt.typed[cut:]))
					a.want(t, fmt.Sprint("cut at ", cut), tt.want, tt.told)
					if !a.over() || len(a.held) > 0 {
						t.Errorf("cut at %d: the asking has not ended", cut)
					}
				}
				a := newAsked()
				for i := range len(tt.typed) {
					a.filter([]byte{tt.typed[i]})
				}
				a.want(t, "byte by byte", tt.want, tt.told)
			})
		})
	}
}

// The present state of a mode is reported if the mode can be changed.
func TestInitialModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for says, want := range map[string]string{
			"\x1b[?2027;1$y\x1b[?1007;2$y": "map[?1007:false ?2027:true]",
			"\x1b[?2027;3$y\x1b[?1007;0$y": "map[]",
			"\x1b[?12;1$y\x1b[?45;2$y":     "map[?12:true ?45:false]",
			"\x1b[?45;4$y\x1b[?12;2$y":     "map[?12:false]",
		} {
			a, told := newAsked(), map[string]bool{}
			a.initially = func(mode string, on bool) { told[mode] = on }
			a.filter([]byte(says + ttySays))
			if got := fmt.Sprint(told); got != want {
				t.Errorf("%q: reported %s, want %s", says, got, want)
			}
		}
	})
}

// While a terminal does not reply, only Esc and input that looks like the beginning of a reply are delayed, for a
// short time.
func TestNothingIsHeldForLong(t *testing.T) {
	for _, tt := range []struct {
		typed, now string
		wait       time.Duration
	}{
		{"a", "a", 0},
		{"\x1b[A", "\x1b[A", 0},
		{"\x1bOP", "\x1bOP", 0},
		{"ab\x1b", "ab", escapeWait},
		{"\x1b\x1b", "\x1b", escapeWait},
		{"\x1b]", "", escapeWait},
		{"\x1b[", "", escapeWait},
		{"x\x1bP", "x", escapeWait},
		{"\x1b[?", "", escapeWait},
		{"\x1b[?1", "", answerWait},
		{"\x1b]11;rgb:", "", answerWait},
		{"\x1b]11;rgb:0/0/0\x1b", "", answerWait},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newAsked()
			a.filter([]byte(tt.typed))
			a.want(t, "at once", tt.now)
			time.Sleep(tt.wait - 1)
			synctest.Wait()
			a.want(t, "before the time is over", tt.now)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			a.want(t, "when it is over", tt.typed)

			// The next Esc is delayed as well. After askingTime the asking ends with the known appearance, and delays
			// no input.
			a.filter([]byte("\x1b"))
			time.Sleep(escapeWait)
			synctest.Wait()
			a.want(t, "Esc again", tt.typed+"\x1b")
			time.Sleep(askingTime)
			synctest.Wait()
			a.filter([]byte("\x1b"))
			a.want(t, "when the terminal is given up", tt.typed+"\x1b\x1b", protocol.Appearance{CellWidth: 9})
		})
	}
}

// The delay counts from the first byte, even if further bytes come.
func TestHeldSinceTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsked()
		a.filter([]byte("\x1b"))
		time.Sleep(escapeWait - time.Millisecond)
		a.filter([]byte("]"))
		time.Sleep(time.Millisecond)
		synctest.Wait()
		a.want(t, "after the time of one", "\x1b]")
		a.filter([]byte("x\x1b"))
		time.Sleep(escapeWait / 2)
		a.filter([]byte("y\x1b"))
		time.Sleep(escapeWait - 1)
		synctest.Wait()
		a.want(t, "another Esc has its own time", "\x1b]x\x1by")
		a.filter([]byte(ttySays)) // the reply ends the asking, and the timer from before has no effect
		time.Sleep(2 * askingTime)
		synctest.Wait()
		a.want(t, "in the end", "\x1b]x\x1by\x1b", protocol.Appearance{CellWidth: 9})
	})
}

// flush passes on the input that is held.
func TestHeldAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsked()
		a.filter([]byte("x\x1b]1"))
		a.flush()
		a.want(t, "flushed", "x\x1b]1")
		if a.filter([]byte("y"+ttySays)) || !a.filter([]byte("\x1cd")) {
			t.Error("the result of filter does not tell whether the input detaches")
		}
	})
}

// leave waits for replies that may be on their way, but not for a terminal that has not replied for long.
func TestLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsked()
		took := func() time.Duration {
			began := time.Now()
			a.leave()
			return time.Since(began)
		}
		time.AfterFunc(leaveWait/2, func() { a.filter([]byte(xtermSays)) })
		if got := took(); got != leaveWait/2 {
			t.Errorf("waited %v for answers that came after %v", got, leaveWait/2)
		}
		if got := took(); got != 0 {
			t.Errorf("waited %v although all replies had come", got)
		}
		a = newAsked()
		if got := took(); got != leaveWait {
			t.Errorf("waited %v for a terminal that does not reply", got)
		}
		time.Sleep(leaveAfter)
		if got := took(); got != 0 {
			t.Errorf("waited %v for a terminal that has not replied for long", got)
		}
		time.Sleep(askingTime)
	})
}

// Input is neither lost nor reordered, wherever the replies are in it, however it is cut, and whatever time passes in
// between.
func TestTypingBesideAnswers(t *testing.T) {
	keys := []string{"a", "\r", "\x1b", "\x1b[A", "\x1bOP", "\x1b]", "\x1bP", "\x1b[", "ä", "\x1b[200~x\x1b[201~", "\x1b[?2026;2$y", "\x1b[1;5C"}
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			said := strings.SplitAfter(xtermSays, "\x1b\\")
			var typed, want strings.Builder
			var cuts []int // where a read may end and time may pass, which is never within a reply
			for len(said) > 0 || random.IntN(10) > 0 {
				if len(said) > 0 && random.IntN(3) == 0 {
					typed.WriteString(said[0])
					said = said[1:]
				} else {
					k := keys[random.IntN(len(keys))]
					typed.WriteString(k)
					want.WriteString(k)
					if k == "\x1b" || len(k) == 2 && k[0] == 0x1b {
						// A key that may begin a reply is read alone, because a user does not press keys within a
						// reply, and no other key at the same time.
						cuts = append(cuts, typed.Len())
					}
				}
			}
			a := newAsked()
			all := typed.String()
			for at := 0; at < len(all); {
				n := min(1+random.IntN(20), len(all)-at)
				pause := time.Duration(0)
				if len(cuts) > 0 && cuts[0] <= at+n {
					n, pause, cuts = cuts[0]-at, escapeWait, cuts[1:]
				}
				a.filter([]byte(all[at : at+n]))
				time.Sleep(pause)
				synctest.Wait()
				at += n
			}
			a.flush()
			a.want(t, fmt.Sprint("seed ", seed), want.String(), protocol.Appearance{
				Foreground: "#e5e5e5", Background: "#0011ff", Cursor: "#ff0080", CellWidth: 9, Version: "XTerm(390)",
			})
			time.Sleep(askingTime)
		})
	}
}

func TestHexColor(t *testing.T) {
	for in, want := range map[string]string{
		"rgb:ffff/8080/0000": "#ff8000", "rgb:ff/80/00": "#ff8000", "rgb:f/8/0": "#ff8800", "rgb:fff/800/000": "#ff8000",
		"rgba:1/2/3/4": "#112233", "#ABCDEF": "#abcdef", "": "", "#abc": "", "red": "", "rgb:": "", "rgb:1/2": "", "rgb:g/0/0": "", "cmyk:1/2/3": "", "rgb:-1/0/0": "",
	} {
		if got := hexColor(in); got != want {
			t.Errorf("hexColor(%q) = %q, want %q", in, got, want)
		}
	}
}

// The answer to DA1 and the terminal's name tell which pictures the terminal shows.
func TestPictures(t *testing.T) {
	look := func(version string) protocol.Appearance {
		return protocol.Appearance{Version: version, CellWidth: 8, CellHeight: 16}
	}
	none, sixel, both := protocol.Pictures{}, protocol.Pictures{Sixel: true}, protocol.Pictures{Sixel: true, ITerm2: true}
	for _, tt := range []struct {
		features string
		look     protocol.Appearance
		want     protocol.Pictures
	}{
		{"64;1;2;6;9;15", look("XTerm(390)"), none},
		{"63;1;2;4;6;9;15;22", look("XTerm(390)"), sixel},
		{"62;4;22", look("foot(1.16.2)"), sixel},
		{"4", look(""), none},
		{"62;14;22", look(""), none},
		{"65;4;6;18;22", look("WezTerm 20240203"), both},
		{"1;2", look("iTerm2 3.5.0"), protocol.Pictures{ITerm2: true}},
		{"62;4;9;22", look("xterm.js(6.0.0)"), both},
		{"1;2", look("xterm.js(6.0.0)"), none},
		{"62;52;c", look("kitty(0.42.0)"), protocol.Pictures{Kitty: true}},
		{"62;22", look("ghostty 1.2.0"), protocol.Pictures{Kitty: true}},
		{"62;4", protocol.Appearance{Version: "foot(1.16.2)"}, none},
	} {
		if got := pictures(tt.features, tt.look); got != tt.want {
			t.Errorf("%s, %s: %+v, want %+v", tt.features, tt.look.Version, got, tt.want)
		}
	}
}
