//go:build unix

package session

import (
	"strings"
	"testing"
	"testing/synctest"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// received returns what a viewer receives until it waits: output, snapshots, and the number of times that
// it has to begin again.
func received(t *testing.T, a *Attachment) (output, snapshot string, resyncs int) {
	t.Helper()
	buf := make([]byte, 64<<10)
	for {
		item, ok, err := a.poll(buf)
		switch {
		case err != nil:
			t.Fatal(err)
		case !ok:
			return output, snapshot, resyncs
		case item.Kind == ItemOutput:
			output += string(item.Data)
		case item.Kind == ItemSnapshot:
			snapshot += string(item.Data)
		case item.Kind == ItemResync:
			resyncs++
		}
	}
}

const redSquare = "\x1bP0;1q\"1;1;20;40#1;2;100;0;0#1!20~-!20~\x1b\\"

func sixels(width float64) *protocol.Appearance {
	return &protocol.Appearance{Pictures: protocol.Pictures{Sixel: true, CellWidth: width, CellHeight: 20}}
}

// A viewer receives the bytes of a picture only if its terminal shows it as the session's screen does. Every other
// viewer begins again with a snapshot, because its cursor has not moved; the snapshot has the picture if
// the viewer can show it.
func TestPicturesOfViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		names := []string{"the decider", "the same cells", "no terminal", "no pictures", "other cells", "another form"}
		looks := []*protocol.Appearance{
			sixels(10), sixels(10), nil, {Foreground: "#ffffff"}, sixels(5), {Pictures: protocol.Pictures{Kitty: true, CellWidth: 10, CellHeight: 20}},
		}
		viewers := make([]*Attachment, len(names))
		for i, look := range looks {
			a, _, err := s.Attach(t.Context(), protocol.AttachSpec{Appearance: look})
			testkit.Must(t, err)
			defer a.Close()
			viewers[i] = a
			received(t, a)
		}
		show(by(s), redSquare+"\r\nbeside")
		nul := "\x1bP0;1q" + strings.Repeat("\x00", strings.Index(redSquare, "\x1b\\")-6) + "\x1b\\\r\nbeside"
		for i, want := range []struct {
			output  string
			resyncs int
			picture string
		}{
			{redSquare + "\r\nbeside", 0, ""}, {redSquare + "\r\nbeside", 0, ""}, {redSquare + "\r\nbeside", 0, ""},
			{nul, 1, ""}, {nul, 1, "\x1bP0;1q\"1;1;10;40"}, {nul, 1, "\x1b_Ga=T,q=2,C=1,f=100,m=0;"},
		} {
			output, snapshot, resyncs := received(t, viewers[i])
			// The snapshot may overtake the output.
			if output != want.output && !(want.resyncs == 1 && output == "") || resyncs != want.resyncs {
				t.Errorf("%s: output %q and %d resyncs, want %q and %d", names[i], output, resyncs, want.output, want.resyncs)
			}
			hasPicture := strings.Contains(snapshot, "\x1bP0") || strings.Contains(snapshot, "\x1b_G") || strings.Contains(snapshot, "\x1b]1337")
			if hasPicture != (want.picture != "") || !strings.Contains(snapshot, want.picture) {
				t.Errorf("%s: the snapshot is %q, want %q in it", names[i], snapshot, want.picture)
			}
		}
		// Many pictures cause one snapshot a second.
		for range 20 {
			show(by(s), redSquare)
		}
		if _, _, resyncs := received(t, viewers[3]); resyncs > 1 {
			t.Errorf("%d resyncs within a second", resyncs)
		}
		synctest.Wait()
	})
}

// A viewer that tells later which pictures it shows receives those that are on the screen. The session answers for
// it when it has left, and its view of another size has the pictures, too.
func TestPicturesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		a, _, err := s.Attach(t.Context(), protocol.AttachSpec{Cols: 80, Rows: 24, Answers: true, View: protocol.ViewOwn, Appearance: &protocol.Appearance{}})
		testkit.Must(t, err)
		show(by(s), redSquare)
		received(t, a)
		testkit.Must(t, a.Appear(*sixels(10)))
		if _, snapshot, resyncs := received(t, a); resyncs != 1 || !strings.Contains(snapshot, redSquare) {
			t.Errorf("%d resyncs, snapshot %q", resyncs, snapshot)
		}
		other, _, err := s.Attach(t.Context(), protocol.AttachSpec{Cols: 60, Rows: 20, View: protocol.ViewOwn, Mode: protocol.ModeReadOnly, Appearance: sixels(10)})
		testkit.Must(t, err)
		if _, snapshot, _ := received(t, other); !strings.Contains(snapshot, redSquare) {
			t.Errorf("a view of another size begins with %q", snapshot)
		}
		other.Close()
		a.Close()
		show(by(s), "\x1b[c\x1b[?2;4S\x1b_Ga=q,i=1,s=1,v=1;AAAA\x1b\\")
		if got, want := typedBy(by(s)), "\x1b[?62;4;9;22c\x1b[?2;0;4096;4096S"; got != want {
			t.Errorf("the session answered with %q, want %q", got, want)
		}
	})
}

// An inline image without the size of its file is ignored by some terminals that show inline images. Such a viewer begins again
// with a snapshot, in which the image has its size. A viewer without an appearance, such as a recorder, keeps the program's bytes,
// because a snapshot for it has no pictures.
func TestPictureWithoutSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		a, _, err := s.Attach(t.Context(), protocol.AttachSpec{Appearance: &protocol.Appearance{Pictures: protocol.Pictures{ITerm2: true, CellWidth: 10, CellHeight: 20}}})
		testkit.Must(t, err)
		defer a.Close()
		recorder, _, err := s.Attach(t.Context(), protocol.AttachSpec{Mode: protocol.ModeReadOnly})
		testkit.Must(t, err)
		defer recorder.Close()
		received(t, a)
		received(t, recorder)
		const file = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==" // of 1 pixel
		const image = "\x1b]1337;File=width=30px;height=20px;preserveAspectRatio=0;inline=1:" + file + "\a"
		show(by(s), image)
		_, snapshot, resyncs := received(t, a)
		if want := "size=70;width=30px;height=20px:" + file; resyncs != 1 || !strings.Contains(snapshot, want) {
			t.Errorf("%d resyncs, snapshot %q, want %q in it", resyncs, snapshot, want)
		}
		if output, _, resyncs := received(t, recorder); resyncs != 0 || output != image {
			t.Errorf("without an appearance: output %q and %d resyncs, want the image and none", output, resyncs)
		}
	})
}
