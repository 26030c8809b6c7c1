//go:build linux || darwin

package session

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

func sz(cols, rows int) protocol.Size { return protocol.Size{Cols: cols, Rows: rows} }

// typeBy sends input as a viewer.
func typeBy(t *testing.T, v *viewer, f *fakePTY, what string) {
	t.Helper()
	testkit.Must(t, v.a.Type(v.typed, []byte(what)))
	v.typed += uint64(len(what))
	f.take(len(what))
}

// Two viewers have windows of 100x40 and 60x50. Each policy chooses the session's size as they attach, send input,
// resize their windows, are lost, resume and detach.
func TestSizePolicies(t *testing.T) {
	for _, tt := range []struct {
		policy                                              protocol.SizePolicy
		second, typed, shrunk, lost, back, left, last, gone protocol.Size
	}{
		{policy: protocol.SizeLatest,
			second: sz(100, 40), typed: sz(60, 50), shrunk: sz(60, 50), lost: sz(60, 50), back: sz(60, 50), left: sz(60, 50), last: sz(90, 30), gone: sz(90, 30)},
		{policy: protocol.SizeOwner,
			second: sz(100, 40), typed: sz(100, 40), shrunk: sz(90, 40), lost: sz(90, 40), back: sz(90, 40), left: sz(90, 40), last: sz(90, 30), gone: sz(90, 30)},
		{policy: protocol.SizeSmallest,
			second: sz(60, 40), typed: sz(60, 40), shrunk: sz(60, 40), lost: sz(60, 40), back: sz(60, 40), left: sz(90, 40), last: sz(90, 30), gone: sz(90, 30)},
		{policy: protocol.SizeLargest,
			second: sz(100, 50), typed: sz(100, 50), shrunk: sz(90, 50), lost: sz(90, 50), back: sz(90, 50), left: sz(90, 40), last: sz(90, 30), gone: sz(90, 30)},
		{policy: protocol.SizeFixed,
			second: sz(80, 24), typed: sz(80, 24), shrunk: sz(80, 24), lost: sz(80, 24), back: sz(80, 24), left: sz(80, 24), last: sz(80, 24), gone: sz(80, 24)},
	} {
		t.Run(string(tt.policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb, by := fakeTable(t, Config{})
				s := create(t, tb, protocol.SpawnSpec{Argv: []string{"sh"}, SizePolicy: tt.policy})
				f := by(s)
				is := func(when string, want protocol.Size) {
					t.Helper()
					if got := info(t, s); got.Size != want || got.SizePolicy != tt.policy {
						t.Errorf("%s: %v by %s, want %v", when, got.Size, got.SizePolicy, want)
					}
				}
				first := look(t, s, protocol.AttachSpec{Writer: "first", Cols: 100, Rows: 40})
				second := look(t, s, protocol.AttachSpec{Writer: "second", Cols: 60, Rows: 50})
				look(t, s, protocol.AttachSpec{Mode: protocol.ModeReadOnly, Cols: 10, Rows: 10})
				is("two viewers are attached", tt.second)
				typeBy(t, second, f, "x")
				is("the second types", tt.typed)
				resizeBy(t, first, 90, 40)
				is("the first makes its window narrower", tt.shrunk)
				second.a.Close()
				time.Sleep(reconnectTime - 1)
				is("the second is lost", tt.lost)
				second = look(t, s, protocol.AttachSpec{Writer: "second", Cols: 60, Rows: 50, Resume: &protocol.Resume{Instance: s.Instance(), Offset: 0}})
				time.Sleep(2 * reconnectTime)
				is("the second is back", tt.back)
				second.a.Detach()
				is("the second has left", tt.left)
				resizeBy(t, first, 90, 30)
				is("the first makes its window lower", tt.last)
				first.a.Close()
				time.Sleep(2 * reconnectTime)
				is("all viewers have detached", tt.gone)
			})
		})
	}
}

func resizeBy(t *testing.T, v *viewer, cols, rows int) {
	t.Helper()
	testkit.Must(t, v.a.Resize(sz(cols, rows)))
	v.resized(sz(cols, rows))
}

