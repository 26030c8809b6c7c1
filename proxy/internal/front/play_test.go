package front

import (
	"bytes"
	"context"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// tape is a recording of digits: one byte is printed each second, except after the fifth, when the session is silent
// for an hour. Byte 8 is missing.
type tape struct{ began time.Time }

const digits = "0123456789"

func (r tape) at(i int) time.Time {
	at := r.began.Add(time.Duration(i) * time.Second)
	if i >= 5 {
		at = at.Add(time.Hour)
	}
	return at
}

func (r tape) State(_ context.Context, m protocol.Moment) (*protocol.ScreenContent, error) {
	n := 0
	switch {
	case m.Offset != nil:
		n = int(*m.Offset)
	case m.Time.Before(r.began):
		return nil, protocol.Errorf(protocol.CodeNotStored, "before the beginning")
	default:
		for n < len(digits) && !r.at(n).After(m.Time) {
			n++
		}
	}
	c := &protocol.ScreenContent{Offset: uint64(n), State: []byte("<" + digits[:n] + ">")}
	if n > 0 {
		c.PrintedAt = r.at(n - 1)
	}
	return c, nil
}

func (r tape) Output(_ context.Context, from, to uint64) iter.Seq2[client.PastOutput, error] {
	return func(yield func(client.PastOutput, error) bool) {
		for _, part := range [][2]uint64{{0, 3}, {3, 8}, {9, 10}} {
			o := client.PastOutput{Offset: max(from, part[0])}
			if o.Offset >= min(part[1], to) {
				continue
			}
			o.Data = []byte(digits[o.Offset:min(part[1], to)])
			for i := range o.Data {
				o.Times = append(o.Times, protocol.PastTime{Offset: o.Offset + uint64(i), At: r.at(int(o.Offset) + i)})
			}
			if !yield(o, nil) {
				return
			}
		}
	}
}

// A recording is played with its timing: faster, with shortened pauses, paused, and from other positions.
func TestPlay(t *testing.T) {
	for name, tt := range map[string]struct {
		o    PlayOptions
		keys string // the first key is pressed after a quarter of a second, and each further one half a second later; a dot means no key
		want string
		took time.Duration
	}{
		"all":             {PlayOptions{Until: 10}, "", "<>01234567<012345678>9", 9 * time.Second},
		"fast":            {PlayOptions{Until: 8, Speed: 2}, "", "<>01234567", 4 * time.Second},
		"a part":          {PlayOptions{From: 2, Until: 4}, "", "<01>23", 2 * time.Second},
		"nothing":         {PlayOptions{From: 3, Until: 3}, "", "<012>", 0},
		"the user leaves": {PlayOptions{Until: 10}, ".....q", "<>012", 2750 * time.Millisecond},
		"paused":          {PlayOptions{Until: 2}, ". ...... ", "<>01", 4250 * time.Millisecond},
		"paused and left": {PlayOptions{Until: 2}, " .q", "<>0", 1250 * time.Millisecond},
		"back":            {PlayOptions{Until: 5}, "...L", "<>01<>01234", 5750 * time.Millisecond},
		"ahead":           {PlayOptions{Until: 10}, ".R", "<>0<01234>567<012345678>9", 5750 * time.Millisecond},
		"far ahead":       {PlayOptions{Until: 4}, ".D", "<>0<0123>", 750 * time.Millisecond},
		"back in a pause": {PlayOptions{From: 1, Until: 3}, ".U", "<0><0>12", 2750 * time.Millisecond},
		"an unknown key":  {PlayOptions{From: 1, Until: 2}, "x", "<0>1", 1 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := tape{time.Now()}
				var out bytes.Buffer
				keys := make(chan string)
				ctx, leave := context.WithCancelCause(t.Context())
				defer leave(nil)
				go func() {
					for i, k := range tt.keys {
						select {
						case <-time.After(time.Until(r.began.Add(250*time.Millisecond + time.Duration(i)*500*time.Millisecond))):
						case <-ctx.Done():
							return
						}
						switch k {
						case '.':
						case 'q':
							leave(errLeft)
						default:
							select {
							case keys <- strings.NewReplacer("L", "\x1b[D", "R", "\x1b[C", "U", "\x1b[A", "D", "\x1b[B").Replace(string(k)):
							case <-ctx.Done():
							}
						}
					}
				}()
				tt.o.MaxPause = 2 * time.Second
				begun := time.Now()
				var scrolled []bool // of each state
				p := &player{PlayOptions: tt.o, recording: r, out: &out, keys: keys, clear: func(scroll bool) { scrolled = append(scrolled, scroll) }}
				testkit.Must(t, p.run(ctx))
				if got := out.String(); got != tt.want {
					t.Errorf("the player shows %q, want %q", got, tt.want)
				}
				if !scrolled[0] || slices.Contains(scrolled[1:], true) {
					t.Errorf("the text before a state scrolled away: %v; only that before the first state must", scrolled)
				}
				if took := time.Since(begun); took != tt.took {
					t.Errorf("the playback took %v, want %v", took, tt.took)
				}
				leave(nil)
				synctest.Wait()
			})
		})
	}
}

