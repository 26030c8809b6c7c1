//go:build linux

package session

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/screen"
	"holdfast/supervisor/internal/slate"
	"holdfast/supervisor/internal/vault"
)

// A memoryVault is a Vault in the test's process. It holds duplicates of the files, as a keeper does.
type memoryVault struct {
	mu      sync.Mutex
	records map[string]vault.Entry
}

func (v *memoryVault) Put(_ context.Context, r vault.Entry) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	fds, err := duplicates(r.FDs)
	if err != nil {
		return err
	}
	v.drop(r.ID)
	r.FDs = fds
	v.records[r.ID] = r
	return nil
}

func duplicates(fds []int) (all []int, err error) {
	for _, fd := range fds {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, err
		}
		all = append(all, dup)
	}
	return all, nil
}

func (v *memoryVault) drop(id string) {
	for _, fd := range v.records[id].FDs {
		_ = unix.Close(fd)
	}
	delete(v.records, id)
}

func (v *memoryVault) SetPID(_ context.Context, id string, pid int) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	r, ok := v.records[id]
	if !ok {
		return fmt.Errorf("no vault entry %q", id)
	}
	r.PID = pid
	v.records[id] = r
	return nil
}

func (v *memoryVault) Delete(_ context.Context, id string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop(id)
	return nil
}

// entries returns the entries that a keeper sends to a new supervisor. Each has duplicates of its files.
func (v *memoryVault) entries(t *testing.T) (all []vault.Entry) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range v.records {
		fds, err := duplicates(r.FDs)
		testkit.Must(t, err)
		r.FDs = fds
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b vault.Entry) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// A tableLife is a Table that can be stopped as if its supervisor had died. Its sessions continue in the next tableLife.
type tableLife struct {
	*Table
	t     *testing.T
	vault *memoryVault
	cfg   Config
}

func newLife(t *testing.T, cfg Config) *tableLife {
	t.Helper()
	v := &memoryVault{records: make(map[string]vault.Entry)}
	t.Cleanup(func() { // the goroutine loop deletes the entry after its session was forgotten
		testkit.Eventually(t, patience, func() bool {
			v.mu.Lock()
			defer v.mu.Unlock()
			return len(v.records) == 0
		}, "no entry is held")
	})
	cfg.Vault = v
	return &tableLife{newTable(t, cfg), t, v, cfg}
}

// restart stops this table at an arbitrary point, as a SIGKILL would, and returns the next one, which adopts the
// sessions. It also passes the exits of children to the next table. Each change is called with each session that
// is halted, and may change the files that the next table finds: the session does not write to them any more.
func (l *tableLife) restart(h Heritage, changes ...func(*Session)) *tableLife {
	l.t.Helper()
	h.Exits = NewExits()
	all, _ := l.registry.all()
	for _, s := range all {
		p := s.pty.(*pty.PTY)
		thaw, err := s.halt(patience, func() {
			for _, change := range changes {
				change(s)
			}
		})
		if err != nil {
			l.t.Fatal("the session's loop has ended")
		}
		l.t.Cleanup(func() { // when the next life has ended
			thaw()
			<-s.exited
			_ = s.request(s.discard)
		})
		if s.exit == nil {
			go func() {
				<-p.Done()
				h.Exits.Record(p.PID(), p.Status())
			}()
		}
	}
	l.registry.mu.Lock()
	l.registry.sessions, l.registry.exited = nil, nil // so that the cleanup of the old table does not shut down the sessions
	l.registry.mu.Unlock()
	l.Table.cfg.Vault = nil
	next := &tableLife{newTable(l.t, l.cfg), l.t, l.vault, l.cfg}
	h.Entries = l.vault.entries(l.t)
	next.Adopt(h)
	go next.Restore(func() {})
	return next
}

func (l *tableLife) get(id protocol.SessionID) *Session {
	l.t.Helper()
	s, err := l.Get(id)
	testkit.Must(l.t, err)
	return s
}

