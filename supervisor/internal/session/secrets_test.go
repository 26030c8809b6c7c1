//go:build linux

package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/recorder"
	"holdfast/supervisor/internal/replay"
	"holdfast/supervisor/internal/screen"
)

const (
	plantedSecrets = 1000
	plantedPattern = `sk-[a-z0-9]{24}`
)

// A planter prints secrets in all the ways in which programs do.
type planter struct {
	rng    *rand.Rand
	values []string // values of secret variables
	made   []string // all secrets that were printed
}

func (p *planter) word(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[p.rng.IntN(len(letters))]
	}
	return string(b)
}

// secret returns a secret, and whether it is a value.
func (p *planter) secret() string {
	s := "sk-" + p.word(24)
	if p.rng.IntN(2) == 0 {
		s = p.values[p.rng.IntN(len(p.values))]
	}
	p.made = append(p.made, s)
	return s
}

// piece returns output with one secret, in the parts in which it is printed.
func (p *planter) piece() []string {
	s, n := p.secret(), 0
	cut := 1 + p.rng.IntN(len(s)-1)
	filler := p.word(1 + p.rng.IntN(100))
	switch n = p.rng.IntN(10); n {
	case 0:
		return []string{"token: " + s + "\r\n"}
	case 1:
		return []string{filler + " " + s[:cut], s[cut:] + "\r\n"}
	case 2:
		return []string{filler + " " + s[:cut] + "\x1b[1;31m" + s[cut:] + "\x1b[0m\r\n"}
	case 3: // at the edge, where the terminal breaks the row
		return []string{strings.Repeat("-", 80-1-p.rng.IntN(len(s)-1)) + s + "\r\n"}
	case 4:
		return []string{"\x1b]2;title " + s[:cut], s[cut:] + "\x07"}
	case 5:
		return []string{"\x1b]633;E;curl -H " + s + "\x07\x1b]133;C\x07", "\x1b]133;D;0\x07"}
	case 6:
		return []string{"\x1b]777;notify;build;" + s + "\x1b\\"}
	case 7:
		return []string{"\x1b]8;;https://example.com/" + s + "\x1b\\link\x1b]8;;\x1b\\\r\n"}
	case 8:
		return []string{strings.Repeat(p.word(7)+" ", 100) + s + " " + strings.Repeat(p.word(5)+" ", 100) + "\r\n"}
	default:
		return []string{"\x1b[32m" + s[:cut] + "\x1b]2;t\x07", "\x1b[0m" + s[cut:] + " " + filler + "\r\n"}
	}
}

// A finder searches data for the planted secrets.
type finder struct {
	t       *testing.T
	secrets map[string][]string // by their first bytes
}

const finderBytes = 5

func newFinder(t *testing.T, secrets ...string) *finder {
	f := &finder{t, map[string][]string{}}
	f.add(secrets...)
	return f
}

func (f *finder) add(secrets ...string) {
	for _, s := range secrets {
		f.secrets[s[:finderBytes]] = append(f.secrets[s[:finderBytes]], s)
	}
}

func (f *finder) none(where string, data []byte) {
	f.t.Helper()
	for i := range max(0, len(data)-finderBytes+1) {
		for _, s := range f.secrets[string(data[i:i+finderBytes])] {
			if bytes.HasPrefix(data[i:], []byte(s)) {
				f.t.Errorf("%s has the secret %s: %q", where, s, data[max(0, i-60):min(len(data), i+60)])
				return
			}
		}
	}
}

func (f *finder) noneIn(where string, v any) {
	f.t.Helper()
	data, err := json.Marshal(v)
	testkit.Must(f.t, err)
	f.none(where, data)
}

// shown returns the text of a screen as a person reads it.
func shown(sc *screen.Screen) []byte {
	c := sc.History(protocol.HistorySpec{Lines: protocol.MaxHistoryLines, Before: new(uint64(1 << 60))}).Content()
	var b strings.Builder
	for _, l := range c.Lines {
		for _, s := range l.Spans {
			b.WriteString(s.Text)
		}
		b.WriteByte('\n')
	}
	for _, l := range c.Looks {
		b.WriteString(l.Link + "\n")
	}
	return []byte(b.String() + sc.Title() + "\n")
}

