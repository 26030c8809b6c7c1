//go:build linux

package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"holdfast/supervisor/internal/vault"
)

// A safe is a Vault in this process: it holds duplicates as a keeper would.
type safe struct {
	mu      sync.Mutex
	records map[string]vault.Entry
}

func (v *safe) Put(_ context.Context, r vault.Entry) error {
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

func (v *safe) drop(id string) {
	for _, fd := range v.records[id].FDs {
		_ = unix.Close(fd)
	}
	delete(v.records, id)
}

func (v *safe) SetPID(_ context.Context, id string, pid int) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	r, ok := v.records[id]
	if !ok {
		return fmt.Errorf("no record %q", id)
	}
	r.PID = pid
	v.records[id] = r
	return nil
}

func (v *safe) Delete(_ context.Context, id string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop(id)
	return nil
}

// take is what a new supervisor is told.
func (v *safe) take(t *testing.T) (all []vault.Entry) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range v.records {
		fds, err := duplicates(r.FDs)
		if err != nil {
			t.Fatal(err)
		}
		r.FDs = fds
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b vault.Entry) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// A mortal is a table whose sessions outlive it.
type mortal struct {
	*Table
	t    *testing.T
	safe *safe
	cfg  Config
}

func newLife(t *testing.T, cfg Config) *mortal {
	t.Helper()
	v := &safe{records: make(map[string]vault.Entry)}
	t.Cleanup(func() { // a loop deletes the entry after its session was forgotten
		testkit.Eventually(t, patience, func() bool {
			v.mu.Lock()
			defer v.mu.Unlock()
			return len(v.records) == 0
		}, "no entry is held")
	})
	cfg.Vault = v
	return &mortal{newTable(t, cfg), t, v, cfg}
}

// dies stops this life wherever it is, as a SIGKILL would, and begins the next one.
// What becomes of the children is told to that.
func (l *mortal) dies(h Heritage) *mortal {
	l.t.Helper()
	h.Exits = NewExits()
	all, _ := l.registry.all()
	for _, s := range all {
		p := s.pty.(*pty.PTY)
		thaw, err := s.halt(patience, func() {})
		if err != nil {
			l.t.Fatal("it is gone")
		}
		l.t.Cleanup(func() { // when the next life has ended
			thaw()
			<-s.exited
			_ = s.forget()
		})
		if s.exit == nil {
			go func() {
				<-p.Done()
				h.Exits.Tell(p.PID(), p.Status())
			}()
		}
	}
	l.registry.mu.Lock()
	l.registry.sessions, l.registry.exited = nil, nil // nobody shuts them down
	l.registry.mu.Unlock()
	l.Table.cfg.Vault = nil
	next := &mortal{newTable(l.t, l.cfg), l.t, l.safe, l.cfg}
	h.Records = l.safe.take(l.t)
	next.Adopt(h)
	go next.Restore(func() {})
	return next
}

