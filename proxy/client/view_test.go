package client

import (
	"slices"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/shared/testkit"
)

// own returns an attachment with its own view of 80 by 24, and its peer, which has sent a snapshot and a view.
func own(t *testing.T) (*fake, *Attachment, *peer) {
	t.Helper()
	f, c, _ := dialed(t)
	info := exact(50)
	info.Replay, info.SnapshotBytes = protocol.ReplaySnapshot, 4
	a, p, _ := attached(t, f, c, AttachOptions{Cols: 80, Rows: 24, View: protocol.ViewOwn}, info)
	p.output(frame.Snapshot, 50, "snap")
	p.output(frame.View, 60, "view")
	return f, a, p
}

// resumed accepts the next connection's attach, and replies with output from offset.
func resumed(f *fake, offset uint64) (*peer, *api.Attach) {
	f.t.Helper()
	p := f.accept()
	m := want[*api.Attach](p)
	p.answer(m, &api.Attached{Attachment: number, AttachInfo: exact(offset)})
	return p, m
}

// A view has an offset, and can be resumed by a snapshot only. After a resync with output the attachment resumes by
// output again.
func TestView(t *testing.T) {
	f, a, p := own(t)
	equal(t, "message", *receive(t, a), Message{Kind: Snapshot, Offset: 50, Data: []byte("snap")})
	equal(t, "message", *receive(t, a), Message{Kind: View, Offset: 60, Data: []byte("view")})
	equal(t, "position", a.Position(), protocol.Resume{Instance: "i", Offset: 60})
	_ = p.Close()
	p = f.accept()
	m := want[*api.Attach](p)
	if !m.Snapshot || m.Resume.Offset != 60 || m.View != protocol.ViewOwn {
		t.Errorf("the resume is %+v %+v", m.AttachSpec, m.Resume)
	}
	info := exact(70)
	info.Replay, info.SnapshotBytes = protocol.ReplaySnapshot, 3
	p.answer(m, &api.Attached{Attachment: number, AttachInfo: info})
	p.output(frame.Snapshot, 70, "new")
	p.output(frame.View, 71, "v")
	p.send(api.Resync{Attachment: number, Offset: 80, ScreenOnly: true})
	p.output(frame.Output, 80, "out")
	for _, want := range []Message{
		{Kind: Missed, Offset: 70, ScreenOnly: true}, {Kind: Snapshot, Offset: 70, Data: []byte("new")}, {Kind: View, Offset: 71, Data: []byte("v")},
		{Kind: Missed, Offset: 80, ScreenOnly: true}, {Kind: Output, Offset: 80, Data: []byte("out")},
	} {
		equal(t, "message", *receive(t, a), want)
	}
	_ = p.Close()
	if _, m := resumed(f, 83); m.Snapshot || m.Resume.Offset != 83 {
		t.Errorf("the resume is %+v %+v", m.AttachSpec, m.Resume)
	}
}

// Read returns bytes for a terminal, with a reset before each snapshot but the first.
func TestReadView(t *testing.T) {
	_, a, p := own(t)
	p.send(api.Resync{Attachment: number, Offset: 80, SnapshotBytes: 3})
	p.output(frame.Snapshot, 80, "new")
	p.output(frame.Output, 80, "out")
	const want = "snapview\x1bcnewout"
	equal(t, "read", readFull(t, a, len(want)), want)
	equal(t, "position", a.Position().Offset, uint64(83))
	equal(t, "missed", a.Missed(), uint64(0))
}

