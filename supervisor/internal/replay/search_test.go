package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/escseq"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/ring"
)

// find returns all matches of a pattern, by as many requests as necessary, in ascending order.
func find(t *testing.T, p *Past, spec protocol.PastSearchSpec) (found []protocol.PastMatch) {
	t.Helper()
	for {
		c, err := p.Search(t.Context(), spec)
		testkit.Must(t, err)
		found = append(found, c.Matches...)
		if !c.More {
			break
		}
		if spec.Before != nil && c.Before >= *spec.Before {
			t.Fatalf("the search makes no progress at %d", c.Before)
		}
		spec.Before = &c.Before
	}
	slices.Reverse(found)
	return found
}

// A search finds the same lines however the output is divided into segments and the ring, with any
// limit, and whether the pattern has a literal or not.
func TestSearch(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	p := newTape(t, past.Full)
	var want []string
	var offsets []uint64
	for i := range 5_000 {
		line := fmt.Sprintf("line %d of \x1b[3%dmthe log\x1b[0m", i, i%8)
		if i%7 == 0 {
			line = fmt.Sprintf("ERROR \x1b[1mnumber\x1b[0m %d", i)
			want = append(want, fmt.Sprintf("ERROR number %d", i))
			offsets = append(offsets, uint64(len(p.printed)))
		}
		line += "\r\n"
		for i < 4_900 && r.IntN(60) == 0 { // several segments may share a line, and a segment may begin with one
			n := r.IntN(len(line) + 1)
			p.print([]byte(line[:n]), false)
			p.keyframe(true)
			line = line[n:]
		}
		p.print([]byte(line), i > 4_900)
	}
	q := p.past()
	for _, spec := range []protocol.PastSearchSpec{
		{Pattern: "ERROR number"},
		{Pattern: "error NUMBER", IgnoreCase: true},
		{Pattern: "^E.+ [0-9]+$"},
		{Pattern: "(ERROR|FATAL) number", Limit: 7},
		{Pattern: "ERROR n.*r \\d", Limit: 1000},
	} {
		found := find(t, q, spec)
		if len(found) != len(want) {
			t.Fatalf("%q: %d lines, want %d", spec.Pattern, len(found), len(want))
		}
		for i, m := range found {
			if m.Text != want[i] || m.Offset != offsets[i] || len(m.Ranges) != 1 {
				t.Fatalf("%q: match %d is %+v, want %q at %d", spec.Pattern, i, m, want[i], offsets[i])
			}
		}
	}
	if found := find(t, q, protocol.PastSearchSpec{Pattern: "^(line|ERROR) "}); len(found) != 5_000 {
		t.Errorf("%d lines of 5000", len(found))
	}
	if found := find(t, q, protocol.PastSearchSpec{Pattern: "ERROR", Before: new(offsets[3])}); len(found) != 3 || found[0].At.IsZero() {
		t.Errorf("before the fourth match there are %d: %+v", len(found), found)
	}
	if _, err := q.Search(t.Context(), protocol.PastSearchSpec{Pattern: "("}); protocol.CodeOf(err) != protocol.CodeInvalidArgument {
		t.Errorf("an invalid pattern: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Search(ctx, protocol.PastSearchSpec{Pattern: "x"}); !errors.Is(err, context.Canceled) {
		t.Errorf("a search without a client: %v", err)
	}
}

// A session that is not stored is searched in its ring, and output without a line feed as well.
func TestSearchRing(t *testing.T) {
	p := newTape(t, "")
	p.print([]byte("\x1b[1;1Hfirst\x1b[2;1Hsecond"), false)
	if found := find(t, p.past(), protocol.PastSearchSpec{Pattern: "^second$"}); len(found) != 1 || found[0].Offset != 17 {
		t.Errorf("found %+v", found)
	}
	full := newTape(t, past.Full)
	for range 3 {
		full.print(bytes.Repeat([]byte("\x1b[1;1Hsome text"), 5_000), false)
		full.keyframe(true)
	}
	full.print([]byte("\x1b[2;1Hneedle"), false)
	if found := find(t, full.past(), protocol.PastSearchSpec{Pattern: "needle"}); len(found) != 1 {
		t.Errorf("found %+v", found)
	}
	if found := find(t, full.past(), protocol.PastSearchSpec{Pattern: "some text", Limit: 1000}); len(found) < 14_990 || len(found) > 15_000 {
		t.Errorf("found %d lines of 15000", len(found)) // lines that two segments share are cut
	}
}

// A search finds the lines of a damaged segment that can be read.
func TestSearchDamagedSegment(t *testing.T) {
	p := newTape(t, past.Full)
	r := rand.New(rand.NewPCG(1, 2))
	noise := func() (text []byte) {
		for len(text) < 60_000 {
			text = fmt.Appendf(text, "%x\r\n", r.Uint64())
		}
		return text
	}
	p.print(append([]byte("needle zero\r\n"), noise()...), false)
	testkit.Must(t, p.writer.Sync())
	p.print(append(noise(), "needle one\r\n"...), false)
	p.keyframe(true)
	p.print([]byte("needle two\r\n"), false)
	q := p.past()
	var err error
	q.Ring, err = ring.NewAt(ring.MinBytes, p.live.Size(), p.live.Offset()) // as if it had overwritten this output
	testkit.Must(t, err)
	defer func() { _ = q.Ring.Close() }()
	path := filepath.Join(p.dir, p.life.String(), fmt.Sprintf("%019d-%019d", 0, len(p.printed)-len("needle two\r\n")))
	content, err := os.ReadFile(path)
	testkit.Must(t, err)
	for at, want := range map[int][]string{
		3:                    {"needle two"}, // in the header
		len(content) / 4:     {"needle one", "needle two"},
		len(content) * 3 / 4: {"needle zero", "needle two"},
	} {
		torn := bytes.Clone(content)
		torn[at] ^= 1
		testkit.Must(t, os.WriteFile(path, torn, 0o600))
		var lines []string
		for _, m := range find(t, q, protocol.PastSearchSpec{Pattern: "needle"}) {
			lines = append(lines, strings.Trim(m.Text, "\x00"))
		}
		if !slices.Equal(lines, want) {
			t.Errorf("byte %d: lines %q, want %q", at, lines, want)
		}
	}
}

// A panic in a search ends only that search.
func TestSearchPanic(t *testing.T) {
	f, err := newFinder("x", false)
	testkit.Must(t, err)
	s := search{finder: f, content: &protocol.PastSearchContent{Before: 10}, limit: 1}
	err = s.searchAll([]unit{{start: 0, end: 10, append: func([]byte, int) ([]byte, []past.Stamp, error) { panic("a defect") }}})
	if protocol.CodeOf(err) != protocol.CodeInternal || !strings.Contains(err.Error(), "a defect") {
		t.Errorf("error %v", err)
	}
}

// The required literal is a part of each match.
func TestRequired(t *testing.T) {
	for pattern, want := range map[string]literal{
		"error":               {"error", false},
		"a(bcd|bce)f+":        {"bc", false},
		"x*error: .* failed$": {"error: ", false},
		"foo|bar":             {},
		"(?:warning){2,}":     {"warning", false},
		"(warning)?":          {},
		"(?i)fork bomb":       {" bomb", true},
		"(?i)kkss":            {},
		"[0-9]+":              {},
	} {
		tree, err := syntax.Parse(pattern, syntax.Perl)
		testkit.Must(t, err)
		if got := required(tree.Simplify()); got != want {
			t.Errorf("%q requires %+v, want %+v", pattern, got, want)
		}
	}
}

// For any output, a search that uses a literal finds the same lines as one that does not.
func FuzzSearch(f *testing.F) {
	f.Add([]byte("one\r\ntwo\x1b[1mthree\r\n"), "t")
	f.Add([]byte("KELVIN \u212a\r\n"), "k")
	f.Fuzz(func(t *testing.T, output []byte, pattern string) {
		if len(pattern) > protocol.MaxPattern {
			return
		}
		for _, fold := range []bool{false, true} {
			quick, err := newFinder(pattern, fold)
			if err != nil {
				return
			}
			slow := &finder{Regexp: quick.Regexp}
			x := escseq.Lines{MaxLine: protocol.MaxLineBytes}
			x.Add(output)
			all := func(int) bool { return true }
			if got, want := quick.lines(x.Bytes, 10, all), slow.lines(x.Bytes, 10, all); !slices.Equal(got, want) {
				t.Errorf("%q in %q: lines %v, want %v (literal %q)", pattern, output, got, want, quick.literal)
			}
			for i := range x.Bytes {
				if at := x.OutputAt(i); at < 0 || at > len(output) {
					t.Fatalf("character %d is at %d of %d bytes", i, at, len(output))
				}
			}
		}
	})
}

// A reader receives all output with its times and sizes, and skips missing output.
func TestRead(t *testing.T) {
	p := newTape(t, past.Full)
	p.print([]byte("first\r\n"), false)
	p.resize(protocol.Size{Cols: 100, Rows: 30}, false)
	p.print([]byte("second\r\n"), false)
	p.print(bytes.Repeat([]byte("missing\r\n"), 20_000), true)
	from := uint64(len(p.printed))
	third := strings.Repeat("third\r\n", ring.MinBytes/6) // so that the ring has no missing output
	p.print([]byte(third), false)
	end := from + uint64(len(third))
	p.print([]byte("in the ring"), true)
	q := p.past()
	var got strings.Builder
	var places []uint64
	for at := uint64(0); ; {
		o, err := q.Read(t.Context(), at, 500)
		testkit.Must(t, err)
		if len(o.Data) == 0 {
			break
		}
		if len(o.Sizes) == 0 || o.Sizes[0].Offset != o.Offset || len(o.Data) > 500 || o.End != uint64(len(p.printed)) || (len(o.Times) == 0) != (o.Offset >= end) {
			t.Errorf("at %d: %+v", at, o)
		}
		got.Write(o.Data)
		places = append(places, o.Offset)
		at = o.Offset + uint64(len(o.Data))
	}
	if got.String() != "first\r\nsecond\r\n"+third+"in the ring" || !slices.Contains(places, from) {
		t.Errorf("read %d bytes, %.40q, at %v; want a part at %d", got.Len(), got.String(), places, from)
	}
	o, err := q.Read(t.Context(), 0, 1<<20)
	if err != nil || string(o.Data) != "first\r\nsecond\r\n" || len(o.Sizes) != 2 || o.Sizes[1].Offset != 7 || o.Sizes[1].Cols != 100 {
		t.Errorf("read %q, sizes %+v, %v", o.Data, o.Sizes, err)
	}
	if o, err = q.Read(t.Context(), 1<<40, 5); err != nil || len(o.Data) > 0 || o.Offset != o.End {
		t.Errorf("behind the end: %+v, %v", o, err)
	}
}

// Output that the store does not have is read, and searched, in the ring: in the mode screen the output before the
// last keyframe, in the mode full output that could not be stored. Lines across both are complete.
func TestStoreLacksOutput(t *testing.T) {
	for _, mode := range []past.Mode{past.Screen, past.Full} {
		t.Run(string(mode), func(t *testing.T) {
			p := newTape(t, mode)
			p.print([]byte("before the key"), mode == past.Full)
			p.resize(protocol.Size{Cols: 100, Rows: 30}, false)
			p.print([]byte("frame\r\nfrom sto"), mode == past.Full)
			p.keyframe(true)
			p.print([]byte("re to ri"), false)
			p.print([]byte("ng\r\n"), true)
			q := p.past()
			if found := find(t, q, protocol.PastSearchSpec{Pattern: "."}); len(found) != 2 || found[0].Text != "before the keyframe" || found[1].Text != "from store to ring" {
				t.Errorf("found %+v", found)
			}
			o, err := q.Read(t.Context(), 3, 1<<20)
			if err != nil || o.Offset != 3 || string(o.Data) != string(p.printed[3:]) || len(o.Sizes) != 2 || o.Sizes[1].Offset != 14 {
				t.Errorf("read %q from %d, sizes %+v, %v", o.Data, o.Offset, o.Sizes, err)
			}
			q.ClearedTo = 10
			if found := find(t, q, protocol.PastSearchSpec{Pattern: "before"}); len(found) != 0 {
				t.Errorf("found cleared output: %+v", found)
			}
			if o, err := q.Read(t.Context(), 3, 1<<20); err != nil || o.Offset != 10 {
				t.Errorf("read from %d, %v", o.Offset, err)
			}
		})
	}
}

// Whatever the store and the ring have, a reader receives exactly what was printed, with its sizes, and everything that
// the ring has; and a search finds each line of the ring once. HOLDFAST_SEED repeats the streams of a run.
func TestStoreAndRing(t *testing.T) {
	seed := testkit.Seed()
	t.Logf("HOLDFAST_SEED=%d", seed)
	for i := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, i))
		p := newTape(t, []past.Mode{past.Screen, past.Full, ""}[r.IntN(3)])
		lines := p.printLines(r)
		checkRead(t, p, 1+r.IntN(100_000))
		checkFound(t, p, lines, 1+r.IntN(1000))
		if t.Failed() {
			t.Fatalf("stream %d", i)
		}
	}
}