// A viewer that detaches does not count any more. A viewer that was lost counts for a while.
func TestLostViewerCountsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, _ := fakeTable(t, Config{})
		s := create(t, tb, protocol.SpawnSpec{Argv: []string{"sh"}, SizePolicy: protocol.SizeSmallest})
		look(t, s, protocol.AttachSpec{Cols: 100, Rows: 40})
		lost := look(t, s, protocol.AttachSpec{Cols: 50, Rows: 20})
		lost.a.Close()
		time.Sleep(reconnectTime - 1)
		if got := info(t, s).Size; got != sz(50, 20) {
			t.Errorf("right after the loss the size is %v", got)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := info(t, s).Size; got != sz(100, 40) {
			t.Errorf("after the lost viewer has expired the size is %v", got)
		}
		look(t, s, protocol.AttachSpec{Cols: 1, Rows: 1})
		if got := info(t, s).Size; got != sz(protocol.SmallestCols, protocol.SmallestRows) {
			t.Errorf("a tiny window makes the size %v", got)
		}
	})
}

// A tiny window cannot make a session too small to use, under any policy. A resize request can.
func TestTinyWindow(t *testing.T) {
	least := sz(protocol.SmallestCols, protocol.SmallestRows)
	for _, policy := range []protocol.SizePolicy{protocol.SizeLatest, protocol.SizeOwner, protocol.SizeSmallest, protocol.SizeLargest} {
		synctest.Test(t, func(t *testing.T) {
			tb, _ := fakeTable(t, Config{})
			s := create(t, tb, protocol.SpawnSpec{Argv: []string{"sh"}, SizePolicy: policy})
			look(t, s, protocol.AttachSpec{Cols: 1, Rows: 1})
			synctest.Wait()
			if got := info(t, s).Size; got != least {
				t.Errorf("%s: a window of 1x1 makes the size %v, want %v", policy, got, least)
			}
			testkit.Must(t, s.Resize(sz(3, 2)))
			if got := info(t, s).Size; got != sz(3, 2) {
				t.Errorf("%s: after a request of 3x2 the size is %v", policy, got)
			}
		})
	}
}

// The policy of a session can be changed, and its size can be set under each policy.
func TestSetSizePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		v := look(t, s, protocol.AttachSpec{Cols: 100, Rows: 40})
		look(t, s, protocol.AttachSpec{Cols: 60, Rows: 50})
		for _, tt := range []struct {
			policy     protocol.SizePolicy
			cols, rows int
			want       protocol.Size
		}{
			{protocol.SizeLargest, 0, 0, sz(100, 50)},
			{protocol.SizeFixed, 0, 0, sz(100, 50)},
			{protocol.SizeFixed, 33, 0, sz(33, 24)},
			{protocol.SizeSmallest, 44, 44, sz(44, 44)}, // until a viewer changes its window
			{protocol.SizeLatest, 0, 0, sz(100, 40)},
		} {
			testkit.Must(t, s.SetSizePolicy(tt.policy, tt.cols, tt.rows))
			if got := info(t, s); got.Size != tt.want || got.SizePolicy != tt.policy {
				t.Errorf("%s: %v by %s, want %v", tt.policy, got.Size, got.SizePolicy, tt.want)
			}
		}
		wantCode(t, "no such policy", s.SetSizePolicy("biggest", 0, 0), protocol.CodeInvalidArgument)
		wantCode(t, "none", s.SetSizePolicy("", 0, 0), protocol.CodeInvalidArgument)
		if err := s.Resize(sz(70, 20)); err != nil || info(t, s).Size != sz(70, 20) {
			t.Errorf("resize to 70x20: %v", info(t, s).Size)
		}
		typeBy(t, v, by(s), "x")
		if got := info(t, s).Size; got != sz(100, 40) {
			t.Errorf("after input of the viewer that decides the size is %v", got)
		}
	})
}

// A detached session answers queries about colours and cell sizes with the values of the last viewer that decided.
// The kernel's window size includes the pixels of that viewer.
func TestAppearance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		f := by(s)
		const ask = "\x1b]11;?\x1b\\"
		light := &protocol.Appearance{Background: "#ffeedd", CellWidth: 8, CellHeight: 16}
		v := look(t, s, protocol.AttachSpec{Cols: 80, Rows: 24, Appearance: light})
		other := look(t, s, protocol.AttachSpec{Cols: 80, Rows: 24, Appearance: &protocol.Appearance{Background: "#000001"}})
		f.mu.Lock()
		if want := [2]int{640, 384}; f.pixels != want {
			t.Errorf("the terminal has %v pixels, want %v", f.pixels, want)
		}
		f.mu.Unlock()
		v.a.Detach()
		other.a.Detach()
		says := func(when, want string) {
			t.Helper()
			show(f, ask)
			time.Sleep(claimTime)
			if got := typedBy(f); !strings.Contains(got, want) {
				t.Errorf("%s: the session answered with %q, want %s", when, got, want)
			}
		}
		says("both viewers have detached", "ffff/eeee/dddd")
		v = look(t, s, protocol.AttachSpec{})
		typeBy(t, v, f, "x")
		says("a viewer without an appearance decides", "ffff/eeee/dddd")
		testkit.Must(t, v.a.Appear(protocol.Appearance{Background: "#010203"}))
		says("the viewer's theme changed", "0101/0202/0303")
		wantCode(t, "no colour", v.a.Appear(protocol.Appearance{Cursor: "red"}), protocol.CodeInvalidArgument)
	})
}