// noneStored searches all that the store has: files, output, and screens at many offsets.
func (f *finder) noneStored(store *past.Store, dir string) {
	f.t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		f.none(path, data)
		return err
	})
	testkit.Must(f.t, err)
	lives, err := store.List()
	testkit.Must(f.t, err)
	for _, l := range lives {
		r, err := store.Open(l.Life)
		testkit.Must(f.t, err)
		b, err := r.Bounds()
		testkit.Must(f.t, err)
		var output []byte
		for p, err := range r.Range(b.Start, b.End) {
			testkit.Must(f.t, err)
			output = append(output, p.Output...)
		}
		f.none("output of "+l.String(), output)
		for i := range uint64(8) {
			at := max(b.Start, b.Exact-min(b.Exact, i*(b.Exact-b.Start)/8))
			v, err := r.At(at)
			if err != nil {
				continue // before the keyframe
			}
			f.none("keyframe of "+l.String(), v.Keyframe)
			sc, err := replay.Stored(r, at, 10_000)
			testkit.Must(f.t, err)
			f.none(fmt.Sprintf("screen of %s at %d", l, at), shown(sc))
		}
	}
}

// A thousand planted secrets are printed, and none is stored or returned. HOLDFAST_SEED repeats a run.
// demand: D8
func TestPlantedSecrets(t *testing.T) {
	seed := testkit.Seed()
	t.Logf("HOLDFAST_SEED=%d", seed)
	p := &planter{rng: rand.New(rand.NewPCG(seed, 0))}
	var env []string
	for i := range 30 {
		p.values = append(p.values, p.word(8+p.rng.IntN(20)))
		env = append(env, fmt.Sprintf("V%d_TOKEN=%s", i, p.values[i]))
	}
	dir := t.TempDir()
	store := past.New(dir, nil)
	r := recorder.New(recorder.Config{Store: store, Sync: 20 * time.Millisecond, Log: zerolog.Nop()})
	tb, by := fakeTable(t, Config{Recorder: r, Mask: []*regexp.Regexp{regexp.MustCompile(plantedPattern)}})
	f := newFinder(t, p.values...)
	events, stop := context.WithCancel(t.Context())
	for _, mode := range []protocol.Durable{protocol.DurableFull, protocol.DurableScreen} {
		s, err := tb.create(protocol.SessionID(mode), protocol.SpawnSpec{
			Argv: []string{"run", "--token=" + p.values[0]}, Env: env, SecretEnv: []string{"V*_TOKEN"}, Durable: mode,
			Labels: map[string]string{"title": "with " + p.values[1]},
		}, "")
		testkit.Must(t, err)
		f.run(p, s, by(s))
	}
	testkit.Must(t, r.Close(patience))
	f.noneStored(store, dir)
	all, _, err := tb.Events().Next(events, 0)
	testkit.Must(t, err)
	stop()
	f.noneIn("events", all)
	kinds := map[protocol.EventKind]bool{}
	for _, e := range all {
		kinds[e.Kind] = true
	}
	for _, k := range []protocol.EventKind{protocol.EventTitle, protocol.EventNotification, protocol.EventCommandFinished} {
		if !kinds[k] {
			t.Errorf("there is no event %s, so the test shows nothing of it", k)
		}
	}
}