// A client finds a session unchanged after its supervisor was replaced: creation time, output, screen, offsets and
// exit.
// demand: S10
func TestNextLife(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`printf '\e]2;a title\a'; seq 1 3000; echo READY; while read -r line; do echo "got $line"; done; exit 7`))
	v := look(t, s, fromStart(s))
	v.until(t, "READY")
	testkit.Must(t, v.a.Resize(protocol.Size{Cols: 100, Rows: 30}))
	testkit.Must(t, v.a.Type(0, []byte("one\ntwo\n")))
	before := v.until(t, "got two")
	was, screen := info(t, s), text(t, s)

	l = l.restart(Heritage{})
	s = l.get(s.ID())
	now := info(t, s)
	if now.PID != was.PID || now.Instance != was.Instance || now.Size != was.Size || now.Title != was.Title || now.State != protocol.StateRunning ||
		!now.CreatedAt.Equal(was.CreatedAt) || now.OutputOffset < was.OutputOffset {
		t.Errorf("the session was %+v, and is %+v", was, now)
	}
	if again := text(t, s); again != screen {
		t.Errorf("the screen was\n%s\nand is\n%s", screen, again)
	}
	w, err := attach(s, protocol.AttachSpec{Writer: v.a.Writer(), Resume: &protocol.Resume{Instance: s.Instance(), Offset: uint64(len(v.seen))}}, nil)
	testkit.Must(t, err)
	t.Cleanup(w.a.Close)
	if w.info.Replay != protocol.ReplayExact || w.info.InputOffset != 8 {
		t.Errorf("resumed as %+v", w.info)
	}
	// Input that was already accepted is sent again. The child must receive it once.
	testkit.Must(t, w.a.Type(4, []byte("two\nthree\n")))
	all := before + w.until(t, "got three")
	if n := strings.Count(all, "got two"); n != 1 {
		t.Errorf("the child received the input %d times", n)
	}
	testkit.Must(t, w.a.Type(14, []byte{4}))
	if exit := ended(t, s); exit.ExitCode != 7 || exit.Outcome != protocol.OutcomeNatural {
		t.Errorf("the session ended as %+v", exit)
	}

	// The next supervisor must have the exit record and the last output.
	l = l.restart(Heritage{})
	s = l.get(s.ID())
	after := info(t, s)
	if after.State != protocol.StateExited || after.Exit == nil || after.Exit.ExitCode != 7 || len(after.Exit.Tail) == 0 {
		t.Errorf("after the exit the session is %+v", after)
	}
	late := look(t, s, fromStart(s))
	if got := late.end(t); !strings.Contains(got, "got three") {
		t.Errorf("the output ends with %.100q", got[max(0, len(got)-100):])
	}
}

// TestNextLifeOfPaste checks that a paste is not searched for focus reports if the supervisor is
// replaced in the middle of it.
func TestNextLifeOfPaste(t *testing.T) {
	const out = "\x1b[O"
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`stty raw -echo; printf '\e[?1004hREADY'; exec cat -v`))
	v := look(t, s, fromStart(s))
	v.until(t, "READY")
	begin := out + "\x1b[200~half"
	testkit.Must(t, v.a.Type(0, []byte(begin)))
	v.until(t, "^[[O^[[200~half")

	l = l.restart(Heritage{})
	s = l.get(s.ID())
	w := look(t, s, protocol.AttachSpec{Writer: v.a.Writer(), Resume: &protocol.Resume{Instance: s.Instance(), Offset: uint64(len(v.seen))}})
	testkit.Must(t, w.a.Type(uint64(len(begin)), []byte(out+"\x1b[201~"+out+"end")))
	w.until(t, "^[[O^[[201~end") // the program knows already that no viewer has the focus
}

func text(t *testing.T, s *Session) string {
	t.Helper()
	c, err := s.Show(protocol.ScreenSpec{SessionID: s.ID(), Lines: 500})
	testkit.Must(t, err)
	return strings.Join(c.Lines, "\n")
}

// A viewer receives a flood that overwrites the ring many times to its end.
func TestNextLifeOfFlood(t *testing.T) {
	l := newLife(t, Config{RingBytes: 128 << 10})
	s := create(t, l.Table, bash(`seq 1 200000; echo READY; read -r; seq 1 50000; echo END; read -r`))
	v := look(t, s, fromStart(s))
	v.until(t, "READY")
	s.do(func() {
		if s.display.keyframe.offset == 0 {
			t.Error("there is no keyframe")
		}
	})
	l = l.restart(Heritage{})
	s = l.get(s.ID())
	if got := text(t, s); !strings.Contains(got, "\n199999\n200000\nREADY") {
		t.Errorf("the screen is %.200q", got[max(0, len(got)-200):])
	}
	w := look(t, s, protocol.AttachSpec{})
	testkit.Must(t, w.a.Type(0, []byte("\n")))
	w.until(t, "END")
	if got := text(t, s); !strings.Contains(got, "\n49999\n50000\nEND") {
		t.Errorf("the screen is %.200q", got[max(0, len(got)-200):])
	}
}

// An idle session is packed: its output, its history and its keyframe, which it does not need if the ring has all
// output. A successor after a crash restores all of it, and before an upgrade all of it is unpacked, because the next
// program may not know packed files.
func TestNextLifeOfPacked(t *testing.T) {
	for name, lines := range map[string]int{"the ring has all output": 100_000, "the ring has a part": 300_000} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t, Config{})
			s := create(t, l.Table, bash(fmt.Sprintf(`seq 1 %d; echo READY; read -r; echo END; read -r`, lines)))
			v := look(t, s, fromStart(s))
			v.until(t, "READY")
			frame := func(s *Session) (n int) {
				s.do(func() {
					frame, err := s.keyframeSlate.Read()
					if err != nil {
						t.Error(err)
					}
					n = len(frame)
				})
				return n
			}
			idle := func(s *Session) int {
				s.do(func() { s.idle.touched, s.idle.isIdle = false, false; s.becomeIdle() })
				n := frame(s)
				t.Logf("a keyframe of %d bytes", n)
				return n
			}
			packed := idle(s)
			if suffices := lines == 100_000; suffices != (packed == 0) {
				t.Errorf("the keyframe has %d bytes", packed)
			}
			want := text(t, s)
			l = l.restart(Heritage{})
			s = l.get(s.ID())
			if got := text(t, s); got != want {
				t.Errorf("the screen is %.200q, want %.200q", got, want)
			}
			var printed bytes.Buffer // v may have missed a part
			for i := range lines {
				fmt.Fprintf(&printed, "%d\r\n", i+1)
			}
			if got, from, _, err := s.Read(0, 1<<10); err != nil || !bytes.HasPrefix(printed.Bytes()[from:], got) || len(got) < 1<<10 {
				t.Errorf("the output from %d is %.100q, %v", from, got, err)
			}
			if n := idle(s); n != packed {
				t.Errorf("a program that has just begun has packed a session: the keyframe has %d bytes, before %d", n, packed)
			}
			s.do(func() { s.cfg.packFrom = time.Time{} })
			packed = idle(s)
			if packed == 0 {
				t.Error("the adopted session has no keyframe")
			}
			l.Prepare(true)
			if n := frame(s); n <= 2*packed {
				t.Errorf("before an upgrade the keyframe has %d bytes, packed it had %d", n, packed)
			}
			w := look(t, s, protocol.AttachSpec{})
			testkit.Must(t, w.a.Type(0, []byte("\n")))
			w.until(t, "END")
		})
	}
}

