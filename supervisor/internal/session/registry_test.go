//go:build linux || darwin

package session

import (
	"slices"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/past"
)

// An entry is an instance of a session that exists only in the registry.
type entry struct {
	identity
	exited, gone bool
}

func (e *entry) hasExited() bool { return e.exited }
func (e *entry) isLost() bool    { return false }
func (e *entry) isGone() bool    { return e.gone }

// A shelf is a registry of entries, and does the locking and counting of a table.
type shelf struct {
	*registry[*entry]
	t *testing.T
}

func newShelf(t *testing.T, b bounds) *shelf {
	return &shelf{newRegistry[*entry](b, limits{burst: 1 << 20, perSecond: 1}), t}
}

// reserveFor reserves an id for an account.
func (h *shelf) reserveFor(id protocol.SessionID, account string) (op *opening, surplus []*entry, err error) {
	_, op, surplus, err = h.reserve(id, "", time.Now(), func(*entry) (string, error) { return account, nil })
	return op, surplus, err
}

// start starts an instance of an id.
func (h *shelf) start(id protocol.SessionID, instance protocol.Instance, account string) (*entry, replaced[*entry]) {
	h.t.Helper()
	op, _, err := h.reserveFor(id, account)
	testkit.Must(h.t, err)
	defer h.finish(op)
	l := &entry{identity: identity{id: id, instance: instance, account: account}}
	r, err := h.enter(l)
	testkit.Must(h.t, err)
	return l, r
}

func (h *shelf) exit(l *entry) (surplus []*entry, isPresent bool) {
	l.exited = true
	return h.noteExit(l)
}

// Each limit refuses the next session, and an exited session counts for none but those of files
// and of exit records.
func TestRegistryLimits(t *testing.T) {
	const many = 1 << 10
	fits := func(live, exited int) int { return filesReserved + live*filesPerSession + exited*filesPerExited }
	for _, tt := range []struct {
		name          string
		bounds        bounds
		live, exited  int // sessions that are there, all of account a
		account       string
		want          protocol.Code
		surplusOnOpen int
		surplusOnExit int
	}{
		{"below all limits", bounds{sessions: 3, perAccount: 3, exited: many}, 2, 2, "a", "", 0, 0},
		{"all sessions", bounds{sessions: 2, perAccount: many, exited: many}, 2, 0, "b", protocol.CodeLimitExceeded, 0, 0},
		{"the sessions of an account", bounds{sessions: many, perAccount: 2, exited: many}, 2, 0, "a", protocol.CodeLimitExceeded, 0, 0},
		{"another account", bounds{sessions: many, perAccount: 2, exited: many}, 2, 0, "b", "", 0, 0},
		{"exit records", bounds{sessions: many, perAccount: many, exited: 2}, 0, 3, "a", "", 0, 1},
		{"files of one more", bounds{sessions: many, perAccount: many, exited: many, files: fits(3, 0)}, 2, 0, "a", "", 0, 0},
		{"files of two more", bounds{sessions: many, perAccount: many, exited: many, files: fits(3, 0) - 1}, 2, 0, "a", protocol.CodeLimitExceeded, 0, 0},
		{"files without two exit records", bounds{sessions: many, perAccount: many, exited: many, files: fits(2, 1)}, 1, 3, "a", "", 2, 0},
	} {
		h := newShelf(t, tt.bounds)
		free := h.bounds
		h.bounds.files = 0 // the limits apply only after these sessions have been made
		var lives, surplus []*entry
		for i := range tt.live + tt.exited {
			l, _ := h.start(protocol.SessionID(rune('a'+i)), "1", "a")
			if lives = append(lives, l); i < tt.exited {
				surplus, _ = h.exit(l)
			}
		}
		if len(surplus) != tt.surplusOnExit || !slices.Equal(surplus, lives[:len(surplus)]) {
			t.Errorf("%s: %d exited sessions are too many, want the oldest %d", tt.name, len(surplus), tt.surplusOnExit)
		}
		if n := h.live(); n != tt.live {
			t.Errorf("%s: %d sessions live, want %d", tt.name, n, tt.live)
		}
		h.bounds = free
		op, surplus, err := h.reserveFor("new", tt.account)
		if protocol.CodeOf(err) != tt.want || len(surplus) != tt.surplusOnOpen || !slices.Equal(surplus, lives[:len(surplus)]) {
			t.Errorf("%s: %d must go, %v; want %d and %q", tt.name, len(surplus), err, tt.surplusOnOpen, tt.want)
		}
		if op != nil {
			h.cancel("new")
			h.finish(op)
		}
		if n := h.live(); n != tt.live {
			t.Errorf("%s: %d sessions live after the attempt, want %d", tt.name, n, tt.live)
		}
	}
}