// printLines prints "line 1", "line 2" and so on. Some output is late, and some pieces end within a line. It returns the
// number of lines.
func (p *tape) printLines(r *rand.Rand) (lines int) {
	for range 1 + r.IntN(30) {
		switch r.IntN(5) {
		case 0:
			p.resize(protocol.Size{Cols: 20 + r.IntN(60), Rows: 5 + r.IntN(20)}, false)
		case 1:
			p.keyframe(p.writer != nil)
		default:
			var out []byte
			for range 1 + r.IntN([]int{3, 300, 3000}[r.IntN(3)]) {
				lines++
				out = fmt.Appendf(out, "line %d\n", lines)
			}
			cut := r.IntN(len(out))
			p.print(out[:cut], r.IntN(3) == 0)
			p.print(out[cut:], r.IntN(3) == 0)
		}
	}
	return lines
}

// checkRead reads the past in pieces of n bytes.
func checkRead(t *testing.T, p *tape, n int) {
	t.Helper()
	q := p.past()
	kept, _ := q.ringBounds()
	for at := uint64(0); at < uint64(len(p.printed)); {
		o, err := q.Read(t.Context(), at, n)
		testkit.Must(t, err)
		end := o.Offset + uint64(len(o.Data))
		if len(o.Data) == 0 || o.Offset < at || o.Offset > max(at, kept) || !bytes.Equal(o.Data, p.printed[o.Offset:end]) {
			t.Fatalf("at %d there are %d bytes of the output at %d; the ring begins at %d", at, len(o.Data), o.Offset, kept)
		}
		got := slices.DeleteFunc(o.Sizes, func(s protocol.PastSize) bool { return s.Offset == end }) // the next piece has it as well
		if want := p.sizesIn(o.Offset, end); o.Offset >= kept && !slices.Equal(got, want) {
			t.Fatalf("the sizes from %d to %d are %+v, want %+v", o.Offset, end, got, want)
		}
		at = end
	}
}

// sizesIn returns the size at from, and its changes before to.
func (p *tape) sizesIn(from, to uint64) (sizes []protocol.PastSize) {
	for _, s := range p.sizes {
		switch {
		case s.Offset <= from:
			sizes = []protocol.PastSize{{Offset: from, Size: s.Size}}
		case s.Offset < to:
			sizes = append(sizes, protocol.PastSize{Offset: s.Offset, Size: s.Size})
		}
	}
	return sizes
}

// checkFound searches all lines, in replies of at most limit lines.
func checkFound(t *testing.T, p *tape, lines, limit int) {
	t.Helper()
	q := p.past()
	times := map[uint64]int{} // that the line at an offset is found
	for _, m := range find(t, q, protocol.PastSearchSpec{Pattern: "^line [0-9]+$", Limit: limit}) {
		times[m.Offset]++
	}
	kept, _ := q.ringBounds()
	at := uint64(0)
	for i := range lines {
		if at >= kept && times[at] != 1 {
			t.Fatalf("line %d at %d is found %d times; the ring begins at %d", i+1, at, times[at], kept)
		}
		at += uint64(len(fmt.Sprintf("line %d\n", i+1)))
	}
}