// run prints half of the secrets in a session, and searches everything that the session returns.
func (f *finder) run(p *planter, s *Session, terminal *fakePTY) {
	t := f.t
	none := 0
	masked := look(t, s, protocol.AttachSpec{Mode: protocol.ModeReadOnly, History: &none, Mask: true})
	plain := look(t, s, protocol.AttachSpec{Mode: protocol.ModeReadOnly, History: &none})
	var printed []byte
	for i := range plantedSecrets / 2 {
		if i == plantedSecrets/4 { // so that a keyframe is stored in the mode screen, too
			line := strings.Repeat("filler ", 11) + "\r\n"
			filler := strings.Repeat(line, past.CapsuleBytes/len(line)+1)
			terminal.print([]byte(filler))
			printed = append(printed, filler...)
		}
		for _, part := range p.piece() {
			terminal.print([]byte(part))
			printed = append(printed, part...)
			if p.rng.IntN(4) == 0 { // without this wait several parts are read at once
				testkit.Eventually(t, patience, func() bool { return info(t, s).OutputOffset == uint64(len(printed)) }, "the part is read")
			}
		}
	}
	terminal.print([]byte("THE END\r\n"))
	printed = append(printed, "THE END\r\n"...)
	f.add(p.made...)
	plain.until(t, "THE END")
	if !bytes.Equal(plain.seen, printed) {
		t.Errorf("the viewer's output differs from the output that was printed: %d and %d bytes", len(plain.seen), len(printed))
	}
	masked.until(t, "THE END")
	f.none("masked attachment", masked.seen)
	if len(masked.seen) != len(printed) {
		t.Errorf("the masked attachment has %d bytes, want %d", len(masked.seen), len(printed))
	}
	again := look(t, s, protocol.AttachSpec{Mode: protocol.ModeReadOnly, Mask: true})
	again.until(t, "THE END")
	f.none("masked snapshot", again.seen)

	var read []byte
	for at := uint64(0); at < uint64(len(printed)); {
		data, from, _, err := s.Read(at, 1+p.rng.IntN(64<<10))
		testkit.Must(t, err)
		read, at = append(read, data...), from+uint64(len(data))
	}
	f.none("read", read)
	differs := 0
	for i := range min(len(read), len(printed)) {
		if read[i] != printed[i] {
			differs++
		}
	}
	most := 0
	for _, m := range p.made {
		most += len(m)
	}
	if len(read) != len(printed) || differs == 0 || differs > most {
		t.Errorf("read has %d bytes, of which %d are masked; want %d, and at most %d", len(read), differs, len(printed), most)
	}
	f.replies(s, p.made[0])
	testkit.Eventually(t, patience, func() bool { c, err := s.cfg.Recorder.Counts(); return err == nil && c.Appended > 0 }, "the recording has begun")
	terminal.exit(pty.Status{})
	exit := ended(t, s)
	f.noneIn("exit record", exit)
	f.noneIn("info", info(t, s))
	f.noneIn("labels", s.ShownLabels())
}

// past searches the replies about the past, and the state of a screen.
func (f *finder) past(s *Session) {
	t := f.t
	end := info(t, s).OutputOffset
	for _, at := range []*protocol.Moment{nil, {AgoMS: new(int64(0))}, {Offset: new(end - 1)}, {Offset: new(end - 5000)}} {
		for _, format := range []protocol.ScreenFormat{protocol.ScreenState, protocol.ScreenText} {
			show, spec := s.Show, protocol.ScreenSpec{Format: format, Scrollback: 1000, At: at}
			if at != nil {
				show = func(spec protocol.ScreenSpec) (protocol.ScreenContent, error) { return s.ShowAt(t.Context(), spec) }
			}
			c, err := show(spec)
			if err != nil && protocol.CodeOf(err) != protocol.CodeNotStored {
				t.Fatal(err)
			}
			f.none("state", c.State)
			f.noneIn("screen of the past", c)
		}
	}
	for at := uint64(0); at < end; {
		o, err := s.ReadPast(t.Context(), at, 100_000)
		testkit.Must(t, err)
		f.none("output of the past", o.Data)
		if len(o.Data) == 0 {
			break
		}
		at = o.Offset + uint64(len(o.Data))
	}
	f.searchPast(s, protocol.PastSearchSpec{Pattern: ".+", Limit: protocol.MaxMatches})
	c, err := s.Past(t.Context(), protocol.PastSpec{})
	testkit.Must(t, err)
	f.noneIn("past", c)
}

// searchPast searches the lines that a search of the whole past finds, and returns their number. A reply may have
// only some of them, because the supervisor ends a search that takes long.
func (f *finder) searchPast(s *Session, spec protocol.PastSearchSpec) (lines int) {
	for {
		c, err := s.SearchPast(f.t.Context(), spec)
		testkit.Must(f.t, err)
		f.noneIn("search of the past", c)
		lines += len(c.Matches)
		if !c.More {
			return lines
		}
		spec.Before = &c.Before
	}
}

