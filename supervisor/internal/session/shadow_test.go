//go:build linux || darwin

package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/ring"
)

// life runs a session through events of all kinds and returns everything about it that a client or the program can
// notice. It calls between after each event, where other attachments may come and go.
func life(t *testing.T, policy protocol.SizePolicy, between func(t *testing.T, s *Session)) (noticed []string) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, protocol.SpawnSpec{Argv: []string{"sh"}, SizePolicy: policy})
		f := by(s)
		var v, w *viewer
		spec := protocol.AttachSpec{Writer: "v", Cols: 100, Rows: 40, Answers: true}
		for _, step := range []struct {
			name string
			do   func()
		}{
			{"the session begins", func() {}},
			{"a query before any viewer", func() { f.print([]byte("\x1b[c")) }},
			{"the session answers", func() { time.Sleep(claimTime); f.print([]byte("\x1b[c")) }},
			{"a size is set", func() { _ = s.Resize(sz(70, 30)) }},
			{"the first viewer attaches", func() { v = look(t, s, spec) }},
			{"a size is set again", func() { _ = s.Resize(sz(71, 31)) }},
			{"the second viewer attaches", func() { w = look(t, s, protocol.AttachSpec{Writer: "w", Cols: 60, Rows: 50, Answers: true}) }},
			{"the first viewer receives the query", func() { f.print([]byte("\x1b[c")); synctest.Wait(); _, _ = v.drain() }},
			{"the program requests focus reports", func() { f.print([]byte("\x1b[?1004h")) }},
			{"the second viewer sends input", func() { _ = w.a.Type(0, []byte("\x1b[Ix")) }},
			{"the first viewer is lost", func() { v.a.Close() }},
			{"the lost viewer still counts", func() { time.Sleep(reconnectTime / 2) }},
			{"the first viewer resumes", func() {
				spec.Resume = &protocol.Resume{Instance: s.Instance(), Offset: v.pos}
				v = look(t, s, spec)
			}},
			{"the second viewer is lost", func() { w.a.Close() }},
			{"the second viewer is forgotten", func() { time.Sleep(2 * reconnectTime) }},
			{"a size is set once more", func() { _ = s.Resize(sz(72, 32)) }},
			{"the size stays", func() { time.Sleep(2 * reconnectTime) }},
			{"the first viewer detaches", func() { v.a.Detach() }},
			{"the session answers again", func() { f.print([]byte("\x1b[c")) }},
			{"the session is idle", func() { time.Sleep(time.Minute) }},
			{"the session ends", func() { exits(by, s) }},
		} {
			step.do()
			synctest.Wait()
			if between != nil {
				between(t, s)
				synctest.Wait()
			}
			i, writers := info(t, s), 0
			s.do(func() { writers = s.input.journal.Known() })
			var sizes []protocol.Size
			f.change(func() { sizes = slices.Clone(f.sizes) })
			noticed = append(noticed, fmt.Sprintf("%s: %v %s, %d attachments, I/O at %v, %d writers; input %q, sizes %v",
				step.name, i.Size, i.State, i.Attachments, i.LastIOAt, writers, f.take(1<<10), sizes))
		}
		events, missed, err := tb.Events().Next(context.Background(), 0)
		if err != nil || missed > 0 {
			t.Fatalf("%d events missed, %v", missed, err)
		}
		for _, e := range events {
			noticed = append(noticed, fmt.Sprintf("%d %s: %v, %d attachments", e.Seq, e.Kind, e.Session.Size, e.Session.Attachments))
		}
	})
	return noticed
}

// Shadows attach and detach all the time, and the session, its program and its viewers notice no difference.
func TestShadow(t *testing.T) {
	for _, policy := range []protocol.SizePolicy{protocol.SizeLatest, protocol.SizeOwner, protocol.SizeSmallest, protocol.SizeLargest, protocol.SizeFixed} {
		t.Run(string(policy), func(t *testing.T) {
			n, seen := 0, 0
			shadow := func(t *testing.T, s *Session) {
				spec := protocol.AttachSpec{
					Mode: protocol.ModeReadOnly, Writer: "v", Attempt: 1 << 40, Steal: true, Answers: true,
					Cols: 33, Rows: 11, Appearance: &protocol.Appearance{Foreground: "#123456"},
				}
				for _, resume := range []*protocol.Resume{nil, {Instance: s.Instance()}} {
					spec.Resume = resume
					a, i, err := s.Shadow(t.Context(), spec)
					if err != nil {
						if s.Exit() == nil || resume != nil {
							t.Error(err)
						}
						continue
					}
					if i.Writer == "v" || i.InputOffset != 0 {
						t.Errorf("the shadow has the writer %s, with input accepted to %d", i.Writer, i.InputOffset)
					}
					if s.Exit() == nil {
						if err := a.Resize(sz(44, 22)); err != nil {
							t.Error(err)
						}
					}
					if err := a.Appear(protocol.Appearance{Background: "#654321"}); err != nil {
						t.Error(err)
					}
					wantCode(t, "input of a shadow", a.Type(0, []byte("x")), protocol.CodePermissionDenied)
					if i.SnapshotBytes > 0 || i.Session.OutputOffset > 0 {
						if _, err := a.Next(t.Context(), make([]byte, 1<<10)); err != nil {
							t.Error(err)
						}
						seen++
					}
					switch n++; n % 3 {
					case 0:
						a.Close()
					case 1:
						a.Detach()
						a.Close()
					default: // stays attached while others attach and detach
						t.Cleanup(a.Close)
					}
				}
			}
			want, got := life(t, policy, nil), life(t, policy, shadow)
			for i := range max(len(want), len(got)) {
				if g, w := at(got, i), at(want, i); g != w {
					t.Errorf("with shadows\n%s\nwithout\n%s", g, w)
					break
				}
			}
			if n < 30 || seen < 30 {
				t.Errorf("%d shadows attached, %d received output; that is too few to show anything", n, seen)
			}
		})
	}
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return "nothing"
}

