//go:build linux

package session

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/past"
	"holdfast/supervisor/internal/recorder"
)

// A machine is one run of a machine whose disk is dir: a table whose sessions are recorded.
type machine struct {
	*Table
	store    *past.Store
	recorder *recorder.Recorder
}

func boot(t *testing.T, dir string) *machine {
	t.Helper()
	store := past.New(dir)
	r := recorder.New(recorder.Config{Store: store, Sync: 10 * time.Millisecond, Log: zerolog.Nop()})
	m := &machine{newTable(t, Config{Recorder: r, Durable: protocol.DurableScreen}), store, r}
	t.Cleanup(func() { _ = r.Close(patience) })
	m.AddLost(store, nil)
	return m
}

// stored waits until all output of a session, and what describes it, is on disk.
func (m *machine) stored(t *testing.T, s *Session, holds func(past.Meta) bool) {
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

// cut ends the machine: the store keeps what it has.
func (m *machine) cut(t *testing.T) {
	t.Helper()
	if err := m.recorder.Close(patience); err != nil {
		t.Fatal(err)
	}
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
	s, err := m.Create("work", spec, "")
	if err != nil {
		t.Fatal(err)
	}
	look(t, s, fromStart(s)).until(t, "ALTERNATE")
	m.stored(t, s, func(meta past.Meta) bool { return meta.Cwd == home })
	want, before := text(t, s), info(t, s)
	m.cut(t)

	m = boot(t, dir)
	lost, err := m.Get("work")
	if err != nil {
		t.Fatal(err)
	}
	i := info(t, lost)
	if i.State != protocol.StateLost || i.Lost == nil || i.Exit != nil || i.ExitCode != nil || i.Instance != before.Instance {
		t.Fatalf("the session is %+v, want the lost instance %s", i, before.Instance)
	}
	if i.Lost.Offset != before.OutputOffset || i.Lost.Cwd != home || i.Labels["task"] != "build" || i.Size != before.Size {
		t.Errorf("it is %+v, lost %+v; want offset %d, directory %s, size %s and the label", i, i.Lost, before.OutputOffset, home, before.Size)
	}
	if got := text(t, lost); got != want {
		t.Errorf("its screen is\n%s\nwant\n%s", got, want)
	}
	if slices.Contains(lost.spec.Env, "TOKEN=a secret") || !slices.Contains(lost.spec.Env, "LANG=C") {
		t.Errorf("its environment is %q, want LANG without TOKEN", lost.spec.Env)
	}
	v := look(t, lost, protocol.AttachSpec{})
	v.until(t, "ALTERNATE")
	v.end(t)
	if exit := ended(t, lost); exit.Reason != protocol.ReasonLost {
		t.Errorf("a viewer learns the end %+v, want the reason %s", exit, protocol.ReasonLost)
	}

	again, err := m.Reopen("work", i.Instance, protocol.RespawnSpec{Argv: []string{"bash", "-c", "echo NEW; sleep 1000"}, Cwd: home, KeepScreen: true}, "")
	if err != nil {
		t.Fatal(err)
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
	if err := m.Forget("work", ""); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, func() bool { all, _ := m.store.List(); return len(all) == 0 }, "the files are erased")
}

// A lost session whose revival fails is lost again, for good.
func TestRevivalFails(t *testing.T) {
	dir := t.TempDir()
	m := boot(t, dir)
	s, err := m.Create("a", bash("echo READY; sleep 1000"), "")
	if err != nil {
		t.Fatal(err)
	}
	look(t, s, fromStart(s)).until(t, "READY")
	m.stored(t, s, nil)
	want := text(t, s)
	m.cut(t)
	for range 2 {
		m = boot(t, dir)
		failed, err := m.Reopen("a", "", protocol.RespawnSpec{Argv: []string{"false"}, KeepScreen: true}, "")
		if err != nil {
			t.Fatal(err)
		}
		ended(t, failed)
		if err := m.ForgetFailed("a", failed.instance); err != nil {
			t.Fatal(err)
		}
		lost, err := m.Get("a")
		if err != nil {
			t.Fatal(err)
		}
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
	s, err := m.Create("a", bash("echo READY; sleep 1000"), "")
	if err != nil {
		t.Fatal(err)
	}
	look(t, s, fromStart(s)).until(t, "READY")
	m.stored(t, s, nil)
	m.cut(t)
	m = boot(t, dir)
	if n := m.Live(); n != 0 {
		t.Errorf("%d sessions run", n)
	}
	if all := m.List(""); len(all) != 1 || all[0].State != protocol.StateLost {
		t.Errorf("the list is %+v, want a lost session", all)
	}
	wantCode(t, "create", second(m.Create("a", bash("true"), "")), protocol.CodeSessionExists)
	frozen, err := m.Freeze()
	if err != nil {
		t.Fatal(err)
	}
	if len(frozen.Records) != 0 {
		t.Errorf("a successor would receive %+v, although it reads the recordings itself", frozen.Records)
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
	m := boot(t, dir)
	done, err := m.Create("done", bash("echo READY"), "")
	if err != nil {
		t.Fatal(err)
	}
	stopped, err := m.Create("stopped", bash("echo READY; sleep 1000"), "")
	if err != nil {
		t.Fatal(err)
	}
	look(t, stopped, fromStart(stopped)).until(t, "READY")
	ended(t, done)
	shutdown(t, m.Table)
	m.cut(t)
	m = boot(t, dir)
	if all := m.List(""); len(all) != 1 || all[0].ID != "stopped" {
		t.Errorf("the list is %+v, want the session that the shutdown ended", all)
	}
	if all, err := m.store.List(); err != nil || len(all) != 1 {
		t.Errorf("the store has %v, %v", all, err)
	}
}

// A recording that cannot be read is no session, and stays for a later program.
func TestDamagedRecording(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a@1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a@1", "meta.json"), []byte(`{"version":99}`), 0o600); err != nil {
		t.Fatal(err)
	}
	m := boot(t, dir)
	if all := m.List(""); len(all) != 0 {
		t.Errorf("the list is %+v", all)
	}
	if all, err := m.store.List(); err != nil || len(all) != 1 {
		t.Errorf("the store has %v, %v; want the damaged recording", all, err)
	}
}

// A session that is not durable leaves no file.
func TestNotDurable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	m := boot(t, dir)
	spec := bash("echo READY; sleep 1000")
	spec.Durable = protocol.DurableOff
	s, err := m.Create("a", spec, "")
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(data, []byte("planted")) || !bytes.Contains(data, []byte("API_KEY")) || !bytes.Contains(data, []byte("HOME=/somewhere")) {
		t.Errorf("meta is %s", data)
	}
}