// replies searches the replies of the requests about a session.
func (f *finder) replies(s *Session, secret string) {
	f.past(s)
	t := f.t
	for _, format := range []protocol.ScreenFormat{protocol.ScreenText, protocol.ScreenANSI, protocol.ScreenCells} {
		c, err := s.Show(protocol.ScreenSpec{Format: format, Scrollback: 3000})
		testkit.Must(t, err)
		f.noneIn("screen "+string(format), c)
		var b strings.Builder
		for _, l := range c.Cells {
			if !l.Wrapped {
				b.WriteByte('\n')
			}
			for _, cell := range l.Cells {
				b.WriteString(cell.Text)
			}
		}
		f.none("cells", []byte(b.String()))
		f.none("ANSI", regexp.MustCompile(`\x1b\[[0-9;:]*m`).ReplaceAll([]byte(c.ANSI), nil))
	}
	for before := uint64(1 << 60); ; {
		h, err := s.History(protocol.HistorySpec{Lines: 500, Before: &before})
		testkit.Must(t, err)
		f.noneIn("history", h)
		for _, l := range h.Lines {
			var line strings.Builder
			for _, span := range l.Spans {
				line.WriteString(span.Text)
			}
			f.none("line", []byte(line.String()))
			before = l.Line
		}
		if !h.More {
			break
		}
	}
	for _, pattern := range []string{".", "sk-", regexp.QuoteMeta(secret), plantedPattern} {
		found, err := s.Search(t.Context(), protocol.SearchSpec{Pattern: pattern, Limit: protocol.MaxMatches})
		testkit.Must(t, err)
		f.noneIn("search", found)
		if pattern == plantedPattern && len(found.Matches) > 0 {
			t.Errorf("a search for secrets finds %d lines", len(found.Matches))
		}
	}
	awaited, err := s.Await(t.Context(), protocol.AwaitSpec{Text: "THE END"})
	testkit.Must(t, err)
	f.noneIn("await", awaited)
	away, err := s.Away()
	testkit.Must(t, err)
	if len(away.Notifications) == 0 || len(away.Commands) == 0 {
		t.Errorf("away has %d notifications and %d commands, so the test shows nothing of it", len(away.Notifications), len(away.Commands))
	}
	f.noneIn("away", away)
	commands, err := s.Commands()
	if err != nil || len(commands.Commands) == 0 {
		t.Fatalf("%d commands, %v", len(commands.Commands), err)
	}
	f.noneIn("commands", commands)
	changes, err := s.Changes(protocol.ChangesSpec{Since: readerMark{}.encode(s.instance), MaxBytes: protocol.MaxScreenBytes})
	if err != nil || changes.Title == nil || len(changes.Lines) == 0 || len(changes.Commands) == 0 {
		t.Fatalf("the changes lack lines, title or commands: %+v, %v", changes, err)
	}
	f.noneIn("changes", changes)
	for _, c := range commands.Commands {
		h, err := s.History(protocol.HistorySpec{Command: int(c.Count)})
		testkit.Must(t, err)
		f.noneIn("output of a command", h)
	}
	before, err := s.Past(t.Context(), protocol.PastSpec{})
	testkit.Must(t, err)
	f.noneIn("past", before)
	for at := before.Start; at < before.End; {
		o, err := s.ReadPast(t.Context(), at, 64<<10)
		testkit.Must(t, err)
		f.none("output of the past", o.Data)
		at = o.Offset + uint64(max(1, len(o.Data)))
	}
	for _, pattern := range []string{"token: ", regexp.QuoteMeta(secret), plantedPattern} {
		if lines := f.searchPast(s, protocol.PastSearchSpec{Pattern: pattern}); (lines > 0) != (pattern == "token: ") {
			t.Errorf("a search of the past of %s for %s finds %d lines", s.id, pattern, lines)
		}
	}
	for i := range uint64(4) {
		at := before.Start + i*(before.End-before.Start)/4
		c, err := s.ShowAt(t.Context(), protocol.ScreenSpec{At: &protocol.Moment{Offset: &at}, Scrollback: 3000})
		if err != nil && protocol.CodeOf(err) != protocol.CodeNotStored {
			t.Fatal(err)
		}
		f.noneIn("screen of the past", c)
	}
	f.noneIn("info", info(t, s))
	f.noneIn("meta", source{s}.Meta())
}