// beIdle makes a session idle, and then drops its screen unless something prevents it. It reports whether the screen is dropped.
func beIdle(s *Session) (isDropped bool) {
	s.do(func() {
		s.idle.touched, s.idle.isIdle = false, false
		s.becomeIdle()
		if s.idle.isIdle {
			s.becomeIdle()
		}
		isDropped = s.display.isDropped()
	})
	return isDropped
}

// A session whose screen was dropped shows the same afterwards, whatever uses the screen first, and a successor restores it, too.
func TestDropScreen(t *testing.T) {
	for name, lines := range map[string]int{"the ring has all output": 2000, "the ring has a part": 300_000} {
		for use, do := range map[string]func(*testing.T, *tableLife, *Session) (next *Session, printed string){
			"a request": func(_ *testing.T, _ *tableLife, s *Session) (*Session, string) { return s, "" },
			"a viewer": func(t *testing.T, _ *tableLife, s *Session) (*Session, string) {
				look(t, s, protocol.AttachSpec{}).until(t, "READY")
				return s, ""
			},
			"output": func(t *testing.T, _ *tableLife, s *Session) (*Session, string) {
				if _, err := s.Type("w", 0, []byte("\n")); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Await(testkit.Soon(t), protocol.AwaitSpec{Text: "MORE"}); err != nil {
					t.Fatal(err)
				}
				return s, "\nMORE"
			},
			"a size": func(t *testing.T, _ *tableLife, s *Session) (*Session, string) {
				for _, cols := range []int{50, 80} {
					testkit.Must(t, s.Resize(protocol.Size{Cols: cols}))
				}
				return s, ""
			},
			"a crash": func(_ *testing.T, l *tableLife, s *Session) (*Session, string) {
				return l.restart(Heritage{Crashed: true}).get(s.ID()), ""
			},
			"an upgrade": func(t *testing.T, l *tableLife, s *Session) (*Session, string) {
				l.Prepare(true)
				s.do(func() {
					if k := s.display.keyframe; !s.display.isDropped() || k.isWhole && !k.isPlain {
						t.Error("the preparation has restored the screen, or the keyframe is packed")
					}
				})
				return l.restart(Heritage{}).get(s.ID()), ""
			},
		} {
			t.Run(name+", "+use, func(t *testing.T) {
				l := newLife(t, Config{})
				s := create(t, l.Table, bash(fmt.Sprintf(`printf '\e]2;a title\a'; seq 1 %d; printf '\e[1;31mREADY\e[m'; read -r; printf MORE; read -r`, lines)))
				v := look(t, s, fromStart(s))
				v.until(t, "READY")
				want, was := text(t, s), info(t, s)
				if beIdle(s) {
					t.Fatal("the screen was dropped although a viewer is attached")
				}
				v.a.Detach()
				testkit.Eventually(t, patience, func() bool { return beIdle(s) }, "the screen is dropped, when the events of the program are published")
				if now := info(t, s); now.Title != "a title" || now.OutputOffset != was.OutputOffset || now.Size != was.Size {
					t.Errorf("the session is %+v, and was %+v", now, was)
				}
				s, printed := do(t, l, s)
				if got := text(t, s); len(got) < 500 || !strings.HasSuffix(want+printed, got) {
					t.Errorf("the screen ends with %q, want %q", got[max(0, len(got)-30):], (want + printed)[len(want+printed)-30:])
				}
			})
		}
	}
}

