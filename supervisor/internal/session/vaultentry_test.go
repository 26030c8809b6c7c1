//go:build linux

package session

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/supervisor/internal/pty"
	"holdfast/supervisor/internal/vault"
)

// A lateVault does not answer while isLate is set.
type lateVault struct {
	isLate atomic.Bool
	puts   atomic.Int64 // that were answered
	pid    atomic.Int64 // of the entry
}

func (v *lateVault) answer(ctx context.Context) error {
	if v.isLate.Load() {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (v *lateVault) Put(ctx context.Context, r vault.Entry) error {
	err := v.answer(ctx)
	if err == nil {
		v.puts.Add(1)
		v.pid.Store(int64(r.PID))
	}
	return err
}

func (v *lateVault) SetPID(ctx context.Context, _ string, pid int) error {
	err := v.answer(ctx)
	if err == nil {
		v.pid.Store(int64(pid))
	}
	return err
}

func (v *lateVault) Delete(ctx context.Context, _ string) error { return v.answer(ctx) }

// If the vault does not answer when a session puts its entry or its child's pid, the session does so again until the vault has
// answered. It hardly waits then.
func TestEntryIsPutAgain(t *testing.T) {
	for name, request := range map[string]func(*Session){
		"entry": func(s *Session) { s.entry.put(&s.sessionFiles, s.pty.PID()) },
		"pid":   func(s *Session) { s.entry.setPID(s.pty.PID()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &lateVault{}
				tb, by := fakeTable(t, Config{Vault: v})
				s := create(t, tb, bash(""))
				v.isLate.Store(true)
				v.pid.Store(0)
				s.do(func() { request(s) })
				if name == "entry" && tb.Kept() != 0 {
					t.Error("the vault is said to hold an entry that it has not confirmed")
				}
				time.Sleep(10 * owedPause)
				begun := time.Now()
				if info(t, s); time.Since(begun) > owedTime {
					t.Errorf("the session has waited %v for the vault", time.Since(begun))
				}
				v.isLate.Store(false)
				time.Sleep(owedPauseMax)
				if v.puts.Load() != 1 || v.pid.Load() != int64(s.pty.PID()) || tb.Kept() != 1 {
					t.Errorf("%d puts, pid %d, %d sessions are kept", v.puts.Load(), v.pid.Load(), tb.Kept())
				}
				time.Sleep(2 * owedPauseMax)
				if n := v.puts.Load(); n != 1 {
					t.Errorf("%d puts after the answer", n)
				}
				by(s).exit(pty.Status{})
				<-s.Exited()
			})
		})
	}
}

// The next program of the process puts an entry again that the vault has not confirmed.
func TestOwedEntryInNextLife(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash("exit 7"))
	ended(t, s)
	l = l.restart(Heritage{Own: true}, func(s *Session) {
		s.entry.owe()
		if err := s.writeState(); err != nil {
			t.Error(err)
		}
	})
	s = l.get(s.ID())
	s.do(func() {
		if l.Kept() != 0 || s.entry.owed.c == nil {
			t.Errorf("%d entries are kept, and one is owed: %v", l.Kept(), s.entry.owed.c != nil)
		}
		s.entry.putOwed(&s.sessionFiles, s.pty.PID())
		if l.Kept() != 1 || s.entry.owed.c != nil {
			t.Errorf("after the put, %d entries are kept, and one is owed: %v", l.Kept(), s.entry.owed.c != nil)
		}
	})
}