// A shadow receives the same items as a viewer, up to the exit.
func TestShadowSees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		by(s).print([]byte("before\r\n\x1b[31mred"))
		synctest.Wait()
		spec := protocol.AttachSpec{Mode: protocol.ModeReadOnly, History: new(0)}
		viewer, viewerInfo, err := s.Attach(t.Context(), spec)
		testkit.Must(t, err)
		defer viewer.Close()
		shadow, info, err := s.Shadow(t.Context(), spec)
		testkit.Must(t, err)
		defer shadow.Close()
		if info.SnapshotBytes == 0 || info.SnapshotBytes != viewerInfo.SnapshotBytes || info.Offset != viewerInfo.Offset || info.Replay != viewerInfo.Replay {
			t.Errorf("a viewer's attach returned %+v, a shadow's %+v", viewerInfo, info)
		}
		by(s).print([]byte("after \x1b[c"))
		synctest.Wait()
		testkit.Must(t, s.Resize(sz(70, 30)))
		by(s).print([]byte("last"))
		exits(by, s)
		want, got := allOf(t, viewer), allOf(t, shadow)
		if !slices.Equal(got, want) || len(got) < 5 {
			t.Errorf("a shadow received\n%q, a viewer\n%q", got, want)
		}
	})
}

// A shadow that the ring has overtaken continues with output that the ring has, and receives no snapshot.
func TestShadowOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{RingBytes: ring.MinBytes})
		s := create(t, tb, bash(""))
		shadow, _, err := s.Shadow(t.Context(), protocol.AttachSpec{Mode: protocol.ModeReadOnly, Resume: &protocol.Resume{Instance: s.Instance()}})
		testkit.Must(t, err)
		defer shadow.Close()
		by(s).print(bytes.Repeat([]byte("x\n"), 2*ring.MinBytes))
		time.Sleep(time.Minute) // until the session has read all
		start, end, _ := s.ring.Bounds()
		buf := make([]byte, 1<<10)
		item, err := shadow.Next(t.Context(), buf)
		if err != nil || item.Kind != ItemResync || item.Bytes != 0 || item.Missed != item.Offset || item.Offset != start+(end-start)/2 {
			t.Errorf("the ring has %d to %d: %+v, %v", start, end, item, err)
		}
		from := item.Offset
		for _, kind := range []ItemKind{ItemResized, ItemOutput} {
			if item, err = shadow.Next(t.Context(), buf); err != nil || item.Kind != kind || kind == ItemOutput && item.Offset != from {
				t.Errorf("behind the gap: %+v, %v", item, err)
			}
		}
	})
}

// allOf returns the items that an attachment receives to its end.
func allOf(t *testing.T, a *Attachment) (all []string) {
	t.Helper()
	for buf := make([]byte, 64<<10); ; {
		item, err := a.Next(t.Context(), buf)
		if errors.Is(err, io.EOF) {
			return all
		}
		testkit.Must(t, err)
		all = append(all, fmt.Sprintf("%d %d %v %q", item.Kind, item.Offset, item.Size, item.Data))
	}
}

// A shadow is read-only, because it must not send input or resize. It counts as one of the attachments that a session
// may have.
func TestShadowLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, _ := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		for _, mode := range []protocol.Mode{"", protocol.ModeShared, protocol.ModeExclusive} {
			_, _, err := s.Shadow(t.Context(), protocol.AttachSpec{Mode: mode})
			wantCode(t, "a shadow that is "+string(mode), err, protocol.CodeInvalidArgument)
		}
		spec := protocol.AttachSpec{Mode: protocol.ModeReadOnly}
		for range maxAttachments {
			a, _, err := s.Shadow(t.Context(), spec)
			testkit.Must(t, err)
			defer a.Close()
		}
		_, _, err := s.Shadow(t.Context(), spec)
		wantCode(t, "a shadow above the limit", err, protocol.CodeLimitExceeded)
		_, _, err = s.Attach(t.Context(), spec)
		wantCode(t, "a viewer beside so many shadows", err, protocol.CodeLimitExceeded)
	})
}
