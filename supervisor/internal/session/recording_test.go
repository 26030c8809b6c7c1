//go:build linux

package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/recorder"
)

// A computer is one run of a machine whose disk is dir: a table whose sessions are recorded.
type computer struct {
	*Table
	store    *past.Store
	recorder *recorder.Recorder
}

func boot(t *testing.T, dir string) *computer {
	t.Helper()
	m := powered(t, dir)
	m.AddLost(m.store, nil)
	return m
}

// powered starts a machine whose supervisor has not looked for lost sessions yet.
func powered(t *testing.T, dir string) *computer {
	t.Helper()
	cfg, store := recorded(t, dir)
	return &computer{newTable(t, cfg), store, cfg.Recorder}
}

// recorded returns the configuration of a supervisor that stores sessions, and its store.
func recorded(t *testing.T, dir string) (Config, *past.Store) {
	t.Helper()
	store := past.New(dir, nil)
	return Config{Recorder: newRecorder(t, store), Durable: protocol.DurableScreen, Supervisor: protocol.NewInstance()}, store
}

// recordedLife returns a machine whose sessions also outlive its supervisor.
func recordedLife(t *testing.T, dir string) (*tableLife, *computer) {
	t.Helper()
	cfg, store := recorded(t, dir)
	l := newLife(t, cfg)
	return l, &computer{l.Table, store, cfg.Recorder}
}

// lostLife returns a supervisor whose machine has lost the session "a", with its store, and the text
// that the session showed.
func lostLife(t *testing.T) (l *tableLife, store *past.Store, shown string) {
	t.Helper()
	dir := t.TempDir()
	m := boot(t, dir)
	shown = text(t, m.ready(t, "a"))
	m.cut(t)
	l, m = recordedLife(t, dir)
	l.AddLost(m.store, nil)
	return l, m.store, shown
}

// A later supervisor has the labels that a lost session was given, and the time at which the session was lost.
func TestLabelsOfLostSession(t *testing.T) {
	dir := t.TempDir()
	m := boot(t, dir)
	m.ready(t, "a")
	m.cut(t)
	l, m := recordedLife(t, dir)
	l.AddLost(m.store, nil)
	lost := info(t, l.get("a")).Lost
	for _, value := range []string{"one", "two"} {
		testkit.Must(t, l.get("a").Relabel(map[string]string{"team": value}))
	}
	testkit.Must(t, l.cfg.Recorder.Close(patience))
	l, m = recordedLife(t, dir)
	l.AddLost(m.store, nil)
	i := info(t, l.get("a"))
	if i.Labels["team"] != "two" || !i.Lost.SeenAt.Equal(lost.SeenAt) {
		t.Errorf("labels %v, lost at %v, want team=two and %v", i.Labels, i.Lost.SeenAt, lost.SeenAt)
	}
}

func newRecorder(t *testing.T, store *past.Store) *recorder.Recorder {
	t.Helper()
	r := recorder.New(recorder.Config{Store: store, Sync: 10 * time.Millisecond, Retry: 10 * time.Millisecond, Log: zerolog.Nop()})
	t.Cleanup(func() { _ = r.Close(patience) })
	return r
}

// stored waits until all output of a session and its meta data are on disk.
func (m *computer) stored(t *testing.T, s *Session, holds func(past.Meta) bool) {
	t.Helper()
	testkit.Eventually(t, patience, func() bool {
		r, err := m.store.Open(s.life())
		if err != nil {
			return false
		}
		b, err := r.Bounds()
		meta, metaErr := r.Meta()
		return err == nil && metaErr == nil && b.Exact == info(t, s).OutputOffset && (holds == nil || holds(meta))
	}, "the session is stored")
}

// ready starts a session that prints READY and stays silent, and waits until it is stored.
func (m *computer) ready(t *testing.T, id protocol.SessionID) *Session {
	t.Helper()
	s, err := m.create(id, bash("echo READY; sleep 1000"), "")
	testkit.Must(t, err)
	look(t, s, fromStart(s)).until(t, "READY")
	m.stored(t, s, nil)
	return s
}

// has waits until the store has exactly these sessions.
func (m *computer) has(t *testing.T, want ...protocol.SessionID) {
	t.Helper()
	testkit.Eventually(t, patience, func() bool {
		var got []protocol.SessionID
		all, err := m.store.List()
		for _, e := range all {
			got = append(got, e.ID)
		}
		return err == nil && slices.Equal(got, want)
	}, fmt.Sprintf("the store has %q", want))
}

func (m *computer) must(t *testing.T, id protocol.SessionID) *Session {
	t.Helper()
	s, err := m.Get(id)
	testkit.Must(t, err)
	return s
}