func (l *mortal) get(id protocol.SessionID) *Session {
	l.t.Helper()
	s, err := l.Get(id)
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

// All that clients know of a session holds in the next life.
//
// demand: S10
func TestNextLife(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`printf '\e]2;a title\a'; seq 1 3000; echo READY; while read -r line; do echo "got $line"; done; exit 7`))
	v := look(t, s, fromStart(s))
	v.until(t, "READY")
	if err := v.a.Resize(protocol.Size{Cols: 100, Rows: 30}); err != nil {
		t.Fatal(err)
	}
	if err := v.a.Type(0, []byte("one\ntwo\n")); err != nil {
		t.Fatal(err)
	}
	before := v.until(t, "got two")
	was, screen := info(t, s), text(t, s)

	l = l.dies(Heritage{})
	s = l.get(s.ID())
	now := info(t, s)
	if now.PID != was.PID || now.Instance != was.Instance || now.Size != was.Size || now.Title != was.Title || now.State != protocol.StateRunning ||
		!now.CreatedAt.Equal(was.CreatedAt) || now.OutputOffset < was.OutputOffset {
		t.Errorf("it was %+v, and is %+v", was, now)
	}
	if again := text(t, s); again != screen {
		t.Errorf("the screen was\n%s\nand is\n%s", screen, again)
	}
	w, err := attach(s, protocol.AttachSpec{Writer: v.a.Writer(), Resume: &protocol.Resume{Instance: s.Instance(), Offset: uint64(len(v.seen))}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.a.Close)
	if w.info.Replay != protocol.ReplayExact || w.info.InputOffset != 8 {
		t.Errorf("resumed as %+v", w.info)
	}
	// Sent again from before, it is typed once.
	if err := w.a.Type(4, []byte("two\nthree\n")); err != nil {
		t.Fatal(err)
	}
	all := before + w.until(t, "got three")
	if n := strings.Count(all, "got two"); n != 1 {
		t.Errorf("it was typed %d times", n)
	}
	if err := w.a.Type(14, []byte{4}); err != nil {
		t.Fatal(err)
	}
	if exit := ended(t, s); exit.ExitCode != 7 || exit.Outcome != protocol.OutcomeNatural {
		t.Errorf("it ended as %+v", exit)
	}

	// And what remains of it in the one after that.
	l = l.dies(Heritage{})
	s = l.get(s.ID())
	after := info(t, s)
	if after.State != protocol.StateExited || after.Exit == nil || after.Exit.ExitCode != 7 || len(after.Exit.Tail) == 0 {
		t.Errorf("what remains is %+v", after)
	}
	late := look(t, s, fromStart(s))
	if got := late.end(t); !strings.Contains(got, "got three") {
		t.Errorf("the last of it is %.100q", got[max(0, len(got)-100):])
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
	if err := v.a.Type(0, []byte(begin)); err != nil {
		t.Fatal(err)
	}
	v.until(t, "^[[O^[[200~half")

	l = l.dies(Heritage{})
	s = l.get(s.ID())
	w := look(t, s, protocol.AttachSpec{Writer: v.a.Writer(), Resume: &protocol.Resume{Instance: s.Instance(), Offset: uint64(len(v.seen))}})
	if err := w.a.Type(uint64(len(begin)), []byte(out+"\x1b[201~"+out+"end")); err != nil {
		t.Fatal(err)
	}
	w.until(t, "^[[O^[[201~end") // the program knows already that no viewer has the focus
}

func text(t *testing.T, s *Session) string {
	t.Helper()
	c, err := s.Show(protocol.ScreenSpec{SessionID: s.ID(), Lines: 500})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(c.Lines, "\n")
}

// A flood that goes round the ring many times is shown to the end.
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
	l = l.dies(Heritage{})
	s = l.get(s.ID())
	if got := text(t, s); !strings.Contains(got, "\n199999\n200000\nREADY") {
		t.Errorf("the screen is %.200q", got[max(0, len(got)-200):])
	}
	w := look(t, s, protocol.AttachSpec{})
	if err := w.a.Type(0, []byte("\n")); err != nil {
		t.Fatal(err)
	}
	w.until(t, "END")
	if got := text(t, s); !strings.Contains(got, "\n49999\n50000\nEND") {
		t.Errorf("the screen is %.200q", got[max(0, len(got)-200):])
	}
}

// Who awaits something with a mark of the life before is told of what was printed since,
// and of nothing from before.
func TestNextLifeAwaits(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`a='\e]133;A\a$ '; printf "old\n$a"; echo READY; read -r; printf "\e]133;C\anew\n"; seq 1 5000; printf "$a"; echo SAID; read -r`))
	v := look(t, s, fromStart(s))
	v.until(t, "READY")
	m := marked(t, s)
	if err := v.a.Type(0, []byte("\n")); err != nil {
		t.Fatal(err)
	}
	v.until(t, "SAID")
	l = l.dies(Heritage{})
	s = l.get(s.ID())
	info, err := s.Await(testkit.Soon(t), protocol.AwaitSpec{Text: "^(old|new)$", Since: m})
	if err != nil || info.Line != "new" {
		t.Errorf("came to %+v, %v, want what is new", info, err)
	}
	info, err = s.Await(testkit.Soon(t), protocol.AwaitSpec{Prompt: true, Since: m})
	if err != nil || info.Command == nil || !info.Command.Prompt {
		t.Errorf("came to %+v, %v, want a prompt", info, err)
	}
	// And then nothing is news.
	ctx, stop := context.WithTimeout(t.Context(), 0)
	defer stop()
	m = marked(t, s)
	l = l.dies(Heritage{})
	s = l.get(s.ID())
	_ = text(t, s) // it is restored
	for _, spec := range []protocol.AwaitSpec{{Text: "SAID|new|old", Since: m}, {Prompt: true, Since: m}} {
		if info, err := s.Await(ctx, spec); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("came to %+v, %v, and nothing has happened", info, err)
		}
	}
}

// An end that was asked for comes, whoever has to see to it.
func TestNextLifeEnds(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`trap '' HUP TERM; echo READY; while :; do sleep 1000; done`))
	look(t, s, fromStart(s)).until(t, "READY")
	grace := time.Hour
	if err := s.Terminate(End{Grace: &grace, Reason: "somebody"}); err != nil {
		t.Fatal(err)
	}
	s.do(func() { // the same, with less patience
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
	l = l.dies(Heritage{})
	s = l.get(s.ID())
	if exit := ended(t, s); exit.Reason != "somebody" || exit.Outcome != protocol.OutcomeHard {
		t.Errorf("it ended as %+v", exit)
	}
}

// A question that was answered is not answered again, and one that was not is.
func TestNextLifeAnswersOnce(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`stty raw -echo; printf '\e[6n'; IFS= read -r -d R x; echo "answered ${x#?}"; echo READY; read -r -n 1 -t 1000 y; printf 'then %q' "$y"; exec sleep 1000`))
	look(t, s, fromStart(s)).until(t, "READY")
	l = l.dies(Heritage{})
	s = l.get(s.ID())
	_ = text(t, s) // it is restored
	w := look(t, s, protocol.AttachSpec{})
	if err := w.a.Type(0, []byte("!")); err != nil {
		t.Fatal(err)
	}
	if got := w.until(t, "then "); strings.Contains(got, "then $'") {
		t.Errorf("it was typed something else first: %q", got)
	}
	w.until(t, `then \!`)
}

