//go:build linux || darwin

package session

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"reflect"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// A viewer is a client that checks every item against the items before: it must receive each byte once and in order
// unless it is told how many were missed, and no item after the end. If it has a model of the output, it compares.
type viewer struct {
	a     *Attachment
	info  protocol.AttachInfo
	model *model // nil without a model
	buf   []byte

	resumes  bool
	own      protocol.Size  // the size of its window, if it wants its own view
	wants    bool           // whether it waits for a view of that size
	waits    bool           // whether its snapshot may be dropped before it has come
	terminal *screen.Screen // the terminal that shows its own view, or nil
	pos      uint64         // offset of the next byte
	left     int            // bytes of the snapshot that have not come yet
	from     uint64         // offset of the first byte that the snapshot stands for
	shot     []byte         // the part of the snapshot that has come
	want     []byte         // the snapshot that the model expects
	size     protocol.Size
	missed   uint64
	resyncs  int
	accepted uint64 // input that was acknowledged
	typed    uint64 // input that was sent, if the test counts it
	exited   bool
	stolen   bool
	by       string
	seen     []byte // all output and snapshots
	views    []byte // its own views
	sizes    []sizeAt
}

type sizeAt struct {
	offset uint64
	size   protocol.Size
}

// attach attaches to s. The reply to a resume must begin at the requested offset.
func attach(s *Session, spec protocol.AttachSpec, m *model) (*viewer, error) {
	a, info, err := s.Attach(context.Background(), spec)
	if err != nil {
		return nil, err
	}
	v := &viewer{
		a: a, info: info, model: m, buf: make([]byte, 64<<10), resumes: spec.Resume != nil,
		pos: info.Offset, left: info.SnapshotBytes, size: info.Session.Size,
		missed: info.BytesMissed, accepted: info.InputOffset,
	}
	if spec.Resume != nil {
		v.from = spec.Resume.Offset
	}
	v.wants = spec.View == protocol.ViewOwn
	if window, ok := spec.OwnSize(); ok {
		v.resized(window)
	}
	v.from += info.BytesMissed
	if err := v.begins(false); err != nil {
		a.Close()
		return nil, err
	}
	if exact := info.Replay == protocol.ReplayExact; exact && (info.BytesMissed != 0 || info.SnapshotBytes != 0 || v.from != v.pos) {
		a.Close()
		return nil, fmt.Errorf("an exact answer with %d missed and %d of snapshot", info.BytesMissed, info.SnapshotBytes)
	}
	return v, nil
}

// resized changes the size of the viewer's window. Items that wait already are for the size before.
func (v *viewer) resized(window protocol.Size) {
	if v.wants {
		v.own = window
	}
}

// resume returns the position at which the viewer can resume, and whether it needs a snapshot.
func (v *viewer) resume() (at *protocol.Resume, snapshot bool) {
	return &protocol.Resume{Instance: v.info.Session.Instance, Offset: v.pos}, v.left > 0 || v.terminal != nil
}

// take receives the next item and checks it. It returns io.EOF at the end, and ctx's error if no item comes.
func (v *viewer) take(ctx context.Context) (Item, error) {
	item, err := v.a.Next(ctx, v.buf)
	if err == nil {
		err = v.check(item)
	}
	return item, err
}

func (v *viewer) check(item Item) error {
	if v.exited || v.stolen {
		return fmt.Errorf("item %d after the end", item.Kind)
	}
	switch item.Kind {
	case ItemAccepted:
		if item.Offset <= v.accepted {
			return fmt.Errorf("%d bytes are acknowledged, after %d", item.Offset, v.accepted)
		}
		v.accepted = item.Offset
	case ItemStolen:
		v.stolen, v.by = true, item.By
	case ItemSnapshot:
		return v.snapshot(item)
	case ItemResized:
		if v.own != (protocol.Size{}) {
			return fmt.Errorf("received the size %v, although it has its own view", item.Size)
		}
		if item.Size == v.size && !v.mayRepeat() {
			return fmt.Errorf("received the size %v at %d again", item.Size, v.pos)
		}
		v.size = item.Size
		v.sizes = append(v.sizes, sizeAt{v.pos, v.size})
	case ItemResync:
		return v.resync(item)
	case ItemOutput:
		return v.output(item)
	case ItemView:
		return v.view(item)
	case ItemExited:
		v.exited = true
		if v.left != 0 {
			return fmt.Errorf("exited with %d bytes of snapshot to come", v.left)
		}
	}
	return nil
}