// A client that awaits a text with a mark of an earlier supervisor is notified of lines that were printed after the
// mark, and of no line from before it. With the inclusive mark, it is also notified of a line that was on the screen then.
func TestNextLifeAwaits(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`a='\e]133;A\a$ '; printf "old\n$a"; echo READY; read -r; printf "\e]133;C\anew\n"; seq 1 5000; printf "$a"; echo SAID; read -r`))
	v := look(t, s, fromStart(s))
	v.until(t, "READY")
	mark, err := s.Mark()
	testkit.Must(t, err)
	testkit.Must(t, v.a.Type(0, []byte("\n")))
	v.until(t, "SAID")
	l = l.restart(Heritage{})
	s = l.get(s.ID())
	m := mark.Mark
	info, err := s.Await(testkit.Soon(t), protocol.AwaitSpec{Text: "^(old|new)$", Since: m})
	if err != nil || info.Line != "new" {
		t.Errorf("the await ended with %+v, %v, want the line that was printed after the mark", info, err)
	}
	info, err = s.Await(testkit.Soon(t), protocol.AwaitSpec{Text: "^old$", Since: mark.Inclusive})
	if err != nil || info.Line != "old" {
		t.Errorf("the await ended with %+v, %v, want the line that was on the screen at the mark", info, err)
	}
	info, err = s.Await(testkit.Soon(t), protocol.AwaitSpec{Prompt: true, Since: m})
	if err != nil || info.Command == nil || !info.Command.Prompt {
		t.Errorf("the await ended with %+v, %v, want a prompt", info, err)
	}
	// A mark that was made after the output must not match that output.
	ctx, stop := context.WithTimeout(t.Context(), 0)
	defer stop()
	m = marked(t, s)
	l = l.restart(Heritage{})
	s = l.get(s.ID())
	_ = text(t, s) // waits until the screen is restored
	for _, spec := range []protocol.AwaitSpec{{Text: "SAID|new|old", Since: m}, {Prompt: true, Since: m}} {
		if info, err := s.Await(ctx, spec); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the await ended with %+v, %v, although the session has printed nothing since the mark", info, err)
		}
	}
}

// A requested end is carried out even if the supervisor that accepted the request dies before.
func TestNextLifeEnds(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`trap '' HUP TERM; echo READY; while :; do sleep 1000; done`))
	look(t, s, fromStart(s)).until(t, "READY")
	grace := time.Hour
	testkit.Must(t, s.Terminate(End{Grace: &grace, Reason: "a user"}))
	l = l.restart(Heritage{}, func(s *Session) { // stores the same end with a grace of 1 ms
		v := s.save()
		v.Ending.GraceMS = 1
		data, err := json.Marshal(v)
		if err == nil {
			err = s.stateSlate.Write(data)
		}
		if err != nil {
			t.Error(err)
		}
	})
	s = l.get(s.ID())
	if exit := ended(t, s); exit.Reason != "a user" || exit.Outcome != protocol.OutcomeHard {
		t.Errorf("the session ended as %+v", exit)
	}
}

// A terminal query that the old supervisor has answered is not answered again. A query that it has not answered is
// answered by the next one.
func TestNextLifeAnswersOnce(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`stty raw -echo; printf '\e[6n'; IFS= read -r -d R x; echo "answered ${x#?}"; echo READY; read -r -n 1 -t 1000 y; printf 'then %q' "$y"; exec sleep 1000`))
	look(t, s, fromStart(s)).until(t, "READY")
	l = l.restart(Heritage{})
	s = l.get(s.ID())
	_ = text(t, s) // waits until the screen is restored
	w := look(t, s, protocol.AttachSpec{})
	testkit.Must(t, w.a.Type(0, []byte("!")))
	if got := w.until(t, "then "); strings.Contains(got, "then $'") {
		t.Errorf("the child read another input first: %q", got)
	}
	w.until(t, `then \!`)
}

// A panic in the terminal core costs one session its screen. Nothing else is lost.
func TestDegraded(t *testing.T) {
	dir := t.TempDir()
	l := newLife(t, Config{ReportDir: dir})
	s := create(t, l.Table, bash(`echo READY; while read -r line; do echo "got $line"; done`))
	other := create(t, l.Table, bash(`echo READY; while read -r line; do echo "got $line"; done`))
	v := look(t, s, fromStart(s))
	v.until(t, "READY")
	s.do(func() { s.display.useRestored(func(*screen.Screen) { panic("a mistake") }) })
	await(t, l.Events(), s.ID(), protocol.EventDegraded)
	if !info(t, s).Degraded || info(t, other).Degraded {
		t.Error("the wrong session is marked as degraded")
	}
	testkit.Must(t, v.a.Type(0, []byte("one\n")))
	v.until(t, "got one")
	_, err := s.Show(protocol.ScreenSpec{SessionID: s.ID()})
	wantCode(t, "a screen that is lost", err, "")
	// A new viewer receives the output that the ring still has.
	if got := look(t, s, protocol.AttachSpec{}).until(t, "got one"); !strings.Contains(got, "READY") {
		t.Errorf("a new viewer gets %q", got)
	}
	reports, err := filepath.Glob(filepath.Join(dir, "core-*.json"))
	if err != nil || len(reports) != 1 {
		t.Fatalf("%d reports, %v", len(reports), err)
	}
	report, err := os.ReadFile(reports[0])
	if err != nil || !strings.Contains(string(report), "a mistake") || !strings.Contains(string(report), `"printed"`) {
		t.Errorf("the report is %.200q, %v", report, err)
	}
	l = l.restart(Heritage{})
	s = l.get(s.ID())
	if !info(t, s).Degraded {
		t.Error("the screen was restored although it had been given up")
	}
	if got := look(t, s, protocol.AttachSpec{}).until(t, "got one"); !strings.Contains(got, "READY") {
		t.Errorf("in the next life a new viewer gets %q", got)
	}
}

