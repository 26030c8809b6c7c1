//go:build linux

package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/past"
)

// sealed starts a machine whose recordings are sealed with an identity. If the identity is empty, the key is not
// available.
func sealed(t *testing.T, dir, identity string) *computer {
	t.Helper()
	store := past.New(dir, past.NewKey(func(context.Context) (string, error) {
		if identity == "" {
			return "", errors.New("keychain is closed")
		}
		return identity, nil
	}))
	cfg := Config{Recorder: newRecorder(t, store), Durable: protocol.DurableScreen, Supervisor: protocol.NewInstance()}
	m := &computer{newTable(t, cfg), store, cfg.Recorder}
	m.AddLost(m.store, nil)
	return m
}

func newIdentity(t *testing.T) string {
	t.Helper()
	i, err := age.GenerateX25519Identity()
	testkit.Must(t, err)
	return i.String()
}

// A sealed session comes back with its key. With another key it is listed, its screen tells why it
// cannot be read, it cannot be started again, and its files stay until it is forgotten.
func TestSealedLost(t *testing.T) {
	dir, own := t.TempDir(), newIdentity(t)
	m := sealed(t, dir, own)
	s := m.ready(t, "work")
	m.cut(t)

	m = sealed(t, dir, newIdentity(t))
	i := info(t, m.must(t, "work"))
	if i.State != protocol.StateLost || i.Instance != s.Instance() || i.Title != "sealed recording" {
		t.Errorf("with another key the session is %+v", i)
	}
	if got := text(t, m.must(t, "work")); !strings.Contains(got, "cannot be read") || strings.Contains(got, "READY") {
		t.Errorf("with another key the screen is %q", got)
	}
	if _, err := m.reopen("work", "", protocol.RespawnSpec{KeepScreen: true}, ""); protocol.CodeOf(err) != protocol.CodeNotStored {
		t.Errorf("a session that cannot be read was started again: %v", err)
	}
	if st := m.RecordingStatus(); st == nil || st.Sealed != 1 || st.Failing != 0 {
		t.Errorf("the status is %+v", st)
	}
	m.cut(t)

	m = sealed(t, dir, own)
	if got := text(t, m.must(t, "work")); !strings.Contains(got, "READY") {
		t.Errorf("the screen with the key: %q", got)
	}
	if st := m.RecordingStatus(); st != nil {
		t.Errorf("the status with the key is %+v", st)
	}
	m.cut(t)

	m = sealed(t, dir, newIdentity(t))
	testkit.Must(t, m.Forget("work", ""))
	m.has(t)
}

// If the key is not available, a session runs, its recording fails, and no output is stored in the clear.
func TestNoKey(t *testing.T) {
	dir := t.TempDir()
	m := sealed(t, dir, "")
	s, err := m.create("work", bash("echo READY; sleep 1000"), "")
	testkit.Must(t, err)
	look(t, s, fromStart(s)).until(t, "READY")
	await(t, m.Events(), "work", protocol.EventRecordingFailed)
	if st := m.RecordingStatus(); st == nil || st.Failing != 1 || !strings.Contains(st.Error, "keychain is closed") {
		t.Errorf("the status is %+v", st)
	}
	if _, err := os.Stat(filepath.Join(dir, s.life().String())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("files: %v", err)
	}
}