// The program receives a focus report when the first viewer gets the focus and when the last one loses it, and none
// in between.
func TestFocus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		f := by(s)
		a, b := look(t, s, protocol.AttachSpec{}), look(t, s, protocol.AttachSpec{})
		const in, out = "\x1b[I", "\x1b[O"
		got := func(when, want string) {
			t.Helper()
			if got := typedBy(f); got != want {
				t.Errorf("%s: the program receives %q, want %q", when, got, want)
			}
		}
		says := func(v *viewer, what string) {
			t.Helper()
			testkit.Must(t, v.a.Type(v.typed, []byte(what)))
			v.typed += uint64(len(what))
		}
		says(a, in)
		got("the program has not asked", in)
		show(f, "\x1b[?1004h")
		says(a, out)
		got("no viewer has the focus", out)
		says(b, "x"+in+"y"+in)
		got("one viewer gets the focus", "x"+in+"y")
		says(a, in+out+in)
		got("both viewers have the focus", "")
		says(b, out)
		got("one viewer loses the focus", "")
		says(a, "1\x1b[200~pasted"+out+"\x1b[201~2"+out)
		got("a paste stays unchanged", "1\x1b[200~pasted"+out+"\x1b[201~2"+out)
		says(a, "\x1b[200~half")
		a = look(t, s, protocol.AttachSpec{Writer: a.a.Writer(), Resume: &protocol.Resume{Instance: s.Instance()}})
		a.typed = a.info.InputOffset
		says(a, out+"\x1b[201~3"+out)
		got("a paste continues over another connection", "\x1b[200~half"+out+"\x1b[201~3")
		says(a, in)
		got("again", in)
		a = look(t, s, protocol.AttachSpec{Writer: a.a.Writer(), Resume: &protocol.Resume{Instance: s.Instance()}})
		a.typed = a.info.InputOffset
		got("the viewer with the focus has another connection", "")
		says(a, out)
		got("the viewer's terminal loses the focus then", out)
		says(a, in)
		got("the viewer's terminal gets the focus again", in)
		a.a.Close()
		got("the viewer with the focus is lost", out)
		a = look(t, s, protocol.AttachSpec{Writer: a.a.Writer(), Resume: &protocol.Resume{Instance: s.Instance()}})
		a.typed = a.info.InputOffset
		got("it returns with the focus", in)
		says(a, out)
		got("it loses the focus", out)
		a.a.Close()
		a = look(t, s, protocol.AttachSpec{Writer: a.a.Writer(), Resume: &protocol.Resume{Instance: s.Instance()}})
		got("it returns without the focus", "")
		a.a.Detach()
		show(f, "\x1b[?1004h")
		says(b, out)
		got("the program has asked again", out)
		testkit.Must(t, b.a.Type(b.typed-1, []byte("Oz")))
		got("a report that comes twice", "z")
	})
}

// A viewer may report its focus before the screen has seen the program's request. The report counts all the same, so
// the program does not receive it twice.
func TestFocusIsFaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		v := look(t, s, protocol.AttachSpec{Writer: "w"})
		const out = "\x1b[O"
		s.do(func() { // loop writes nothing to the screen meanwhile
			show(by(s), "\x1b[?1004h")
			if _, err := s.acceptInput(v.a, "w", 0, []byte(out)); err != nil {
				t.Error(err)
			}
		})
		testkit.Must(t, v.a.Type(uint64(len(out)), []byte(out+"x")))
		if got, want := typedBy(by(s)), out+"x"; got != want {
			t.Errorf("the program receives %q, want %q", got, want)
		}
	})
}