// cut ends the machine. The store keeps the output that it has, and gets no more.
func (m *computer) cut(t *testing.T) {
	t.Helper()
	testkit.Must(t, m.recorder.Close(patience))
}

// A session comes back after a loss of power as lost: with its screen, history, labels and
// directory. It can be shown and attached to, started again below its old screen, and forgotten.
// demand: D1, D3
func TestLost(t *testing.T) {
	dir := t.TempDir()
	m := boot(t, dir)
	home := t.TempDir()
	spec := bash(`cd "` + home + `"; for i in $(seq 300); do echo line $i; done; printf '\e[31mred\e[0m\e[?1049h\e[HALTERNATE'; sleep 1000`)
	spec.Labels = map[string]string{"task": "build"}
	spec.Env = []string{"TOKEN=a secret", "LANG=C"}
	s, err := m.create("work", spec, "first")
	testkit.Must(t, err)
	look(t, s, fromStart(s)).until(t, "ALTERNATE")
	m.stored(t, s, func(meta past.Meta) bool { return meta.Cwd == home })
	want, before := text(t, s), info(t, s)
	m.cut(t)

	m = boot(t, dir)
	lost, err := m.Get("work")
	testkit.Must(t, err)
	i := info(t, lost)
	if i.State != protocol.StateLost || i.Lost == nil || i.Exit != nil || i.ExitCode != nil || i.Instance != before.Instance {
		t.Fatalf("the session is %+v, want the lost instance %s", i, before.Instance)
	}
	if i.Lost.Offset != before.OutputOffset || i.Lost.Cwd != home || i.Labels["task"] != "build" || i.Size != before.Size {
		t.Errorf("the session is %+v, lost %+v; want offset %d, directory %s, size %s and the label", i, i.Lost, before.OutputOffset, home, before.Size)
	}
	if got := text(t, lost); got != want {
		t.Errorf("the screen is\n%s\nwant\n%s", got, want)
	}
	if slices.Contains(lost.spec.Env, "TOKEN=a secret") || !slices.Contains(lost.spec.Env, "LANG=C") {
		t.Errorf("the environment is %q, want LANG without TOKEN", lost.spec.Env)
	}
	v := look(t, lost, protocol.AttachSpec{})
	v.until(t, "ALTERNATE")
	v.end(t)
	if exit := ended(t, lost); exit.Reason != protocol.ReasonLost {
		t.Errorf("a viewer learns the end %+v, want the reason %s", exit, protocol.ReasonLost)
	}
	_, at, err := lost.Attach(t.Context(), protocol.AttachSpec{Resume: &protocol.Resume{Instance: i.Instance, Offset: i.Lost.Offset + 1}})
	if err != nil || at.Replay != protocol.ReplaySnapshot || at.Offset != i.Lost.Offset || at.BytesMissed != 0 {
		t.Errorf("a viewer that has output that was not stored begins with %+v, %v", at, err)
	}

	if same, err := m.create("work", spec, "first"); err != nil || same != lost {
		t.Errorf("the repeated request, whose session is lost, returns %v, %v", same, err)
	}
	_, err = m.create("work", spec, "second")
	wantCode(t, "another request", err, protocol.CodeSessionExists)

	again, err := m.reopen("work", i.Instance, protocol.RespawnSpec{Argv: []string{"bash", "-c", "echo NEW; sleep 1000"}, Cwd: home, KeepScreen: true}, "second")
	testkit.Must(t, err)
	if same, err := m.create("work", spec, "first"); err != nil || same != again {
		t.Errorf("the repeated request, whose session was started again, returns %v, %v", same, err)
	}
	look(t, again, protocol.AttachSpec{}).until(t, "NEW")
	got := text(t, again)
	for _, part := range []string{"line 1\n", "line 300\n", "red\n── the machine stopped", "\nNEW"} {
		if !strings.Contains(got, part) {
			t.Errorf("the new instance shows %q, and misses %q", got, part)
		}
	}
	m.stored(t, again, nil)
	want = text(t, again)
	m.cut(t)

	m = boot(t, dir) // the second loss shows both lives
	if lost, err = m.Get("work"); err != nil {
		t.Fatal(err)
	}
	if got := text(t, lost); got != want || lost.instance != again.instance {
		t.Errorf("after the second loss the screen is\n%s\nwant\n%s", got, want)
	}
	testkit.Must(t, m.Forget("work", ""))
	if all, err := m.store.List(); len(all) > 0 || err != nil {
		t.Errorf("after the session was forgotten, the store has %v, %v", all, err)
	}
}