// A screen is given up if supervisors crashed while they restored it. It is not given up if the supervisor was
// killed.
func TestSuspect(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`echo READY; exec sleep 1000`))
	look(t, s, fromStart(s)).until(t, "READY")
	s.display.saveRestoreTries(maxRestoreTries)
	next := l.restart(Heritage{})
	if info(t, next.get(s.ID())).Degraded {
		t.Error("the screen was given up although the supervisor was killed and did not crash")
	}
	s = next.get(s.ID())
	_ = text(t, s)
	s.display.saveRestoreTries(maxRestoreTries)
	if last := next.restart(Heritage{Crashed: true}); !info(t, last.get(s.ID())).Degraded {
		t.Error("restored again")
	}
}

// A screen that was being restored when a supervisor died stays suspect only until the next supervisor has served for
// a while. A death after that time has another cause.
func TestSuspectOfLittle(t *testing.T) {
	l := newLife(t, Config{suspectAfter: 300 * time.Millisecond})
	s := create(t, l.Table, bash(`echo READY; exec sleep 1000`))
	look(t, s, fromStart(s)).until(t, "READY")
	suspected := func() uint64 {
		n, err := s.stateSlate.Word(wordRestoreTries)
		testkit.Must(t, err)
		return n
	}
	s.display.saveRestoreTries(1)
	begun := time.Now()
	l = l.restart(Heritage{Crashed: true})
	s = l.get(s.ID())
	started := make(chan struct{})
	go s.do(func() { close(started); s.display.finishRestore() }) // a request that needs the screen at once
	<-started
	if n := suspected(); n != 1 && time.Since(begun) < l.cfg.suspectAfter {
		t.Errorf("%d tries are counted before suspectAfter has passed", n)
	}
	if got := text(t, s); !strings.Contains(got, "READY") || suspected() != 0 || info(t, s).Degraded {
		t.Errorf("the screen shows %q, and %d tries are counted", got, suspected())
	}
}

// A screen that was given up is restored again by another program, and by the next program that the same process
// executes.
func TestGivenUpIsTriedAgain(t *testing.T) {
	for name, h := range map[string]Heritage{"v2": {}, "v1": {Own: true}} {
		l := newLife(t, Config{Program: "v1", suspectAfter: time.Nanosecond})
		s := create(t, l.Table, bash(`echo READY; exec sleep 1000`))
		look(t, s, fromStart(s)).until(t, "READY")
		s.do(func() { s.display.useRestored(func(*screen.Screen) { panic("a mistake") }) })
		if l = l.restart(Heritage{}); !info(t, l.get(s.ID())).Degraded {
			t.Error("the same program has restored the screen again")
		}
		l.cfg.Program = name
		h.Exits = nil
		l = l.restart(h)
		if got := text(t, l.get(s.ID())); !strings.Contains(got, "READY") || info(t, l.get(s.ID())).Degraded {
			t.Errorf("program %s: the screen shows %q", name, got)
		}
	}
}

// If a supervisor dies after it has reopened a session, the next one adopts both lives of the id, and the later life
// has the id.
func TestNextLifeReopened(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`exit 3`))
	ended(t, s)
	again, err := l.reopen(s.ID(), "", protocol.RespawnSpec{Argv: bash("echo READY; read x; exit 4").Argv}, "")
	testkit.Must(t, err)
	look(t, again, fromStart(again)).until(t, "READY")
	l = l.restart(Heritage{})
	if now := info(t, l.get(s.ID())); now.Instance != again.Instance() || now.State != protocol.StateRunning {
		t.Errorf("the session is %+v, want the reopened one", now)
	}
	if n := len(l.List("")); n != 1 {
		t.Errorf("%d sessions are listed, want 1", n)
	}
	now := l.get(s.ID())
	if _, err := now.Type("", 0, []byte("\n")); err != nil {
		t.Fatal(err)
	}
	ended(t, now)
	testkit.Must(t, l.ForgetFailed(s.ID(), again.Instance()))
	if now := info(t, l.get(s.ID())); now.Instance != s.Instance() || now.ExitCode == nil || *now.ExitCode != 3 {
		t.Errorf("after the new life has failed, the session is %+v", now)
	}
}

// A supervisor dies just after it has saved the exit record of a session. The next one does the rest: the end of the output is
// final, so that the recording is completed, and the vault does not hold the terminal any more.
func TestNextLifeAfterExitRecord(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`echo READY; read -r x`))
	look(t, s, fromStart(s)).until(t, "READY")
	l = l.restart(Heritage{}, func(s *Session) {
		was := s.saved
		s.saved.setState(protocol.StateDraining)
		s.saved.setState(protocol.StateExited)
		s.exit = &protocol.ExitRecord{ExitCode: 7, Reason: protocol.ReasonExited, ExitedAt: time.Now()}
		if err := s.writeState(); err != nil {
			t.Error(err)
		}
		s.saved, s.exit = was, nil
		s.pty.Hangup(unix.SIGKILL, 0)
	})
	s = l.get(s.ID())
	if now := info(t, s); now.ExitCode == nil || *now.ExitCode != 7 {
		t.Errorf("the session is %+v", now)
	}
	if _, end, finished := s.ring.Bounds(); end == 0 || !finished {
		t.Errorf("the output ends at %d, final: %v", end, finished)
	}
	var meta entryMeta
	l.vault.mu.Lock()
	defer l.vault.mu.Unlock()
	if err := json.Unmarshal(l.vault.records[s.entry.id].Meta, &meta); err != nil || slices.Contains(meta.Files, fileMaster) {
		t.Errorf("the vault holds %v, %v", meta.Files, err)
	}
}