// A viewer that has drawn over its screen while there is no connection gets a snapshot. Its call to Repaint may come before
// the next attach is sent or before that is answered.
func TestRepaintWhileAway(t *testing.T) {
	snapshot := exact(0)
	snapshot.Replay, snapshot.SnapshotBytes = protocol.ReplaySnapshot, 4
	missed := Message{Kind: Missed, ScreenOnly: true}
	painted := Message{Kind: Snapshot, Data: []byte("snap")}
	// repaints answers the next attach, which must ask for a snapshot, and returns its peer.
	repaints := func(t *testing.T, f *fake, a *Attachment) *peer {
		t.Helper()
		p := f.accept()
		m := want[*api.Attach](p)
		if !m.Snapshot || !m.ScreenOnly {
			t.Errorf("the attach after Repaint is %+v", m.AttachSpec)
		}
		p.answer(m, &api.Attached{Attachment: number, AttachInfo: snapshot})
		p.output(frame.Snapshot, 0, "snap")
		equal(t, "message", *receive(t, a), missed)
		equal(t, "message", *receive(t, a), painted)
		return p
	}

	t.Run("before the answer", func(t *testing.T) {
		f, a, p := view(t)
		_ = p.Close()
		p = f.accept()
		m := want[*api.Attach](p)
		if m.Snapshot {
			t.Errorf("the first resume is %+v", m.AttachSpec)
		}
		a.Repaint()
		p.answer(m, &api.Attached{Attachment: number, AttachInfo: exact(0)})
		_ = repaints(t, f, a).Close()
		if _, m := resumed(f, 0); m.Snapshot { // the snapshot has repainted the screen, once
			t.Errorf("the last resume is %+v", m.AttachSpec)
		}
	})

	t.Run("before an answer with a snapshot", func(t *testing.T) {
		f, a, p := view(t)
		_ = p.Close()
		p = f.accept()
		m := want[*api.Attach](p)
		a.Repaint()
		lost := snapshot // the ring has overwritten the missing output
		lost.BytesMissed = 9
		p.answer(m, &api.Attached{Attachment: number, AttachInfo: lost})
		p.output(frame.Snapshot, 0, "snap")
		equal(t, "message", *receive(t, a), Message{Kind: Missed, Missed: 9})
		equal(t, "message", *receive(t, a), painted)
		if _, err := a.Write([]byte("x")); err != nil { // the same connection is used, because a second snapshot is of no use
			t.Fatal(err)
		}
		p.wantInput(0, "x")
	})

	t.Run("before a second attempt", func(t *testing.T) {
		f, a, p := view(t)
		_ = p.Close()
		p = f.accept()
		m := want[*api.Attach](p)
		a.Repaint()
		p.answer(m, &api.Error{Error: unreachable})
		repaints(t, f, a)
	})
}

// Changes of size and appearance are sent once, in order with the input. The next attach has them, and those that the
// last connection has not delivered are sent again.
func TestTerminalIsTold(t *testing.T) {
	f, a, p := own(t)
	n := uint32(number)
	dark, light := protocol.Appearance{Background: "#000000"}, protocol.Appearance{Background: "#ffffff", CellWidth: 9}
	wantErr(t, "no size", a.Resize(-5, 24), &protocol.Error{Code: protocol.CodeInvalidArgument})
	wantErr(t, "no colour", a.SetAppearance(protocol.Appearance{Background: "black"}), &protocol.Error{Code: protocol.CodeInvalidArgument})
	testkit.Must(t, a.SetAppearance(dark))
	if _, err := a.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, a.Resize(90, 30))
	equal(t, "appearance", *want[*api.Appearance](p), api.Appearance{Attachment: number, Appearance: dark})
	p.wantInput(0, "x")
	equal(t, "size", *want[*api.Resize](p), api.Resize{Request: protocol.Request{RequestID: "size-1"}, Attachment: &n, Cols: 90, Rows: 30})

	// The connection is lost, and the next attach was not answered yet.
	_ = p.Close()
	p = f.accept()
	m := want[*api.Attach](p)
	if m.Cols != 90 || m.Rows != 30 || *m.Appearance != dark || !m.Snapshot {
		t.Errorf("the resume is %+v", m.AttachSpec)
	}
	for _, size := range []int{100, 110} {
		testkit.Must(t, a.Resize(size, 0))
	}
	testkit.Must(t, a.SetAppearance(light))
	p.answer(m, &api.Attached{Attachment: number, AttachInfo: exact(60)})
	equal(t, "size", *want[*api.Resize](p), api.Resize{Request: protocol.Request{RequestID: "size-2"}, Attachment: &n, Cols: 110})
	equal(t, "appearance", *want[*api.Appearance](p), api.Appearance{Attachment: number, Appearance: light})
	p.wantInput(0, "x")
	_ = p.Close()
	// The client has not received a view of its new size.
	if p, m = resumed(f, 60); m.Cols != 110 || m.Rows != 24 || *m.Appearance != light || !m.Snapshot {
		t.Errorf("the resume is %+v", m.AttachSpec)
	}
	want[*api.Resize](p)
	p.wantInput(0, "x")
}

// A size that the proxy has not confirmed when the connection is lost is sent again over the next one. An attach that
// resumes would not change the size of the session.
func TestSizeIsSentAgain(t *testing.T) {
	f, a, p := view(t)
	n := uint32(number)
	testkit.Must(t, a.Resize(90, 30))
	for _, id := range []string{"size-1", "size-2"} {
		equal(t, "size", *want[*api.Resize](p), api.Resize{Request: protocol.Request{RequestID: id}, Attachment: &n, Cols: 90, Rows: 30})
		if id == "size-2" {
			p.send(api.OK{Request: protocol.Request{RequestID: id}})
			p.output(frame.Output, 0, "abc")
			equal(t, "read", readFull(t, a, 3), "abc")
			if _, err := a.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			p.wantInput(0, "x")
		}
		_ = p.Close()
		p = f.accept()
		m := want[*api.Attach](p)
		p.answer(m, &api.Attached{Attachment: number, AttachInfo: exact(m.Resume.Offset)})
	}
	p.wantInput(0, "x") // no size comes before it
}