// A lost session has its last commands, and their output can be read.
func TestLostHasCommands(t *testing.T) {
	dir := t.TempDir()
	m := boot(t, dir)
	s, err := m.create("work", bash(`for i in 1 2; do printf '\e]133;A\a$ \e]133;C\aout %d a\r\nout %d b\r\n\e]133;D;%d\a' $i $i $i; done; echo READY; sleep 1000`), "")
	testkit.Must(t, err)
	look(t, s, fromStart(s)).until(t, "READY")
	m.stored(t, s, func(meta past.Meta) bool { return len(meta.Commands) == 2 })
	m.cut(t)

	lost := boot(t, dir).must(t, "work")
	ended, err := lost.Commands()
	if err != nil || len(ended.Commands) != 2 || *ended.Commands[0].ExitCode != 1 {
		t.Fatalf("the commands are %+v, %v; want two, the first with exit code 1", ended.Commands, err)
	}
	c, err := lost.History(protocol.HistorySpec{SessionID: "work", Command: -1})
	testkit.Must(t, err)
	var lines []string
	for _, l := range c.Lines {
		lines = append(lines, l.Spans[0].Text)
	}
	if want := []string{"out 2 b", "out 2 a"}; !slices.Equal(lines, want) {
		t.Errorf("the output of its last command is %q, want %q", lines, want)
	}
}

// A lost session whose revival fails is lost again, for good.
func TestRevivalFails(t *testing.T) {
	dir := t.TempDir()
	m := boot(t, dir)
	s := m.ready(t, "a")
	want := text(t, s)
	m.cut(t)
	for range 2 {
		m = boot(t, dir)
		failed, err := m.reopen("a", "", protocol.RespawnSpec{Argv: []string{"false"}, KeepScreen: true}, "")
		testkit.Must(t, err)
		ended(t, failed)
		testkit.Must(t, m.ForgetFailed("a", failed.instance))
		lost, err := m.Get("a")
		testkit.Must(t, err)
		if i := info(t, lost); i.State != protocol.StateLost || text(t, lost) != want {
			t.Errorf("the session is %s and shows\n%s\nwant\n%s", i.State, text(t, lost), want)
		}
		if m.Live() != 0 {
			t.Errorf("%d sessions run", m.Live())
		}
		m.cut(t)
	}
}

// Lost sessions do not count as running: neither limits nor the check for an empty supervisor see
// them. A session of another life may take the id of one that cannot be shown.
func TestLostAreNoLoad(t *testing.T) {
	dir := t.TempDir()
	m := boot(t, dir)
	m.ready(t, "a")
	m.cut(t)
	m = boot(t, dir)
	if n := m.Live(); n != 0 {
		t.Errorf("%d sessions run", n)
	}
	if all := m.List(""); len(all) != 1 || all[0].State != protocol.StateLost {
		t.Errorf("the list is %+v, want a lost session", all)
	}
	wantCode(t, "create", second(m.create("a", bash("true"), "")), protocol.CodeSessionExists)
	frozen, err := m.Freeze()
	testkit.Must(t, err)
	if len(frozen.Entries) != 0 {
		t.Errorf("a successor would receive %+v, although it reads the recordings itself", frozen.Entries)
	}
	frozen.Thaw()
	if !m.CloseIfIdle(true) {
		t.Error("a supervisor with lost sessions alone does not count as empty")
	}
}

// A session that ended before the machine stopped does not come back, except if the end of the
// supervisor itself ended it, as the shutdown of a machine does.
func TestEndedIsNotLost(t *testing.T) {
	dir := t.TempDir()
	cfg, store := recorded(t, dir)
	var later atomic.Int64 // how far the clock is ahead
	cfg.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	m := &computer{newTable(t, cfg), store, cfg.Recorder}
	done, err := m.create("done", bash("echo READY"), "")
	testkit.Must(t, err)
	m.ready(t, "stopped")
	ended(t, done)
	later.Store(int64(stopTime + time.Second)) // otherwise the machine's shutdown may have ended it
	shutdown(t, m.Table)
	m.cut(t)
	m = boot(t, dir)
	if all := m.List(""); len(all) != 1 || all[0].ID != "stopped" {
		t.Errorf("the list is %+v, want the session that the shutdown ended", all)
	}
	m.has(t, "stopped")
}

// next starts the supervisor that follows one that has died, or that was replaced in place. It takes
// over the sessions. The disk has all that the one before wrote.
func (m *tableLife) next(h Heritage, store *past.Store) *tableLife {
	m.t.Helper()
	testkit.Must(m.t, m.cfg.Recorder.Close(patience))
	m.cfg.Recorder = newRecorder(m.t, store)
	next := m.restart(h)
	next.AddLost(store, nil) // no instance counts as held: the identity of the supervisor suffices
	return next
}