// The exited session that is started again is not forgotten to make room for its new instance.
func TestRoomForReplaced(t *testing.T) {
	h := newShelf(t, bounds{sessions: 9, perAccount: 9, exited: 9, files: filesReserved + 3*filesPerSession})
	var exited []*entry
	for _, id := range []protocol.SessionID{"a", "b", "c"} {
		l, _ := h.start(id, "1", "a")
		h.exit(l)
		exited = append(exited, l)
	}
	h.bounds.files = filesReserved + filesPerSession + 2*filesPerExited
	if _, surplus, err := h.reserveFor("a", "a"); err != nil || !slices.Equal(surplus, exited[1:2]) {
		t.Errorf("%v must go, %v; want only b, the oldest of the others", surplus, err)
	}
}

// A token returns the session that it has created, also if that is still being started. Without the
// token a second request is refused.
func TestRegistryToken(t *testing.T) {
	h := newShelf(t, bounds{sessions: 9, perAccount: 9, exited: 9})
	allow := func(*entry) (string, error) { return "a", nil }
	_, op, _, err := h.reserve("s", "t", time.Now(), allow)
	if err != nil || op == nil {
		t.Fatal(op, err)
	}
	for _, token := range []string{"", "another"} {
		_, _, _, err := h.reserve("s", token, time.Now(), allow)
		wantCode(t, "token "+token, err, protocol.CodeSessionExists)
	}
	same := make(chan *entry)
	go func() {
		old, _, _, _ := h.reserve("s", "t", time.Now(), allow)
		same <- old
	}()
	s := &entry{identity: identity{id: "s", token: "t"}}
	if _, err := h.enter(s); err != nil {
		t.Fatal(err)
	}
	h.finish(op)
	if got := <-same; got != s || h.get("s") != s {
		t.Errorf("got %v, want the session of the token", got)
	}
}

// An instance that was replaced is set aside, and gets its id again if its successor is removed so.
func TestRegistryAside(t *testing.T) {
	for _, tt := range []struct {
		name    string
		restore bool // the second instance is removed in favour of the first
		goes    bool // the first instance was forgotten before
		opens   bool // a third instance is being opened
		want    string
	}{
		{"restored", true, false, false, "1"},
		{"removed", false, false, false, ""},
		{"forgotten before", true, true, false, ""},
		{"opened again", true, false, true, ""},
	} {
		h := newShelf(t, bounds{sessions: 9, perAccount: 9, exited: 9})
		first, _ := h.start("s", "1", "a")
		h.exit(first)
		first.gone = tt.goes
		second, r := h.start("s", "2", "a")
		if r.old != first || r.isAside == tt.goes || r.giveUp != nil || h.hasAside("s") == tt.goes {
			t.Errorf("%s: replaced %+v", tt.name, r)
		}
		if _, isPresent := h.exit(first); isPresent {
			t.Errorf("%s: an instance that was replaced counts as exited", tt.name)
		}
		h.exit(second)
		if tt.opens {
			if _, _, err := h.reserveFor("s", "a"); err != nil {
				t.Fatal(err)
			}
		}
		old, isRestored := h.remove(second, tt.restore)
		if isRestored != (tt.want != "") || (old == first) == tt.goes {
			t.Errorf("%s: removed, and got %v, %v", tt.name, old, isRestored)
		}
		if got := h.get("s"); (got != nil) != isRestored || got != nil && string(got.instance) != tt.want {
			t.Errorf("%s: the id has %v, want instance %q", tt.name, got, tt.want)
		}
		if n := len(h.everyLife()); h.hasAside("s") || n != len(tt.want) {
			t.Errorf("%s: %d lives are left", tt.name, n)
		}
	}
}