// A vault entry that cannot be read stays in the vault and its child runs on. The other sessions are adopted.
func TestNextLifeDamaged(t *testing.T) {
	l := newLife(t, Config{})
	good := create(t, l.Table, bash(`echo READY; exec sleep 1000`))
	bad := create(t, l.Table, bash(`echo READY; exec sleep 1000`))
	look(t, good, fromStart(good)).until(t, "READY")
	look(t, bad, fromStart(bad)).until(t, "READY")
	pid := info(t, bad).PID
	id := bad.entry.id
	l = l.restart(Heritage{}, func(s *Session) {
		if s == bad {
			writeLaterVersion(t, s)
		}
	})
	l.get(good.ID())
	if _, err := l.Get(bad.ID()); protocol.CodeOf(err) != protocol.CodeSessionNotFound {
		t.Errorf("the damaged session is served: %v", err)
	}
	if !running(pid) {
		t.Error("the child of the damaged session has ended")
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	l.vault.mu.Lock() // sessions that run put and delete their own entries at the same time
	defer l.vault.mu.Unlock()
	if _, held := l.vault.records[id]; !held {
		t.Error("the damaged entry is not in the vault any more")
	}
	l.vault.drop(id)
}

// A session with damaged memory files is served by the next supervisor with what is left, and by the one after that in the same
// way: its child lives, so it must not be out of reach.
func TestNextLifeDamagedFiles(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rnd := rand.NewChaCha8([32]byte(binary.LittleEndian.AppendUint64(make([]byte, 24), seed)))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	state := func(s *Session) *os.File { return s.stateSlate.File() }
	keyframe := func(s *Session) *os.File { return s.keyframeSlate.File() }
	output := func(s *Session) *os.File { f, _ := s.ring.File(); return f }
	truncate := func(f *os.File) error { return f.Truncate(0) }
	zero := func(f *os.File) error { _, err := f.WriteAt(make([]byte, 4096), 0); return err }
	randomAt := func(at int64, n int) func(*os.File) error {
		return func(f *os.File) error {
			p := make([]byte, n)
			_, _ = rnd.Read(p) // it never fails
			_, err := f.WriteAt(p, at)
			return err
		}
	}
	half := func(s *Session) func(*os.File) error {
		return func(*os.File) error {
			old, err := s.stateSlate.Read()
			return errors.Join(err, s.stateSlate.Write(old[:len(old)/2]))
		}
	}
	for name, damage := range map[string]func(*Session) error{
		"keyframe truncated": func(s *Session) error { return truncate(keyframe(s)) },
		"keyframe zeroed":    func(s *Session) error { return zero(keyframe(s)) },
		"state truncated":    func(s *Session) error { return truncate(state(s)) },
		"state zeroed":       func(s *Session) error { return zero(state(s)) },
		"state random":       func(s *Session) error { return randomAt(0, 4096)(state(s)) },
		"state without end":  func(s *Session) error { return half(s)(state(s)) },
		"ring zeroed":        func(s *Session) error { return zero(output(s)) },
		"ring random":        func(s *Session) error { return randomAt(0, 4096)(output(s)) },
		"ring's end":         func(s *Session) error { return randomAt(64, 8)(output(s)) },
		"input random":       func(s *Session) error { return randomAt(64<<10, 192<<10)(output(s)) },
		"all random": func(s *Session) error {
			return errors.Join(randomAt(0, 4096)(output(s)), randomAt(0, 4096)(state(s)), randomAt(0, 4096)(keyframe(s)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t, Config{})
			spec := bash(`seq 1 100; echo READY; read -r a; echo "got $a"; read -r a; exit 7`)
			spec.Cols, spec.Rows = 100, 30
			s := create(t, l.Table, spec)
			v := look(t, s, fromStart(s))
			v.until(t, "READY\r\n")
			was, want := info(t, s), text(t, s)
			l = l.restart(Heritage{}, func(s *Session) {
				if err := damage(s); err != nil {
					t.Error(err)
				}
			})
			s = l.get(s.ID())
			now := info(t, s)
			if now.PID != was.PID || now.Instance != was.Instance || now.Size != was.Size || now.OutputOffset < was.OutputOffset {
				t.Errorf("the session was %+v, and is %+v", was, now)
			}
			if got := text(t, s); !strings.HasPrefix(name, "ring") && name != "all random" && got != want {
				t.Errorf("the screen is %.200q, want %.200q", got, want)
			}
			w := look(t, s, protocol.AttachSpec{Writer: "other", Resume: &protocol.Resume{Instance: s.Instance(), Offset: was.OutputOffset}})
			testkit.Must(t, w.a.Type(0, []byte("x\n")))
			w.until(t, "got x")
			l = l.restart(Heritage{}, func(s *Session) {
				if !s.display.writeKeyframe(allLines) {
					t.Error("the keyframe is not written")
				}
			})
			s = l.get(s.ID())
			s.do(func() {
				if offset, isThere, err := s.display.keyframe.readOffset(); err != nil || !isThere || offset == 0 {
					t.Errorf("the vault has a keyframe at %d (%v), %v", offset, isThere, err)
				}
			})
			if got := text(t, s); !strings.Contains(got, "got x") {
				t.Errorf("the next screen is %.200q", got)
			}
			u := look(t, s, protocol.AttachSpec{})
			testkit.Must(t, u.a.Type(0, []byte("\n")))
			if x := ended(t, s); x.ExitCode != 7 || x.Outcome != protocol.OutcomeNatural {
				t.Errorf("the session ended as %+v", x)
			}
		})
	}
}

// If the journal of input is damaged, no input that the terminal has accepted is typed again: a client whose input was perhaps
// not acknowledged receives an error when it resumes, or sends input again, also from the supervisor after the next. Other
// clients, and those that attach anew, continue.
func TestNextLifeDamagedInput(t *testing.T) {
	for name, damage := range map[string]func(f *os.File) error{
		"the journal": func(f *os.File) error {
			_, err := f.WriteAt(bytes.Repeat([]byte{0xa5}, 192<<10), 64<<10)
			return err
		},
		"the ring": func(f *os.File) error { _, err := f.WriteAt(make([]byte, 4096), 0); return err },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t, Config{})
			s := create(t, l.Table, bash(`stty -echo; echo READY; while read -r line; do echo "got $line"; done`))
			spec := fromStart(s)
			spec.Writer = "w"
			v := look(t, s, spec)
			v.until(t, "READY\r\n")
			const line, more = "once\n", "twice\n"
			testkit.Must(t, v.a.Type(0, []byte(line)))
			v.until(t, "got once\r\n")
			l = l.restart(Heritage{}, func(s *Session) {
				f, err := s.ring.File()
				testkit.Must(t, err)
				testkit.Must(t, errors.Join(damage(f), f.Close()))
			})
			for range 2 {
				s = l.get(s.ID())
				_, end, _ := s.ring.Bounds()
				spec.Resume.Offset = end
				if a, info, err := s.Attach(t.Context(), spec); wantCode(t, "a client that resumes", err, protocol.CodeInternal) == nil {
					_ = a.Type(info.InputOffset, []byte(line)) // the acknowledgement was lost with the connection
					a.Close()
				}
				_, err := s.Type("w", 0, []byte(line))
				wantCode(t, "input that is sent again", err, protocol.CodeInternal)
				_, err = s.Press("w", 0, []string{"enter"})
				wantCode(t, "a key that is sent again", err, protocol.CodeInternal)
				_, err = s.Type("unknown", 5, []byte(more))
				if e := wantCode(t, "input of an unknown writer", err, protocol.CodeInputGap); e == nil || e.Offset == nil || *e.Offset != 0 {
					t.Errorf("the input continues at %+v, want offset 0", e)
				}
				l = l.restart(Heritage{})
			}
			s = l.get(s.ID())
			spec.Resume = nil
			w := look(t, s, spec)
			testkit.Must(t, w.a.Type(w.info.InputOffset, []byte(more)))
			w.until(t, "got twice\r\n")
			w.a.Close()
			spec.Resume, _ = w.resume()
			if got := look(t, s, spec); got.info.InputOffset != uint64(len(more)) {
				t.Errorf("the client that has attached anew continues its input at %d, want %d", got.info.InputOffset, len(more))
			}
			if all := text(t, s); strings.Count(all, "got once") > 1 {
				t.Errorf("input was typed again: %q", all)
			}
			testkit.Must(t, s.Terminate(End{}))
			ended(t, s)
		})
	}
}