// A session that was forgotten does not come back as lost, although its supervisor was replaced, or
// has died, before its files were erased. The next program of the same process erases them.
func TestForgottenIsNotLost(t *testing.T) {
	for _, name := range []string{"replaced", "died"} {
		t.Run(name, func(t *testing.T) {
			l, m := recordedLife(t, t.TempDir())
			store := m.store
			m.ready(t, "stays")
			s := m.ready(t, "a")
			testkit.Must(t, s.Terminate(End{}))
			ended(t, s)
			var w *past.Writer
			testkit.Eventually(t, patience, func() (ok bool) { // the recording is complete
				var err error
				w, err = store.OpenWriter(s.life(), past.Screen) // from now on, the files cannot be erased
				return err == nil
			}, "the recording has ended")
			meta := source{s}.Meta()
			meta.Exit = nil // as if the end had not been stored yet
			testkit.Must(t, w.SetMeta(meta))
			if err := l.forgetWithin("a", "", 0); protocol.CodeOf(err) != protocol.CodeInternal {
				t.Fatal(err)
			}
			<-s.gone
			h := Heritage{}
			if name == "replaced" {
				frozen, err := l.Freeze()
				testkit.Must(t, err)
				frozen.Thaw()
				h = Heritage{Own: true, State: l.State()}
			}
			l = l.next(h, store)
			if all := l.List(""); len(all) != 1 || all[0].ID != "stays" || all[0].State != protocol.StateRunning {
				t.Errorf("the list is %+v, want the session that runs", all)
			}
			testkit.Must(t, w.Close())
			m = &computer{l.Table, store, l.cfg.Recorder}
			if name == "replaced" {
				m.has(t, "stays")
			} else {
				m.has(t, "a", "stays") // not erased on doubt
			}
		})
	}
}

// Freeze does not wait for the disk.
func TestFreezeDuringErasure(t *testing.T) {
	m := boot(t, t.TempDir())
	resume, err := m.recorder.Pause(patience)
	testkit.Must(t, err)
	defer resume()
	l := past.Life{ID: "a", Instance: "1"}
	m.recorder.Forget(l)
	began := time.Now()
	frozen, err := m.Freeze()
	testkit.Must(t, err)
	defer frozen.Thaw()
	if took := time.Since(began); took >= eraseTime {
		t.Errorf("Freeze took %v", took)
	}
	if left := m.State().Forgotten; !slices.Contains(left, l) {
		t.Errorf("the next program learns of the erasures %v, want %v", left, l)
	}
}

// A power cut may leave the directory of a session without any file. The next supervisor removes it.
func TestUnbegunRecording(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "a@1"), 0o700))
	boot(t, dir).has(t)
}

// Forget fails if the disk does not erase the files in time. The session is forgotten nevertheless, and erased later.
func TestForgetOnHungDisk(t *testing.T) {
	dir := t.TempDir()
	m := boot(t, dir)
	s := m.ready(t, "a")
	testkit.Must(t, s.Terminate(End{}))
	ended(t, s)
	resume, err := m.recorder.Pause(patience)
	testkit.Must(t, err)
	if err := m.forgetWithin("a", "", time.Millisecond); protocol.CodeOf(err) != protocol.CodeInternal || !strings.Contains(err.Error(), "still on disk") {
		t.Errorf("forget: %v", err)
	}
	resume()
	if left := m.awaitErased(patience, "a"); len(left) > 0 {
		t.Errorf("not erased: %v", left)
	}
	if err := m.Forget("a", ""); protocol.CodeOf(err) != protocol.CodeSessionNotFound {
		t.Errorf("forget again: %v", err)
	}
}

// If no other program takes over after all, the erasure of forgotten sessions continues.
func TestForgottenAfterThaw(t *testing.T) {
	m := boot(t, t.TempDir())
	s := m.ready(t, "a")
	testkit.Must(t, s.Terminate(End{}))
	ended(t, s)
	if err := m.ForgetFailed("a", ""); err != nil { // does not wait for the disk
		t.Fatal(err)
	}
	frozen, err := m.Freeze()
	testkit.Must(t, err)
	frozen.Thaw()
	m.has(t)
	m.ready(t, "b")
	m.has(t, "b")
}

// A session that the machine has lost stays lost when its supervisor is replaced or dies.
func TestLostStaysLost(t *testing.T) {
	l, store, want := lostLife(t)
	for _, h := range []Heritage{{Own: true}, {Crashed: true}, {}} {
		l = l.next(h, store)
		if i := info(t, l.get("a")); i.State != protocol.StateLost || text(t, l.get("a")) != want {
			t.Errorf("the session is %s and shows %q, want %q", i.State, text(t, l.get("a")), want)
		}
	}
	testkit.Must(t, l.Forget("a", ""))
	l = l.next(Heritage{}, store)
	if all := l.List(""); len(all) > 0 {
		t.Errorf("a forgotten session is listed: %+v", all)
	}
}