// Input that the terminal does not echo is in no file, and in a masked recording all input of a
// session with secrets is asterisks.
// demand: D8
func TestInputIsNotStored(t *testing.T) {
	dir := t.TempDir()
	store := past.New(dir, nil)
	r := recorder.New(recorder.Config{Store: store, Sync: 10 * time.Millisecond, Log: zerolog.Nop()})
	tb, by := fakeTable(t, Config{Recorder: r, Durable: protocol.DurableFull})
	s := create(t, tb, protocol.SpawnSpec{Argv: []string{"ssh"}, Env: []string{"TOKEN=hunter22"}, SecretEnv: []string{"TOKEN"}})
	v := look(t, s, protocol.AttachSpec{Typed: true, Mask: true})
	var input []byte
	until := func(text string) {
		for !bytes.Contains(v.seen, []byte(text)) {
			if item, err := v.next(t); err != nil {
				t.Fatal(err)
			} else if item.Kind == ItemInput {
				input = append(input, item.Data...)
			}
		}
	}
	by(s).print([]byte("password: "))
	until("password: ")
	if _, err := s.Type("w", 0, []byte("correct horse\r")); err != nil {
		t.Fatal(err)
	}
	by(s).echoes.Store(true)
	if _, err := s.Type("w", 14, []byte("hunter22\r")); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, func() bool { return bytes.Contains(by(s).take(100), []byte("hunter22")) }, "the input has arrived")
	by(s).print([]byte("\r\nwelcome"))
	until("welcome")
	if got := string(input); strings.Contains(got, "correct") || strings.Contains(got, "hunter22") || !strings.Contains(got, "********\r") {
		t.Errorf("the viewer received the input %q", got)
	}
	testkit.Must(t, r.Close(patience))
	f := newFinder(t, "correct", "horse", "hunter22")
	f.noneStored(store, dir)
}

// Info names the secret variables whose values cannot be masked.
func TestUnmasked(t *testing.T) {
	tb, _ := fakeTable(t, Config{SecretEnv: []string{"ELSEWHERE", "*_PIN"}})
	s := create(t, tb, protocol.SpawnSpec{Argv: []string{"x"}, Env: []string{"MY_PIN=123", "SHORT=abc", "LONG=abcdef"}, SecretEnv: []string{"SHORT", "LONG", "TYPO"}})
	if got := strings.Join(info(t, s).Unmasked, " "); got != "MY_PIN SHORT TYPO" {
		t.Errorf("got %q", got)
	}
	if s = create(t, tb, protocol.SpawnSpec{Argv: []string{"x"}}); s.masker != nil || len(info(t, s).Unmasked) > 0 {
		t.Errorf("a session without secrets has a masker, and names %q", info(t, s).Unmasked)
	}
}

// A lost session shows asterisks in the place of its secrets, because they were not stored.
// demand: D8
func TestLostSecrets(t *testing.T) {
	dir := t.TempDir()
	m := boot(t, dir)
	spec := bash(`printf 'key %s\n' "$TOKEN"; echo READY; sleep 1000`)
	spec.Env, spec.SecretEnv = []string{"TOKEN=hunter22"}, []string{"TOKEN"}
	s, err := m.create("a", spec, "")
	testkit.Must(t, err)
	look(t, s, fromStart(s)).until(t, "hunter22\r\nREADY")
	m.stored(t, s, nil)
	m.cut(t)
	newFinder(t, "hunter22").noneStored(m.store, dir)
	lost, err := boot(t, dir).Get("a")
	testkit.Must(t, err)
	if got := text(t, lost); got != "key ********\nREADY" {
		t.Errorf("the lost session shows %q", got)
	}
	if i := info(t, lost); i.State != protocol.StateLost || len(i.Unmasked) > 0 {
		t.Errorf("the session is %s, and names %q as not masked", i.State, i.Unmasked)
	}
}