// A mistake in the terminal core costs one session its screen and nothing else.
func TestDegraded(t *testing.T) {
	dir := t.TempDir()
	l := newLife(t, Config{ReportDir: dir})
	s := create(t, l.Table, bash(`echo READY; while read -r line; do echo "got $line"; done`))
	other := create(t, l.Table, bash(`echo READY; while read -r line; do echo "got $line"; done`))
	v := look(t, s, fromStart(s))
	v.until(t, "READY")
	s.do(func() { s.useScreen(func() { panic("a mistake") }) })
	await(t, l.Events(), s.ID(), protocol.EventDegraded)
	if !info(t, s).Degraded || info(t, other).Degraded {
		t.Error("it does not show which one")
	}
	if err := v.a.Type(0, []byte("one\n")); err != nil {
		t.Fatal(err)
	}
	v.until(t, "got one")
	_, err := s.Show(protocol.ScreenSpec{SessionID: s.ID()})
	wantCode(t, "a screen that is lost", err, "")
	// Who comes is given what there is.
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
	l = l.dies(Heritage{})
	s = l.get(s.ID())
	if !info(t, s).Degraded {
		t.Error("it is restored though it was given up")
	}
	if got := look(t, s, protocol.AttachSpec{}).until(t, "got one"); !strings.Contains(got, "READY") {
		t.Errorf("after that a new viewer gets %q", got)
	}
}

// A screen that supervisors die of is given up, and one that was only there is not.
func TestSuspect(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`echo READY; exec sleep 1000`))
	look(t, s, fromStart(s)).until(t, "READY")
	s.display.saveRestoreTries(maxRestoreTries)
	next := l.dies(Heritage{})
	if info(t, next.get(s.ID())).Degraded {
		t.Error("given up though whoever died was killed")
	}
	s = next.get(s.ID())
	_ = text(t, s)
	s.display.saveRestoreTries(maxRestoreTries)
	if last := next.dies(Heritage{Crashed: true}); !info(t, last.get(s.ID())).Degraded {
		t.Error("restored again")
	}
}

// A screen that was being restored when a supervisor died is not suspected any more by the next
// supervisor's death, until that has served for a while: it then has died of something else.
func TestSuspectOfLittle(t *testing.T) {
	l := newLife(t, Config{suspectAfter: 300 * time.Millisecond})
	s := create(t, l.Table, bash(`echo READY; exec sleep 1000`))
	look(t, s, fromStart(s)).until(t, "READY")
	suspected := func() uint64 {
		n, err := s.stateSlate.Word(wordRestoreTries)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	s.display.saveRestoreTries(1)
	begun := time.Now()
	l = l.dies(Heritage{Crashed: true})
	s = l.get(s.ID())
	started := make(chan struct{})
	go s.do(func() { close(started); s.finishRestore() }) // somebody looks at once
	<-started
	if n := suspected(); n != 1 && time.Since(begun) < l.cfg.suspectAfter {
		t.Errorf("%d suspect it, so early", n)
	}
	if got := text(t, s); !strings.Contains(got, "READY") || suspected() != 0 || info(t, s).Degraded {
		t.Errorf("it shows %q, and %d suspect it", got, suspected())
	}
}

// A screen that was given up is tried again by another program, and by the next that this
// process runs.
func TestGivenUpIsTriedAgain(t *testing.T) {
	for name, h := range map[string]Heritage{"v2": {}, "v1": {Own: true}} {
		l := newLife(t, Config{Program: "v1", suspectAfter: time.Nanosecond})
		s := create(t, l.Table, bash(`echo READY; exec sleep 1000`))
		look(t, s, fromStart(s)).until(t, "READY")
		s.do(func() { s.useScreen(func() { panic("a mistake") }) })
		if l = l.dies(Heritage{}); !info(t, l.get(s.ID())).Degraded {
			t.Error("the same program tries it again")
		}
		l.cfg.Program = name
		h.Exits = nil
		l = l.dies(h)
		if got := text(t, l.get(s.ID())); !strings.Contains(got, "READY") || info(t, l.get(s.ID())).Degraded {
			t.Errorf("%s: it shows %q", name, got)
		}
	}
}

// Who dies between two lives of an id leaves both; the later one counts.
func TestNextLifeReopened(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`exit 3`))
	ended(t, s)
	again, err := l.Reopen(s.ID(), "", protocol.RespawnSpec{Argv: bash("echo READY; read x; exit 4").Argv}, "")
	if err != nil {
		t.Fatal(err)
	}
	look(t, again, fromStart(again)).until(t, "READY")
	l = l.dies(Heritage{})
	if now := info(t, l.get(s.ID())); now.Instance != again.Instance() || now.State != protocol.StateRunning {
		t.Errorf("it is %+v", now)
	}
	if n := len(l.List("")); n != 1 {
		t.Errorf("%d sessions are there", n)
	}
	now := l.get(s.ID())
	if _, err := now.Type("", 0, []byte("\n")); err != nil {
		t.Fatal(err)
	}
	ended(t, now)
	if err := l.ForgetFailed(s.ID(), again.Instance()); err != nil {
		t.Fatal(err)
	}
	if now := info(t, l.get(s.ID())); now.Instance != s.Instance() || now.ExitCode == nil || *now.ExitCode != 3 {
		t.Errorf("after the new life has failed: %+v", now)
	}
}