// If keeper and supervisor die at once, all sessions are lost.
func TestAllAreLost(t *testing.T) {
	dir := t.TempDir()
	m := boot(t, dir)
	m.ready(t, "a")
	m.cut(t)
	m = boot(t, dir) // another identity
	m.ready(t, "b")
	m.cut(t)
	m = boot(t, dir)
	all := m.List("")
	if len(all) != 2 || all[0].ID != "a" || all[1].ID != "b" || all[0].State != protocol.StateLost || all[1].State != protocol.StateLost {
		t.Errorf("the list is %+v, want two lost sessions", all)
	}
}

// A lost session whose command had a secret must not be started again with asterisks instead of it.
// demand: D1
func TestReviveMaskedCommand(t *testing.T) {
	dir := t.TempDir()
	m := boot(t, dir)
	spec := bash("echo READY; sleep 1000 # " + strings.Repeat("x", protocol.MaxArgvInfo) + " hunter22") // clients do not see the end
	spec.Env, spec.SecretEnv = append(spec.Env, "TOKEN=hunter22"), []string{"TOKEN"}
	s, err := m.create("a", spec, "")
	testkit.Must(t, err)
	look(t, s, fromStart(s)).until(t, "READY")
	m.stored(t, s, nil)
	m.cut(t)
	l, m := recordedLife(t, dir)
	l.AddLost(m.store, nil)
	if _, err := l.reopen("a", "", protocol.RespawnSpec{KeepScreen: true}, ""); protocol.CodeOf(err) != protocol.CodeInvalidArgument {
		t.Errorf("Reopen without a command: %v, want invalid_argument", err)
	}
	if i := info(t, l.get("a")); i.State != protocol.StateLost {
		t.Errorf("the session is %s, want lost", i.State)
	}
	if _, err := l.reopen("a", "", protocol.RespawnSpec{Argv: bash("sleep 1000").Argv, KeepScreen: true}, ""); err != nil {
		t.Errorf("Reopen with a command: %v", err)
	}
}

// A supervisor that dies right after a session was started again continues with the new instance. If
// that fails, the lost one is back.
func TestReviveThenCrash(t *testing.T) {
	l, store, want := lostLife(t)
	again, err := l.reopen("a", "", protocol.RespawnSpec{Argv: bash("echo AGAIN; sleep 1000").Argv, KeepScreen: true}, "")
	testkit.Must(t, err)
	look(t, again, fromStart(again)).until(t, "AGAIN")
	l = l.next(Heritage{}, store)
	now := l.get("a")
	if i := info(t, now); i.State != protocol.StateRunning || i.Instance != again.instance {
		t.Fatalf("the session is %+v, want the new instance", i)
	}
	testkit.Must(t, now.Terminate(End{}))
	ended(t, now)
	testkit.Must(t, l.ForgetFailed("a", again.instance))
	if i := info(t, l.get("a")); i.State != protocol.StateLost || text(t, l.get("a")) != want {
		t.Errorf("the session is %s and shows %q, want the lost one", i.State, text(t, l.get("a")))
	}
}

// The sessions of another supervisor that runs, and has the same state directory, are not lost.
func TestOtherSupervisorRuns(t *testing.T) {
	dir := t.TempDir()
	first := boot(t, dir)
	s := first.ready(t, "a")
	cfg, store := recorded(t, dir)
	isRunning := true
	cfg.IsRunning = func(i protocol.Instance) bool { return isRunning && i == first.cfg.Supervisor }
	second := &computer{newTable(t, cfg), store, cfg.Recorder}
	second.AddLost(store, nil)
	if all := second.List(""); len(all) > 0 {
		t.Errorf("the list is %+v", all)
	}
	testkit.Must(t, s.Terminate(End{}))
	ended(t, s)
	first.stored(t, s, func(m past.Meta) bool { return m.Exit != nil })
	second.AddLost(store, nil) // it would erase the recording of a session that has ended
	first.has(t, "a")
	isRunning = false
	second.AddLost(store, nil)
	first.has(t)
}

// A lost session whose id was taken by another session before it was listed keeps its files.
func TestIDIsTaken(t *testing.T) {
	dir := t.TempDir()
	m := boot(t, dir)
	m.ready(t, "a")
	m.cut(t)
	m = powered(t, dir)
	m.ready(t, "a")
	m.AddLost(m.store, nil)
	if i := info(t, m.must(t, "a")); i.State != protocol.StateRunning {
		t.Errorf("the session is %+v", i)
	}
	m.cut(t)
	m.has(t, "a", "a")
}

