//go:build linux || darwin

package session

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/cage"
	"holdfast/supervisor/internal/pty"
)

// noCages makes no cage. New returns err.
type noCages struct{ err error }

func (c noCages) New(string, protocol.Limits, protocol.Limits) (*cage.Cage, error) { return nil, c.err }
func (c noCages) Adopt(string) *cage.Cage                                          { return nil }
func (c noCages) Sweep()                                                           {}

// A child starts without a cage, unless its request demands limits.
func TestStartWithoutCage(t *testing.T) {
	demanded, defaults := protocol.Limits{PIDsMax: new(uint64(9))}, protocol.Limits{PIDsMax: new(uint64(99))}
	broken := errors.New("broken")
	for _, tt := range []struct {
		name     string
		cages    Cages
		demanded protocol.Limits
		failure  error // the error of the start
		want     error
		code     protocol.Code
	}{
		{"no limits", nil, protocol.Limits{}, nil, nil, ""},
		{"limits", nil, demanded, nil, nil, protocol.CodeUnsupported},
		{"no cage for it", noCages{}, protocol.Limits{}, nil, nil, ""},
		{"a cage that fails", noCages{broken}, protocol.Limits{}, nil, broken, ""},
		{"a child that does not start", noCages{}, protocol.Limits{}, broken, broken, ""},
	} {
		log := zerolog.Nop()
		starts := 0
		run := func(spec pty.Spec) (PTY, error) { starts++; return newFake(spec), tt.failure }
		c := child{identity: &identity{spec: protocol.SpawnSpec{Limits: tt.demanded}}, cfg: &Config{Cages: tt.cages, Start: run}, log: &log}
		_, err := c.start(pty.Spec{}, defaults)
		if tt.want != nil && !errors.Is(err, tt.want) || tt.code != "" && protocol.CodeOf(err) != tt.code || tt.want == nil && tt.code == "" && err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if wanted := tt.code == "" && tt.want != broken || tt.failure != nil; (starts == 1) != wanted {
			t.Errorf("%s: started %d times", tt.name, starts)
		}
		if c.cage.use() != nil || c.cage.useAtExit() != nil || *c.cage.limits.Load() != tt.demanded {
			t.Errorf("%s: limits %+v", tt.name, *c.cage.limits.Load())
		}
	}
}

// Each change between frozen and thawed is reported as news once.
func TestFrozenNews(t *testing.T) {
	var c sessionCage
	for i, tt := range []struct{ frozen, isNews bool }{{false, false}, {true, true}, {true, false}, {false, true}, {false, false}} {
		c.frozen.Store(tt.frozen)
		if frozen, isNews := c.isFrozenNews(); frozen != tt.frozen || isNews != tt.isNews {
			t.Errorf("step %d: frozen %v, news %v", i, frozen, isNews)
		}
	}
}

// Without cages a session starts as usual and the default limits are ignored. A request that needs a cage fails with
// unsupported. A spawn with limits fails before a child is started.
func TestWithoutCages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		limits := protocol.Limits{PIDsMax: new(uint64(9))}
		spec := bash("")
		spec.Limits = limits
		if _, err := tb.create("limited", spec, ""); protocol.CodeOf(err) != protocol.CodeUnsupported {
			t.Errorf("limits: %v", err)
		}
		if _, err := tb.Get("limited"); protocol.CodeOf(err) != protocol.CodeSessionNotFound {
			t.Errorf("a session with limits was started: %v", err)
		}
		s, err := tb.Create("", "s", bash(""), limits, "")
		testkit.Must(t, err)
		for name, err := range map[string]error{
			"limit": s.Limit(limits), "freeze": s.SetFrozen(true), "thaw": s.SetFrozen(false), "all": s.Terminate(End{All: true}),
		} {
			if protocol.CodeOf(err) != protocol.CodeUnsupported {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := s.Limit(protocol.Limits{PIDsMax: new(uint64(1 << 40))}); protocol.CodeOf(err) != protocol.CodeInvalidArgument {
			t.Errorf("a wrong limit: %v", err)
		}
		if i, err := s.Info(); err != nil || i.Frozen || i.Cage != nil || s.Use() != nil {
			t.Errorf("%+v, %v", i, err)
		}
		by(s).exit(pty.Status{})
		<-s.Exited()
		if s.Exit().Cage != nil {
			t.Errorf("the exit record has %+v", s.Exit().Cage)
		}
	})
}

// A request to freeze that has passed its first check is refused if the end of the session begins before the cage is
// frozen, because the end has thawed the session already.
func TestFreezeAfterEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		by(s).change(func() { by(s).deaf = true })
		testkit.Must(t, s.Terminate(End{}))
		wantCode(t, "freeze", s.setFrozen(true), protocol.CodeSessionNotFound)
	})
}