// An error about a line that is too long is returned, and does not end the attachment.
func TestWarned(t *testing.T) {
	_, a, p := view(t)
	e := protocol.Error{Code: protocol.CodeLineTooLong, Message: "m", Offset: new(uint64(5000))}
	p.send(api.Error{Attachment: new(uint32(number)), Error: e})
	p.output(frame.Output, 0, "abc")
	equal(t, "message", *receive(t, a), Message{Kind: Warned, Err: &e})
	equal(t, "message", *receive(t, a), Message{Kind: Output, Data: []byte("abc")})
	p.send(api.Error{Attachment: new(uint32(number)), Error: e})
	p.output(frame.Output, 3, "def")
	equal(t, "read", readFull(t, a, 3), "def")
}

// Type sends all input, even if a line is too long, and returns that error afterwards.
func TestTypeLineTooLong(t *testing.T) {
	_, c, p := dialed(t)
	data := []byte(strings.Repeat("x", 300_000))
	wait := startErr(t, func() error { return c.Type(t.Context(), "s", data) })
	first := want[*api.Input](p)
	p.answer(first, &api.Error{Error: protocol.Error{Code: protocol.CodeLineTooLong, Message: "first", Offset: new(uint64(len(first.Data)))}})
	rest := want[*api.Input](p)
	equal(t, "offset", rest.Offset, uint64(len(first.Data)))
	equal(t, "all", len(first.Data)+len(rest.Data), len(data))
	p.answer(rest, &api.Error{Error: protocol.Error{Code: protocol.CodeLineTooLong, Message: "second"}})
	err := wait()
	if e := protocol.AsError(err); e.Code != protocol.CodeLineTooLong || e.Message != "first" {
		t.Errorf("got %v, want the first line too long", err)
	}
}

// Exactly the input that was not acknowledged is sent again, from the offset that the session names.
func TestInputAfterResume(t *testing.T) {
	for _, tt := range []struct {
		name               string
		acked, inputOffset uint64
		at                 uint64
		again              string // "" if no input is sent again
	}{
		{"no input was accepted", 0, 0, 0, "abcdef"},
		{"one byte was accepted", 0, 1, 1, "bcdef"},
		{"all but one byte", 0, 5, 5, "f"},
		{"all of it", 0, 6, 0, ""},
		{"as acknowledged", 4, 4, 4, "ef"},
		{"more than acknowledged", 4, 5, 5, "f"},
		{"all, as acknowledged", 6, 6, 0, ""},
		{"the writer is forgotten", 4, 0, 0, "ef"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, a, p := view(t)
			for _, s := range []string{"abc", "def"} {
				if _, err := a.Write([]byte(s)); err != nil {
					t.Fatal(err)
				}
			}
			p.wantInput(0, "abc")
			p.wantInput(3, "def")
			if tt.acked > 0 {
				p.send(api.Accepted{Attachment: new(uint32(number)), Offset: tt.acked})
			}
			p.output(frame.Output, 0, "x") // output shows that the session has received the input before
			receive(t, a)
			_ = p.Close()
			p = f.accept()
			info := exact(1)
			info.InputOffset = tt.inputOffset
			p.answer(want[*api.Attach](p), &api.Attached{Attachment: number, AttachInfo: info})
			if tt.again != "" {
				p.wantInput(tt.at, tt.again)
			}
			end := tt.inputOffset + uint64(len(tt.again))
			p.output(frame.Output, 1, "y")
			receive(t, a)
			if _, err := a.Write([]byte("new")); err != nil {
				t.Fatal(err)
			}
			p.wantInput(end, "new")
		})
	}
}

func TestSizePolicy(t *testing.T) {
	_, c, p := dialed(t)
	wait := startErr(t, func() error { return c.SetSizePolicy(t.Context(), "s", protocol.SizeFixed, 90, 30) })
	m := want[*api.SizePolicy](p)
	equal(t, "asked", *m, api.SizePolicy{Request: m.Request, SessionID: "s", Policy: protocol.SizeFixed, Cols: 90, Rows: 30})
	p.answer(m, &api.OK{})
	if err := wait(); err != nil {
		t.Error(err)
	}
}