// Beyond maxAside an old instance is forgotten at once, and the second instance of one id replaces
// the first that was set aside.
func TestRegistryAsideLimit(t *testing.T) {
	h := newShelf(t, bounds{sessions: 1 << 10, perAccount: 1 << 10, exited: 1 << 10})
	id := func(i int) protocol.SessionID { return protocol.SessionID(rune('a' + i)) }
	for i := range maxAside {
		first, _ := h.start(id(i), "1", "a")
		h.exit(first)
		if _, r := h.start(id(i), "2", "a"); !r.isAside {
			t.Fatalf("number %d is not set aside", i)
		}
	}
	first, _ := h.start(id(maxAside), "1", "a")
	h.exit(first)
	if _, r := h.start(id(maxAside), "2", "a"); r.isAside || r.giveUp != first {
		t.Errorf("an instance above the limit: %+v", r)
	}
	before := h.aside[id(0)]
	second := h.get(id(0))
	h.exit(second)
	if _, r := h.start(id(0), "3", "a"); !r.isAside || r.giveUp != before || !h.endAside(second) || h.endAside(second) {
		t.Errorf("a third instance: %+v", r)
	}
}

// Of two instances that were adopted, the later one gets the id, in each order of adoption, also if the clock was set
// back between them.
func TestRegistryAdopt(t *testing.T) {
	at := func(sec int64, instance, replaces protocol.Instance, exited bool) *entry {
		return &entry{identity: identity{id: "s", instance: instance, replaces: replaces, created: time.Unix(sec, 0)}, exited: exited}
	}
	for _, tt := range []struct {
		name        string
		early, late *entry
	}{
		{"by the clock", at(1, "1", "", true), at(2, "2", "", true)},
		{"by what it replaces", at(2, "1", "", true), at(1, "2", "1", true)},
		{"by the end", at(2, "1", "", true), at(1, "2", "", false)},
	} {
		for _, order := range [][]*entry{{tt.early, tt.late}, {tt.late, tt.early}} {
			h := newShelf(t, bounds{})
			if _, older := h.adopt(order[0]); older != nil {
				t.Errorf("%s: %v is older than the only instance", tt.name, older)
			}
			if newer, older := h.adopt(order[1]); newer != tt.late || older != tt.early || h.get("s") != tt.late {
				t.Errorf("%s: %v, then %v: %v has the id", tt.name, order[0].instance, order[1].instance, newer.instance)
			}
		}
	}
}

// Of the recordings of a session, that of the latest instance comes first.
func TestReplacedLast(t *testing.T) {
	entry := func(id, instance, replaces string) past.Entry {
		return past.Entry{Life: past.Life{ID: protocol.SessionID(id), Instance: protocol.Instance(instance)}, Meta: past.Meta{Replaces: protocol.Instance(replaces)}}
	}
	all := []past.Entry{entry("a", "1", ""), entry("b", "5", "4"), entry("a", "2", "1"), entry("b", "4", ""), entry("a", "3", "2")}
	putReplacedLast(all)
	var got []string
	for _, e := range all {
		got = append(got, string(e.Instance))
	}
	if want := []string{"3", "2", "1", "5", "4"}; !slices.Equal(got, want) {
		t.Errorf("the order is %q, want %q", got, want)
	}
}

// A closed registry permits no session, also none that was reserved before, and a frozen one
// permits them again.
func TestRegistryCloses(t *testing.T) {
	h := newShelf(t, bounds{sessions: 9, perAccount: 9, exited: 9})
	testkit.Must(t, h.freeze())
	_, _, err := h.reserveFor("s", "a")
	wantCode(t, "frozen", err, protocol.CodeUpgrading)
	h.thaw()
	op, _, err := h.reserveFor("s", "a")
	testkit.Must(t, err)
	if closed, _ := h.closeIfIdle(false); closed {
		t.Error("closed although a session is being opened")
	}
	if !h.close() || h.close() {
		t.Error("the first call is not the first, or the second is")
	}
	wantCode(t, "freeze", h.freeze(), protocol.CodeClosed)
	_, err = h.enter(&entry{identity: identity{id: "s"}})
	wantCode(t, "reserved before", err, protocol.CodeClosed)
	if h.awaitBegun(0) {
		t.Error("the reservation is not finished")
	}
	h.finish(op)
	if !h.awaitBegun(0) {
		t.Error("the reservation is finished")
	}
	_, _, err = h.reserveFor("t", "a")
	wantCode(t, "reserved after", err, protocol.CodeClosed)
	if closed, isFirst := h.closeIfIdle(true); !closed || isFirst {
		t.Error("not idle, or closed for the first time")
	}
}