// Sessions that a user has ended together with their supervisor are not lost.
func TestStoppedIsNotLost(t *testing.T) {
	dir := t.TempDir()
	m := boot(t, dir)
	m.ready(t, "a")
	testkit.Must(t, m.Shutdown(t.Context(), protocol.Asker{By: StopRequest}))
	if all, err := m.store.List(); len(all) > 0 || err != nil {
		t.Errorf("after the stop, the store has %v, %v", all, err)
	}
	m.cut(t)
	m = boot(t, dir)
	if all := m.List(""); len(all) > 0 {
		t.Errorf("the list is %+v", all)
	}
	m.has(t)
}

// The system sends SIGTERM to all processes at once when the machine stops, so a child may end before the supervisor
// asks it to. Its session is lost then, like the others. It is not if a user has stopped the supervisor.
func TestEndedWithMachine(t *testing.T) {
	for _, tt := range []struct {
		asker string
		want  []protocol.SessionID
	}{{"supervisor, by SIGTERM", []protocol.SessionID{"early", "late"}}, {StopRequest, nil}} {
		t.Run(tt.asker, func(t *testing.T) {
			dir := t.TempDir()
			m := boot(t, dir)
			early := m.ready(t, "early")
			m.ready(t, "late")
			testkit.Must(t, syscall.Kill(early.pty.PID(), syscall.SIGTERM))
			if e := ended(t, early); e.Reason != protocol.ReasonExited {
				t.Fatalf("the exit record is %+v", e)
			}
			m.stored(t, early, func(m past.Meta) bool { return m.Exit != nil })
			testkit.Must(t, m.Shutdown(t.Context(), protocol.Asker{By: tt.asker}))
			m.cut(t)
			m = boot(t, dir)
			var got []protocol.SessionID
			for _, i := range m.List("") {
				if got = append(got, i.ID); i.State != protocol.StateLost {
					t.Errorf("session %s is %s", i.ID, i.State)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("lost are %q, want %q", got, tt.want)
			}
		})
	}
	begun := time.Now()
	for _, tt := range []struct {
		exit protocol.ExitRecord
		want bool
	}{
		{protocol.ExitRecord{Reason: protocol.ReasonExited, ExitedAt: begun.Add(time.Second)}, true},
		{protocol.ExitRecord{Reason: protocol.ReasonExited, ExitedAt: begun.Add(-stopTime - time.Second)}, false},
		{protocol.ExitRecord{Reason: protocol.ReasonExited, ExitedAt: begun, EndedBy: "ann"}, false},
		{protocol.ExitRecord{Reason: protocol.ReasonUserRequested, ExitedAt: begun, EndedBy: "ann"}, false},
	} {
		if got := endedWithMachine(&tt.exit, begun); got != tt.want {
			t.Errorf("%+v has ended with the machine: %v", tt.exit, got)
		}
	}
}

// The exit record is stored also if the recorder has seen the end of the output before the record is final.
func TestExitIsStored(t *testing.T) {
	store := past.New(t.TempDir(), nil)
	rec := recorder.New(recorder.Config{Store: store, Sync: 10 * time.Millisecond, Idle: time.Hour, Log: zerolog.Nop()})
	t.Cleanup(func() { _ = rec.Close(patience) })
	cfg := Config{Recorder: rec, Durable: protocol.DurableScreen, Supervisor: protocol.NewInstance()}
	// The session logs its exit right before the record is final. The delay gives the recorder the time to store the
	// end of the output before that.
	cfg.Log = zerolog.New(logWriter(func(line string) {
		if strings.Contains(line, "session exited") {
			time.Sleep(100 * time.Millisecond)
		}
	}))
	m := &computer{newTable(t, cfg), store, rec}
	s := m.ready(t, "a")
	s.do(func() { s.saved.quiet.stop() }) // a session that has just printed is stored again later for another reason
	testkit.Must(t, syscall.Kill(s.pty.PID(), syscall.SIGTERM))
	ended(t, s)
	m.stored(t, s, func(m past.Meta) bool { return m.Exit != nil })
}

// With durable=off, a user can still erase all that was stored before: by Clear and Forget of a session that runs, and by
// Forget of a lost one.
func TestStoringIsOff(t *testing.T) {
	t.Run("running", func(t *testing.T) {
		l, m := recordedLife(t, t.TempDir())
		s := m.ready(t, "a")
		l.cfg.Durable = protocol.DurableOff
		l = l.restart(Heritage{})
		testkit.Must(t, l.get("a").Clear(true))
		if _, err := m.store.Open(s.life()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after Clear, the recording is opened with %v", err)
		}
		testkit.Must(t, l.get("a").Terminate(End{}))
		ended(t, l.get("a"))
		testkit.Must(t, l.Forget("a", ""))
	})
	t.Run("forgotten", func(t *testing.T) {
		l, m := recordedLife(t, t.TempDir())
		m.ready(t, "a")
		l.cfg.Durable = protocol.DurableOff
		l = l.restart(Heritage{})
		testkit.Must(t, l.get("a").Terminate(End{}))
		ended(t, l.get("a"))
		testkit.Must(t, l.Forget("a", ""))
		m.has(t)
	})
	t.Run("lost", func(t *testing.T) {
		dir := t.TempDir()
		m := boot(t, dir)
		m.ready(t, "a")
		m.cut(t)
		cfg, store := recorded(t, dir)
		cfg.Durable = protocol.DurableOff
		m = &computer{newTable(t, cfg), store, cfg.Recorder}
		m.AddLost(store, nil)
		o, err := m.must(t, "a").ReadPast(t.Context(), 0, 100)
		if err != nil || !strings.Contains(string(o.Data), "READY") {
			t.Errorf("the stored output is %q, %v", o.Data, err)
		}
		testkit.Must(t, m.Forget("a", ""))
		m.has(t)
	})
}

// Lines that were cleared are in no file any more when Clear returns, and not in those of a
// supervisor that has died meanwhile.
func TestClearedIsErased(t *testing.T) {
	for _, mode := range []protocol.Durable{protocol.DurableScreen, protocol.DurableFull} {
		for _, name := range []string{"at once", "after a crash"} {
			t.Run(string(mode)+" "+name, func(t *testing.T) {
				l, m := recordedLife(t, t.TempDir())
				store := m.store
				spec := bash("echo a planted secret; seq 100; echo READY; while read -r line; do echo got $line; done")
				spec.Durable = mode
				s, err := m.create("a", spec, "")
				testkit.Must(t, err)
				look(t, s, fromStart(s)).until(t, "READY")
				m.stored(t, s, nil)
				if !m.contains(t, s, "planted") {
					t.Fatal("the secret was not stored")
				}
				if name == "at once" {
					testkit.Must(t, s.Clear(true))
					checkPastCleared(t, s, "planted")
				} else {
					m.cut(t) // stops the recorder
					testkit.Must(t, s.Clear(true))
					checkPastCleared(t, s, "planted") // the files still have the lines
					l = l.next(Heritage{}, store)
					m, s = &computer{l.Table, store, l.cfg.Recorder}, l.get("a")
					testkit.Eventually(t, patience, func() bool { return !m.contains(t, s, "planted") }, "the secret is erased")
				}
				if _, err := s.Type("", 0, []byte("hello\n")); err != nil {
					t.Fatal(err)
				}
				look(t, s, protocol.AttachSpec{}).until(t, "got hello")
				m.stored(t, s, nil)
				checkPastCleared(t, s, "planted")
				if m.contains(t, s, "planted") || !m.contains(t, s, "got hello") {
					t.Error("the files have lines that were cleared, or miss later ones")
				}
			})
		}
	}
}

// contains reports whether the files of a session have a text, in a keyframe or in the output.
func (m *computer) contains(t *testing.T, s *Session, text string) bool {
	t.Helper()
	r, err := m.store.Open(s.life())
	testkit.Must(t, err)
	b, err := r.Bounds()
	testkit.Must(t, err)
	var all []byte
	for _, at := range []uint64{b.Start, b.Exact} {
		if v, err := r.At(at); err == nil {
			all = append(all, v.Keyframe...)
		}
	}
	for p := range r.Range(0, b.End) {
		all = append(all, p.Output...)
	}
	return strings.Contains(string(all), text)
}

// A disk that fails is reported by an event and by the status, the session does not notice, and it
// is stored again by itself: also after a user has removed the directory.
// demand: D4
func TestFailingDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file in the place of the directory
		t.Fatal(err)
	}
	m := powered(t, dir)
	s, err := m.create("a", bash("echo READY; while read -r line; do echo got $line; done"), "")
	testkit.Must(t, err)
	await(t, m.Events(), "a", protocol.EventRecordingFailed)
	if st := m.RecordingStatus(); st == nil || st.Failing != 1 || !strings.Contains(st.Error, dir) {
		t.Errorf("the status is %+v, want one session and the directory", st)
	}
	v := look(t, s, fromStart(s))
	v.until(t, "READY")
	print := func(line string) {
		t.Helper()
		if _, err := s.Type("", 0, []byte(line+"\n")); err != nil {
			t.Fatal(err)
		}
		v.until(t, "got "+line)
	}
	print("without a disk")
	testkit.Must(t, os.Remove(dir))
	await(t, m.Events(), "a", protocol.EventRecordingResumed)
	m.stored(t, s, nil)
	if st := m.RecordingStatus(); st != nil || m.Counts().Recording.Failures == 0 {
		t.Errorf("the status is %+v, the counters are %+v", st, m.Counts().Recording)
	}
	testkit.Must(t, os.RemoveAll(dir))
	print("in a new directory")
	m.stored(t, s, nil)
	if !m.contains(t, s, "without a disk") {
		t.Error("the new directory misses output")
	}
}