// unanswered is a recording whose supervisor does not answer.
type unanswered struct{ tape }

func (unanswered) State(ctx context.Context, _ protocol.Moment) (*protocol.ScreenContent, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// The user can leave a playback that waits for an answer, also behind more keys than the player has room for.
func TestPlayUnanswered(t *testing.T) {
	for _, keys := range []string{"q", strings.Repeat("\x1b[D", 2*maxKeys) + "\x03"} {
		in, typed, err := os.Pipe()
		testkit.Must(t, err)
		if _, err := typed.WriteString(keys); err != nil {
			t.Fatal(err)
		}
		if err := Play(t.Context(), Open(in, typed), unanswered{}, PlayOptions{Until: 10}); err != nil {
			t.Errorf("the user leaves: %v", err)
		}
		_, _ = in.Close(), typed.Close()
	}
}

// The output of a player has no queries, and changes only the display of the terminal.
func TestPlayFilter(t *testing.T) {
	for in, want := range map[string]string{
		"text\r\n\x1b[1;31mred\x1b[0m":                                               "text\r\n\x1b[1;31mred\x1b[0m",
		"\x1b[2J\x1b[H\x1b[?25l\x1b[?1049h\x1b[4 q\x1b[!p":                           "\x1b[2J\x1b[H\x1b[?25l\x1b[?1049h\x1b[4 q\x1b[!p",
		"\x1b[c\x1b[>c\x1b[6n\x1b[?6n\x1b[>q\x1b[18t\x05\x1bZ":                       "",
		"\x1b[?1000h\x1b[?2004h\x1b[?1000;25h\x1b[>1u\x1b[=1u\x1b[<u\x1b[>4;2m\x1b=": "\x1b[?25h",
		"\x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\":                   "\x1b]0;title\x07\x1b]8;;http://x\x07link\x1b]8;;\x07",
		"\x1b]52;c;c2VjcmV0\x07\x1b]9;hello\x07\x1b]11;?\x07\x1bP$qm\x1b\\\a":        "",
		"\x1b7\x1b[3;5r\x1b8\x1b(0q\x1b(B\x1bM":                                      "\x1b7\x1b[3;5r\x1b8\x1b(0q\x1b(B\x1bM",
		"\x1b]0;open":                                                                "",
		"caf\xc3\xa9 \xff":                                                           "caf\xc3\xa9 \xff",
	} {
		var f playFilter
		if got := string(f.apply([]byte(in))); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
		f = playFilter{}
		var got []byte
		for i := range len(in) {
			got = append(got, f.apply([]byte(in[i:i+1]))...)
		}
		if string(got) != want {
			t.Errorf("%q became %q byte by byte, want %q", in, got, want)
		}
	}
}

// FuzzPlayFilter checks that filtered output passes another filter unchanged, which shows that it has no query.
func FuzzPlayFilter(f *testing.F) {
	f.Add([]byte("\x1b[6n\x1b]11;?\x07\x1b[?1000h\x1b[c"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var once, twice playFilter
		kept := append(once.apply(in), 'x') // a character that ends a sequence which the output leaves open
		if again := twice.apply(kept); !bytes.Equal(again, kept) {
			t.Errorf("%q became %q, and then %q", in, kept, again)
		}
	})
}