// writeLaterVersion replaces the state of a session by one that this version cannot read. The session must be halted,
// because it may otherwise replace that one by its own at any time.
func writeLaterVersion(t *testing.T, s *Session) {
	if err := s.stateSlate.Write([]byte(`{"version":99}`)); err != nil {
		t.Error(err)
	}
}

// A trial reads the files of the sessions and does not change them.
func TestTrial(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`seq 1 100; echo READY; exec sleep 1000`))
	look(t, s, fromStart(s)).until(t, "READY")
	l.Prepare(true)
	records, files, err := l.TrialEntries()
	testkit.Must(t, err)
	defer closeFiles(files)
	for i := range records {
		if records[i].FDs, err = duplicates(records[i].FDs); err != nil {
			t.Fatal(err)
		}
	}
	if err := Try(records); err != nil || len(records) != 1 {
		t.Errorf("%d records, %v", len(records), err)
	}
	thaw, err := s.halt(patience, func() { writeLaterVersion(t, s) })
	testkit.Must(t, err)
	defer thaw()
	if records, files, err = l.TrialEntries(); err != nil {
		t.Fatal(err)
	}
	defer closeFiles(files)
	for i := range records {
		if records[i].FDs, err = duplicates(records[i].FDs); err != nil {
			t.Fatal(err)
		}
	}
	if err := Try(records); err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("the trial accepted a state of another version: %v", err)
	}
}