func TestRename(t *testing.T) {
	_, c, p := dialed(t)
	wait := start(t, func() (*protocol.SessionInfo, error) { return c.Rename(t.Context(), "s", "mine") })
	m := want[*api.Rename](p)
	equal(t, "asked", *m, api.Rename{Request: m.Request, SessionID: "s", Title: "mine"})
	p.answer(m, &api.Session{Session: protocol.SessionInfo{ID: "s"}})
	if info, err := wait(); err != nil || info.ID != "s" {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestHistory(t *testing.T) {
	_, c, p := dialed(t)
	wait := start(t, func() (*protocol.HistoryContent, error) {
		return c.History(t.Context(), "s", HistoryOptions{Before: new(uint64(9)), Lines: 2})
	})
	m := want[*api.History](p)
	equal(t, "asked", m.HistorySpec, protocol.HistorySpec{SessionID: "s", Before: new(uint64(9)), Lines: 2})
	content := protocol.HistoryContent{
		Instance: "i", Lines: []protocol.HistoryLine{{Line: 8, Spans: []protocol.Span{{Text: "x"}}}}, Looks: []protocol.Look{{}}, More: true,
	}
	p.answer(m, &api.HistoryContent{HistoryContent: content})
	got, err := wait()
	testkit.Must(t, err)
	equal(t, "history", *got, content)
}

// A search continues over several replies, some of them without a match, until it has the requested number.
func TestSearch(t *testing.T) {
	match := func(line uint64) protocol.Match {
		return protocol.Match{Line: line, Text: "x", Ranges: []protocol.Range{}}
	}
	content := func(before uint64, more bool, lines ...uint64) protocol.SearchContent {
		s := protocol.SearchContent{Instance: "i", Before: before, More: more, Matches: []protocol.Match{}}
		for _, l := range lines {
			s.Matches = append(s.Matches, match(l))
		}
		return s
	}
	other := content(0, false, 1)
	other.Instance = "other"
	for _, tt := range []struct {
		name    string
		o       SearchOptions
		answers []protocol.SearchContent
		limits  []int
		want    []uint64
		err     error
	}{
		{"one reply", SearchOptions{}, []protocol.SearchContent{content(0, false, 9, 5)}, []int{1000}, []uint64{9, 5}, nil},
		{"nothing", SearchOptions{}, []protocol.SearchContent{content(0, false)}, []int{1000}, nil, nil},
		{"several", SearchOptions{Before: new(uint64(20))}, []protocol.SearchContent{content(10, true, 12), content(5, true), content(0, false, 2)},
			[]int{1000, 1000, 1000}, []uint64{12, 2}, nil},
		{"so many", SearchOptions{Limit: 3}, []protocol.SearchContent{content(10, true, 12, 11), content(5, true, 9)}, []int{3, 1}, []uint64{12, 11, 9}, nil},
		{"very many", SearchOptions{Limit: 5000}, []protocol.SearchContent{content(0, false, 1)}, []int{1000}, []uint64{1}, nil},
		{"started again", SearchOptions{}, []protocol.SearchContent{content(10, true, 12), other}, []int{1000, 1000}, []uint64{12}, &protocol.Error{Code: protocol.CodeInstanceMismatch}},
		{"for ever", SearchOptions{}, []protocol.SearchContent{content(10, true), content(10, true)}, []int{1000, 1000}, nil, ErrDecode},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, c, p := dialed(t)
			tt.o.Pattern, tt.o.IgnoreCase = "x", true
			var got []uint64
			wait := startErr(t, func() error {
				for m, err := range c.Search(t.Context(), "s", tt.o) {
					if err != nil {
						return err
					}
					got = append(got, m.Line)
				}
				return nil
			})
			before := tt.o.Before
			for i, s := range tt.answers {
				m := want[*api.Search](p)
				equal(t, "asked", m.SearchSpec, protocol.SearchSpec{SessionID: "s", Pattern: "x", IgnoreCase: true, Before: before, Limit: tt.limits[i]})
				p.answer(m, &api.SearchContent{SearchContent: s})
				before = &s.Before
			}
			err := wait()
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if tt.err == nil && err != nil || tt.err != nil {
				wantErr(t, "search", err, tt.err)
			}
		})
	}
	// A caller that stops the iteration causes no further request.
	_, c, p := dialed(t)
	wait := startErr(t, func() error {
		for _, err := range c.Search(t.Context(), "s", SearchOptions{Pattern: "x"}) {
			return err
		}
		return nil
	})
	p.answer(want[*api.Search](p), &api.SearchContent{SearchContent: content(10, true, 12)})
	if err := wait(); err != nil {
		t.Error(err)
	}
}