// A later supervisor writes again the files of which an earlier one could not sync a part, once.
func TestNextLifeWritesDoubtedFiles(t *testing.T) {
	for _, h := range []Heritage{{Crashed: true}, {Own: true}} {
		dir := t.TempDir()
		l, m := recordedLife(t, dir)
		m.ready(t, "a")
		life := l.get("a").life()
		var last os.FileInfo
		print := func(line string) (isSame bool) {
			t.Helper()
			if _, err := l.get("a").Type("", 0, []byte(line)); err != nil {
				t.Fatal(err)
			}
			look(t, l.get("a"), fromStart(l.get("a"))).until(t, line) // the terminal echoes it
			(&computer{l.Table, m.store, l.cfg.Recorder}).stored(t, l.get("a"), nil)
			segments, err := filepath.Glob(filepath.Join(dir, life.String(), "0*"))
			if err != nil || len(segments) != 1 {
				t.Fatalf("the segments are %q, %v", segments, err)
			}
			info, err := os.Stat(segments[0])
			testkit.Must(t, err)
			isSame, last = os.SameFile(info, last), info
			return isSame
		}
		print("first life")
		m.store.Doubt(life)
		if !print("saved") {
			t.Error("the first supervisor has written the segment again")
		}
		for _, wantSame := range []bool{false, true} {
			m.store = past.New(dir, nil)
			l = l.next(h, m.store)
			if isSame := print("next life"); isSame != wantSame {
				t.Errorf("own %v: the next supervisor has left the segment as it was: %v, want %v", h.Own, isSame, wantSame)
			}
			if m.store.IsDoubted(life) {
				t.Errorf("own %v: the segment that was written again is in doubt", h.Own)
			}
		}
	}
}