// The state of a session stays readable when the session is forgotten in the same turn in which it has changed, because a
// program on trial may have it, and a successor finds it if the supervisor dies just then.
func TestForgottenStaysReadable(t *testing.T) {
	s := create(t, newLife(t, Config{}).Table, bash("exit 7"))
	<-s.Exited()
	state, err := s.stateSlate.Duplicate()
	testkit.Must(t, err)
	defer state.Close()
	s.do(func() { s.noteChange(); err = s.discard() })
	if <-s.gone; err != nil {
		t.Fatal(err)
	}
	data, err := slate.ReadLive(state)
	testkit.Must(t, err)
	if v, err := parseSaved(data); err != nil || v.Exit == nil || v.Exit.ExitCode != 7 {
		t.Errorf("got %+v, %v", v, err)
	}
}

// Sessions change, end and are forgotten during the trial of a program. The trial reads each session as it was when
// its entry was made, and reads no other file.
func TestTrialWhileAllGoesOn(t *testing.T) {
	l := newLife(t, Config{})
	busy := create(t, l.Table, bash(`exec sleep 1000`))
	state, err := busy.stateSlate.Read()
	testkit.Must(t, err)
	var over atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	defer over.Store(true)
	wg.Go(func() {
		for n := 0; !over.Load(); n++ {
			more := strings.Repeat(" ", n%2*(100<<10)) // every other state is 100 KiB longer, so that the next write shrinks the file again
			busy.do(func() {
				if err := busy.stateSlate.Write(append(state, more...)); err != nil {
					t.Error(err)
				}
			})
			<-time.After(time.Millisecond) // no program changes its state more often
		}
	})
	for range 50 {
		s := create(t, l.Table, bash(`exit 3`))
		ended(t, s)
		records, files, err := l.TrialEntries()
		testkit.Must(t, err)
		testkit.Must(t, l.Forget(s.ID(), ""))
		<-s.gone
		r, w, err := os.Pipe() // the new pipe gets the numbers of the descriptors that were just closed
		testkit.Must(t, err)
		for i := range records {
			if records[i].FDs, err = duplicates(records[i].FDs); err != nil {
				t.Fatal(err)
			}
		}
		if err := Try(records); err != nil || len(records) != 2 {
			t.Fatalf("%d records, %v", len(records), err)
		}
		closeFiles(files)
		_ = errors.Join(r.Close(), w.Close())
	}
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // closes duplicates only, so an error does not matter
	}
}

// The successor publishes the events in output that no predecessor has seen, and none a second time.
func TestNextLifeEvents(t *testing.T) {
	l := newLife(t, Config{})
	flag := t.TempDir() + "/flag"
	s := create(t, l.Table, bash(`printf '\033]9;before\a'; echo READY; while ! [ -e `+flag+` ]; do sleep .005; done
		printf '\033]9;needs you\a\033]2;new title\a\a\033]7;file:///tmp\a'; exec sleep 1000`))
	v := look(t, s, fromStart(s))
	v.until(t, "READY")
	v.a.Detach()
	text(t, s)
	await(t, l.Events(), s.ID(), protocol.EventNotification)
	before := l.State()
	next := l.restart(Heritage{State: before})
	testkit.Must(t, os.WriteFile(flag, nil, 0o600))
	for _, kind := range []protocol.EventKind{protocol.EventTitle, protocol.EventCwd, protocol.EventBell} { // the bell is published last
		await(t, next.Events(), s.ID(), kind)
	}
	all, _, err := next.Events().Next(t.Context(), 0)
	testkit.Must(t, err)
	var bodies []string
	for _, e := range all {
		if e.Kind == protocol.EventNotification {
			bodies = append(bodies, e.Notification.Body)
		}
	}
	if !slices.Equal(bodies, []string{"before", "needs you"}) {
		t.Errorf("notifications: %q", bodies)
	}
}

// The directory in which a child has started does not change, and is not looked up again, if the home directory is removed
// or its file system does not answer.
func TestDirectoryStays(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	l := newLife(t, Config{})
	s := create(t, l.Table, bash("sleep 1000"))
	testkit.Must(t, os.Remove(home))
	testkit.Must(t, s.Relabel(map[string]string{"a": "b"}))
	if got := info(t, s).Cwd; got != home {
		t.Errorf("the directory is %s, want %s", got, home)
	}
	l = l.restart(Heritage{})
	if got := info(t, l.get(s.ID())).Cwd; got != home {
		t.Errorf("after an upgrade the directory is %s, want %s", got, home)
	}
}

// A session whose supervisor has died was in use when it last printed or received input, although its state was saved before.
func TestUsedAfterLastSave(t *testing.T) {
	for _, c := range []struct{ name, script string }{
		{"output", `read x; printf one; read x; printf two; read x`},
		{"input", `stty -echo; printf one; read x; read x; read x`},
	} {
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			var passed atomic.Int64
			l := newLife(t, Config{Now: func() time.Time { return began.Add(time.Duration(passed.Load())) }})
			s := create(t, l.Table, bash(c.script))
			v := look(t, s, protocol.AttachSpec{Writer: "w"})
			testkit.Must(t, v.a.Type(0, []byte("\n")))
			v.until(t, "one")
			passed.Store(int64(time.Hour))
			testkit.Must(t, v.a.Type(1, []byte("\n")))
			if c.name == "output" {
				v.until(t, "two")
			}
			l = l.restart(Heritage{})
			if got := info(t, l.get(s.ID())).LastIOAt.Sub(began); got < time.Hour-time.Second {
				t.Errorf("after the crash the session was last used %v after its start, want 1h", got)
			}
		})
	}
}