// A viewer returns with the focus when the program has just stopped to ask for it, which the screen has not seen yet. The next
// program must not receive a report that it has not asked for.
func TestFocusReturnsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		v := look(t, s, protocol.AttachSpec{Writer: "w"})
		show(by(s), "\x1b[?1004h")
		testkit.Must(t, v.a.Type(0, []byte("\x1b[I")))
		v.a.Close()
		if got, want := typedBy(by(s)), "\x1b[I\x1b[O"; got != want {
			t.Errorf("the program receives %q, want %q", got, want)
		}
		s.do(func() { // loop answers the request to attach next
			show(by(s), "\x1b[?1004l")
			go func() {
				if _, _, err := s.Attach(t.Context(), protocol.AttachSpec{Writer: "w", Resume: &protocol.Resume{Instance: s.Instance(), Offset: v.pos}}); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		})
		if got := typedBy(by(s)); got != "" {
			t.Errorf("the next program receives %q", got)
		}
	})
}

// Input with a line that is longer than the terminal's limit is accepted, and its writer receives an error once for
// each such line.
func TestLineTooLong(t *testing.T) {
	s, v := ready(t, "echo READY; exec sleep 1000")
	long := strings.Repeat("x", 4096)
	for _, tt := range []struct {
		name, input string
		want        protocol.Code
	}{
		{"short", "short\n", ""},
		{"just fits", long[1:] + "\n", ""},
		{"too long", long + "\n", protocol.CodeLineTooLong},
		{"in pieces, the first", long[:4000], ""},
		{"the second", long[:200], protocol.CodeLineTooLong},
		{"the third", long[:200] + "\rend", ""},
		{"among others", "\n1\n" + long + "\n2\n", protocol.CodeLineTooLong},
	} {
		err := v.a.Type(v.typed, []byte(tt.input))
		v.typed += uint64(len(tt.input))
		if code := protocol.CodeOf(err); tt.want == "" && err != nil || tt.want != "" && code != tt.want {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if e := protocol.AsError(err); err != nil && (e.Offset == nil || *e.Offset != v.typed || e.Retryable) {
			t.Errorf("%s: %+v, want the offset %d", tt.name, e, v.typed)
		}
	}
	if n, err := s.Type("", 0, []byte(long+"\n")); n != 4097 || protocol.CodeOf(err) != protocol.CodeLineTooLong {
		t.Errorf("without an attachment: %d, %v", n, err)
	}
	raw, rv := ready(t, "stty raw -echo; echo READY; exec cat >/dev/null")
	if err := rv.a.Type(0, []byte(long+long)); err != nil {
		t.Errorf("to a raw terminal: %v", err)
	}
	_ = raw
}

// A child waits for an exclusive viewer that has asked for it, for a limited time. It does not wait again before the
// viewer has caught up.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{RingBytes: 64 << 10})
		s := create(t, tb, bash(""))
		f := by(s)
		v := look(t, s, protocol.AttachSpec{Mode: protocol.ModeExclusive, Pace: true})
		printed := func() uint64 { synctest.Wait(); return info(t, s).OutputOffset }
		f.print(make([]byte, 1<<20))
		first := printed()
		if first < 32<<10 || first > 64<<10 {
			t.Errorf("%d bytes were read before the session waited", first)
		}
		if _, err := v.drain(); err != nil {
			t.Fatal(err)
		}
		second := printed()
		if seen := v.a.pacer.pos.Load(); second <= first || second > seen+64<<10 { // the session may have read on while the viewer drained
			t.Errorf("the viewer has received %d bytes, but %d were read", seen, second)
		}
		begun := time.Now()
		time.Sleep(paceTime - 1)
		if now := printed(); now != second {
			t.Errorf("after %v %d bytes were read, want %d", time.Since(begun), now, second)
		}
		time.Sleep(time.Nanosecond)
		if now := printed(); now != 1<<20 {
			t.Errorf("after %v %d bytes were read, want all", time.Since(begun), now)
		}
		f.print(make([]byte, 1<<20))
		if now := printed(); now != 2<<20 {
			t.Errorf("the session waited again: %d bytes were read", now)
		}
		if _, err := v.drain(); err != nil || v.missed == 0 || v.pos != 2<<20 {
			t.Errorf("the viewer read up to offset %d with %d missed, %v", v.pos, v.missed, err)
		}
		f.print(make([]byte, 1<<20))
		if now := printed(); now >= 3<<20 {
			t.Error("the session does not wait for a viewer that has caught up")
		}
		v.a.Close()
		if now := printed(); now != 3<<20 {
			t.Errorf("the viewer has detached, and the child still waits at offset %d", now)
		}
	})
}