// A recording of a later version is no session, and stays for a later program.
func TestLaterRecording(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, os.MkdirAll(filepath.Join(dir, "a@1"), 0o700))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "a@1", "meta.json"), []byte(`{"version":99}`), 0o600))
	m := boot(t, dir)
	if all := m.List(""); len(all) != 0 {
		t.Errorf("the list is %+v", all)
	}
	if all, err := m.store.List(); err != nil || len(all) != 1 {
		t.Errorf("the store has %v, %v; want the damaged recording", all, err)
	}
}

// A lost session whose meta.json is damaged or missing is listed, shows its output, and can be forgotten.
func TestDamagedMeta(t *testing.T) {
	dir := t.TempDir()
	m := boot(t, dir)
	damages := map[protocol.SessionID]func(string) error{
		"a": os.Remove, "b": func(path string) error { return os.Truncate(path, 10) }, "c": func(path string) error { return os.WriteFile(path, make([]byte, 100), 0o600) },
	}
	for id := range damages {
		m.ready(t, id)
	}
	m.cut(t)
	for id, damage := range damages {
		paths, _ := filepath.Glob(filepath.Join(dir, string(id)+"@*", "meta.json"))
		testkit.Must(t, damage(paths[0]))
	}
	m = boot(t, dir)
	for id := range damages {
		s, err := m.Get(id)
		testkit.Must(t, err)
		if i := info(t, s); i.State != protocol.StateLost || !strings.Contains(text(t, s), "READY") {
			t.Errorf("the session is %+v and shows %q", i, text(t, s))
		}
		if err := m.Forget(id, ""); err != nil {
			t.Error(err)
		}
	}
	if all, err := m.store.List(); len(all) > 0 || err != nil {
		t.Errorf("after the sessions were forgotten, the store has %v, %v", all, err)
	}
}

// A session that is not durable leaves no file.
func TestNotDurable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	m := boot(t, dir)
	spec := bash("echo READY; sleep 1000")
	spec.Durable = protocol.DurableOff
	s, err := m.create("a", spec, "")
	testkit.Must(t, err)
	look(t, s, fromStart(s)).until(t, "READY")
	m.cut(t)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the store exists: %v", err)
	}
}

// What describes a session on disk has no value of a variable that may be a secret.
// demand: D6
func TestMetaHasNoSecret(t *testing.T) {
	spec := bash("sleep 1000")
	spec.Env = []string{"API_KEY=planted", "HOME=/somewhere"}
	s := create(t, newTable(t, Config{}), spec)
	data, err := json.Marshal(source{s}.Meta())
	testkit.Must(t, err)
	if bytes.Contains(data, []byte("planted")) || !bytes.Contains(data, []byte("API_KEY")) || !bytes.Contains(data, []byte("HOME=/somewhere")) {
		t.Errorf("meta is %s", data)
	}
}