// mayRepeat reports whether a size may be repeated. A resumed viewer receives the size once more, because its client
// may not have received it before the connection was lost.
func (v *viewer) mayRepeat() bool { return v.resumes && len(v.sizes) == 0 }

// begins is called if a snapshot is announced. The snapshot must stand for an offset behind the missed bytes, unless the screen
// is behind, which it never is with a model.
func (v *viewer) begins(screenOnly bool) error {
	if v.from > v.pos && v.model != nil {
		return fmt.Errorf("missed up to %d, but the snapshot is for %d", v.from, v.pos)
	}
	v.shot, v.want, v.terminal = nil, nil, nil
	if v.own != (protocol.Size{}) {
		v.size = v.own
	}
	if v.model != nil && (v.resyncs > 0 || v.info.Replay == protocol.ReplaySnapshot) {
		var err error
		history := protocol.DefaultHistory
		if screenOnly {
			history = 0
		}
		if v.want, err = v.model.snapshot(v.pos, v.own, history); err != nil {
			return err
		}
		if v.own != (protocol.Size{}) && v.own != v.model.sizes[v.model.sized-1].size {
			v.terminal = screen.New(v.own, 0)
		}
	}
	if v.left == 0 {
		return v.shown()
	}
	return nil
}

func (v *viewer) snapshot(item Item) error {
	if len(item.Data) == 0 || len(item.Data) > v.left || item.Offset != v.pos {
		return fmt.Errorf("%d bytes of snapshot for %d, want at most %d for %d", len(item.Data), item.Offset, v.left, v.pos)
	}
	v.shot = append(v.shot, item.Data...)
	v.seen = append(v.seen, item.Data...)
	if v.terminal != nil {
		v.terminal.Write(item.Data)
	}
	if v.left -= len(item.Data); v.left == 0 {
		return v.shown()
	}
	return nil
}

// shown is called if a snapshot is complete.
func (v *viewer) shown() error {
	if v.model != nil && !bytes.Equal(v.shot, v.want) {
		return fmt.Errorf("a snapshot of %d bytes for %d, want other %d", len(v.shot), v.pos, len(v.want))
	}
	return nil
}

// view handles the next part of the viewer's own view. If the view is complete, its terminal must show the same as
// the model's at that size.
func (v *viewer) view(item Item) error {
	if v.terminal == nil || v.left != 0 || item.Offset < v.pos {
		return fmt.Errorf("a view for %d at %d, %d of snapshot to come; has a view: %v", item.Offset, v.pos, v.left, v.terminal != nil)
	}
	v.pos = item.Offset
	v.terminal.Write(item.Data)
	v.views = append(v.views, item.Data...)
	if len(v.a.viewUpdate) > 0 {
		return nil
	}
	want, err := v.model.snapshot(v.pos, v.own, 0)
	if err != nil {
		return err
	}
	model := screen.New(v.own, 0)
	model.Write(want)
	if got, want := shownBy(v.terminal), shownBy(model); !reflect.DeepEqual(got, want) {
		return fmt.Errorf("at %d its view of %v is\n%+v, want\n%+v", v.pos, v.own, got, want)
	}
	return nil
}

// shownBy returns the content of a screen.
func shownBy(s *screen.Screen) protocol.ScreenContent {
	c, _ := s.View(0).Content(protocol.ScreenSpec{Format: protocol.ScreenCells})
	c.Offset = 0
	if len(c.Cells) > 0 {
		c.Cells[0].Wrapped = false // a snapshot cannot tell that the first line continues a forgotten one
	}
	return c
}