// What cannot be read is left where it is, and the rest goes on.
func TestNextLifeDamaged(t *testing.T) {
	l := newLife(t, Config{})
	good := create(t, l.Table, bash(`echo READY; exec sleep 1000`))
	bad := create(t, l.Table, bash(`echo READY; exec sleep 1000`))
	look(t, good, fromStart(good)).until(t, "READY")
	look(t, bad, fromStart(bad)).until(t, "READY")
	pid := info(t, bad).PID
	bad.do(func() {
		if err := bad.stateSlate.Write([]byte(`{"version":99}`)); err != nil {
			t.Error(err)
		}
	})
	id := bad.entry.id
	l = l.dies(Heritage{})
	l.get(good.ID())
	if _, err := l.Get(bad.ID()); protocol.CodeOf(err) != protocol.CodeSessionNotFound {
		t.Errorf("it is served: %v", err)
	}
	if !running(pid) {
		t.Error("its child has ended")
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	l.safe.mu.Lock() // the sessions that run put and delete their own entries meanwhile
	defer l.safe.mu.Unlock()
	if _, held := l.safe.records[id]; !held {
		t.Error("it is not held any more")
	}
	l.safe.drop(id)
}

// The files of a trial are read, and nothing of them is changed.
func TestTrial(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`seq 1 100; echo READY; exec sleep 1000`))
	look(t, s, fromStart(s)).until(t, "READY")
	l.Prepare()
	records, files, err := l.Records()
	if err != nil {
		t.Fatal(err)
	}
	defer closeFiles(files)
	for i := range records {
		if records[i].FDs, err = duplicates(records[i].FDs); err != nil {
			t.Fatal(err)
		}
	}
	if err := Try(records); err != nil || len(records) != 1 {
		t.Errorf("%d records, %v", len(records), err)
	}
	s.do(func() {
		if err := s.stateSlate.Write([]byte(`{"version":99}`)); err != nil {
			t.Error(err)
		}
	})
	if records, files, err = l.Records(); err != nil {
		t.Fatal(err)
	}
	defer closeFiles(files)
	for i := range records {
		if records[i].FDs, err = duplicates(records[i].FDs); err != nil {
			t.Fatal(err)
		}
	}
	if err := Try(records); err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("it could go on with a state of another version: %v", err)
	}
}

// Sessions change, end and are forgotten while a program is on trial: it looks at
// each as it was, and at nothing else.
func TestTrialWhileAllGoesOn(t *testing.T) {
	l := newLife(t, Config{})
	busy := create(t, l.Table, bash(`exec sleep 1000`))
	state, err := busy.stateSlate.Read()
	if err != nil {
		t.Fatal(err)
	}
	var over atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	defer over.Store(true)
	wg.Go(func() {
		for n := 0; !over.Load(); n++ {
			more := strings.Repeat(" ", n%2*(100<<10)) // so much is given back at once
			busy.do(func() {
				if err := busy.stateSlate.Write(append(state, more...)); err != nil {
					t.Error(err)
				}
			})
			<-time.After(time.Millisecond) // more often is more than any program does
		}
	})
	for range 50 {
		s := create(t, l.Table, bash(`exit 3`))
		ended(t, s)
		records, files, err := l.Records()
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Forget(s.ID(), ""); err != nil {
			t.Fatal(err)
		}
		<-s.gone
		r, w, err := os.Pipe() // which take the numbers that are free now
		if err != nil {
			t.Fatal(err)
		}
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
		_ = f.Close() // only duplicates
	}
}