// A child that prints more than the ring holds waits for the first viewer, which therefore misses nothing. It waits
// for a limited time, and not at all if the session is unattended.
func TestFirstViewer(t *testing.T) {
	for name, spec := range map[string]protocol.AttachSpec{
		"paces":           {Mode: protocol.ModeExclusive, Pace: true},
		"reads the whole": {Mode: protocol.ModeReadOnly},
		"does not come":   {},
		"unattended":      {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb, by := fakeTable(t, Config{RingBytes: 64 << 10})
				s := create(t, tb, protocol.SpawnSpec{Argv: []string{"cat"}, Unattended: name == "unattended"})
				printed := func() uint64 { synctest.Wait(); return info(t, s).OutputOffset }
				const all = 1 << 20
				by(s).print(make([]byte, all))
				if name == "unattended" {
					if now := printed(); now != all {
						t.Errorf("%d bytes were read, want all", now)
					}
					return
				}
				time.Sleep(firstViewerTime - 1)
				if now := printed(); now < 32<<10 || now > 64<<10 {
					t.Errorf("%d bytes were read before a viewer attached", now)
				}
				if spec.Mode == "" {
					time.Sleep(time.Nanosecond)
					if now := printed(); now != all {
						t.Errorf("after %v %d bytes were read, want all", firstViewerTime, now)
					}
					return
				}
				spec.Resume = &protocol.Resume{Instance: s.Instance()}
				v := look(t, s, spec)
				if !spec.Pace {
					if now := printed(); now != all {
						t.Errorf("%d bytes were read when a viewer had attached, want all", now)
					}
					return
				}
				for printed() < all {
					if _, err := v.drain(); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := v.drain(); err != nil || v.missed != 0 || v.pos != all {
					t.Errorf("the viewer read up to offset %d with %d missed, %v", v.pos, v.missed, err)
				}
			})
		})
	}
}

// Each limit on the sessions of an originator has its own error.
func TestOriginatorLimits(t *testing.T) {
	var now atomic.Int64 // milliseconds
	tb, _ := fakeTable(t, Config{OriginatorSessions: 3, SpawnBurst: 5, SpawnRate: 2, Now: func() time.Time { return time.UnixMilli(now.Load()) }})
	spawn := func(originator string) error {
		s, err := tb.create("", protocol.SpawnSpec{Argv: []string{"sh"}, Originator: originator}, "")
		if err == nil && originator == "brief" {
			ended := s.Exited()
			_ = s.Terminate(End{})
			<-ended
		}
		return err
	}
	for range 3 {
		testkit.Must(t, spawn("a"))
	}
	err := spawn("a")
	wantCode(t, "a fourth", err, protocol.CodeLimitExceeded)
	if e := protocol.AsError(err); e.Retryable {
		t.Errorf("%+v is retryable, although waiting does not help", e)
	}
	if err := spawn("b"); err != nil {
		t.Errorf("another originator: %v", err)
	}
	// A session that is created for an account counts for it in each of its lives, whichever originator created it.
	for i := range 4 {
		spec := protocol.SpawnSpec{Argv: []string{"sh"}, Originator: protocol.NewToken(4)}
		s, err := tb.Create("w", "", spec, protocol.Limits{}, "")
		if i == 3 {
			wantCode(t, "a fourth of an account", err, protocol.CodeLimitExceeded)
			continue
		}
		testkit.Must(t, err)
		if i == 0 {
			ended := s.Exited()
			_ = s.Terminate(End{})
			<-ended
			if s, err = tb.reopen(s.ID(), "", protocol.RespawnSpec{}, ""); err != nil || s.account != "w" {
				t.Errorf("after the reopen the session counts for %q, %v", s.account, err)
			}
		}
	}
	var errs []error
	for range 6 {
		errs = append(errs, spawn("brief"))
	}
	last := protocol.AsError(errs[5])
	if i := slices.IndexFunc(errs, func(e error) bool { return e != nil }); i != 5 || last.Code != protocol.CodeLimitExceeded || last.RetryAfterMS != 500 {
		t.Errorf("spawn %d failed first: %v", i, last)
	}
	now.Add(500)
	if err := spawn("brief"); err != nil {
		t.Errorf("after the time that the error named: %v", err)
	}
	for range maxLimiters + 10 {
		now.Add(1)
		_ = spawn(protocol.NewToken(4))
	}
	tb.registry.mu.Lock()
	defer tb.registry.mu.Unlock()
	if n := len(tb.registry.limits.by); n > maxLimiters+1 {
		t.Errorf("%d limiters are kept", n)
	}
}