func (v *viewer) resync(item Item) error {
	if !v.wants && (v.left == 0 && item.Missed == 0 || v.left != 0 && !v.waits) {
		return fmt.Errorf("resync at %d with %d missed; %d of the last snapshot are to come", v.pos, item.Missed, v.left)
	}
	if item.ScreenOnly != (item.Missed == 0 && v.left == 0) {
		return fmt.Errorf("resync at %d with %d missed and %d of snapshot to come; screen only: %v", v.pos, item.Missed, v.left, item.ScreenOnly)
	}
	v.resyncs++
	v.missed += item.Missed
	v.from, v.pos, v.left = v.pos+item.Missed, item.Offset, item.Bytes
	if err := v.begins(item.ScreenOnly); err != nil {
		return err
	}
	if shown := v.terminal != nil; v.model != nil && shown != item.View {
		return fmt.Errorf("resync at %d: has a view: %v, the item says %v", v.pos, shown, item.View)
	}
	return nil
}

func (v *viewer) output(item Item) error {
	if item.Offset != v.pos || len(item.Data) == 0 || v.left != 0 {
		return fmt.Errorf("%d bytes at %d, want some at %d after %d of snapshot", len(item.Data), item.Offset, v.pos, v.left)
	}
	v.pos += uint64(len(item.Data))
	v.seen = append(v.seen, item.Data...)
	if v.model == nil {
		return nil
	}
	if err := v.model.checkSize(item.Offset, v.pos, v.size); err != nil {
		return err
	}
	return v.model.checkBytes(item.Offset, item.Data)
}

// drain reads until no item is available, and reports whether the end has come.
func (v *viewer) drain() (over bool, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		_, err := v.take(ctx)
		switch err {
		case nil:
		case io.EOF:
			return true, nil
		case context.Canceled:
			return false, nil
		default:
			return false, err
		}
	}
}

// poll reads without a pause until the end.
func (v *viewer) poll() error {
	for {
		if over, err := v.drain(); over || err != nil {
			return err
		}
	}
}

// model is the plain model of a session's output: all bytes in one slice, and each size with its offset.
type model struct {
	printed []byte
	sizes   []sizeAt

	lines  int            // lines of history; 0 means the default
	screen *screen.Screen // the screen after a prefix of printed and sizes
	sized  int
}

// snapshot returns the snapshot of a screen that has received every byte before offset, each at its size.
func (m *model) snapshot(offset uint64, own protocol.Size, history int) ([]byte, error) {
	if offset > uint64(len(m.printed)) {
		return nil, fmt.Errorf("a snapshot for %d, only %d were printed", offset, len(m.printed))
	}
	if m.screen == nil || m.screen.Offset() > offset {
		m.screen, m.sized = screen.New(m.sizes[0].size, cmp.Or(m.lines, 10_000)), 1
	}
	for _, s := range m.sizes[m.sized:] {
		if s.offset > offset {
			break
		}
		m.screen.Write(m.printed[m.screen.Offset():s.offset])
		m.screen.Resize(s.size)
		m.sized++
	}
	m.screen.Write(m.printed[m.screen.Offset():offset])
	want, _ := m.screen.Snapshot(history, own, nil)
	return want, nil
}

func (m *model) checkBytes(from uint64, data []byte) error {
	end := from + uint64(len(data))
	if end > uint64(len(m.printed)) {
		return fmt.Errorf("bytes up to %d, only %d were printed", end, len(m.printed))
	}
	if want := m.printed[from:end]; !bytes.Equal(data, want) {
		i := 0
		for data[i] == want[i] {
			i++
		}
		return fmt.Errorf("byte %d is %#x, %#x was printed", from+uint64(i), data[i], want[i])
	}
	return nil
}

// checkSize checks that all of [from, end) was printed at one size, and that
// the viewer knows it.
func (m *model) checkSize(from, end uint64, known protocol.Size) error {
	for i, s := range m.sizes {
		first, last := max(from, s.offset), end
		if i+1 < len(m.sizes) {
			last = min(end, m.sizes[i+1].offset)
		}
		if first < last && s.size != known {
			return fmt.Errorf("[%d, %d) was printed at %v, but the viewer knows %v", first, last, s.size, known)
		}
	}
	return nil
}
