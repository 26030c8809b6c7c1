package session

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"holdfast/protocol"
)

// A viewer is a client that believes nothing. It checks every item against
// those before: each byte once and in order unless told how many were missed,
// nothing after the end. Where it has a model of what was printed, it compares.
type viewer struct {
	a     *Attachment
	info  protocol.AttachInfo
	model *model // nil where there is none
	buf   []byte

	resumes  bool
	pos      uint64 // of the next byte
	left     int    // bytes of the snapshot to come
	size     protocol.Size
	missed   uint64
	resyncs  int
	accepted uint64 // as told
	exited   bool
	stolen   bool
	by       string
	seen     []byte // all output and snapshots
	sizes    []sizeAt
}

type sizeAt struct {
	offset uint64
	size   protocol.Size
}

// attach attaches to s. An answer to a resume has to begin where asked.
func attach(s *Session, spec protocol.AttachSpec, m *model) (*viewer, error) {
	a, info, err := s.Attach(spec)
	if err != nil {
		return nil, err
	}
	v := &viewer{
		a: a, info: info, model: m, buf: make([]byte, 64<<10), resumes: spec.Resume != nil,
		pos: info.Offset, left: info.SnapshotBytes, size: info.Session.Size,
		missed: info.BytesMissed, accepted: info.InputOffset,
	}
	var from uint64
	if spec.Resume != nil {
		from = spec.Resume.Offset
	}
	if want := from + info.BytesMissed + uint64(info.SnapshotBytes); info.Offset != want {
		a.Close()
		return nil, fmt.Errorf("attached at %d, want %d: from %d, %d missed, %d in the snapshot",
			info.Offset, want, from, info.BytesMissed, info.SnapshotBytes)
	}
	if exact := info.Replay == protocol.ReplayExact; exact && (info.BytesMissed != 0 || info.SnapshotBytes != 0) {
		a.Close()
		return nil, fmt.Errorf("an exact answer with %d missed and %d of snapshot", info.BytesMissed, info.SnapshotBytes)
	}
	return v, nil
}

// take takes the next item and checks it. It returns io.EOF at the end, and
// ctx's error where nothing comes.
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
			return fmt.Errorf("told that %d is accepted, after %d", item.Offset, v.accepted)
		}
		v.accepted = item.Offset
	case ItemStolen:
		v.stolen, v.by = true, item.By
	case ItemSnapshot:
		return v.snapshot(item)
	case ItemResized:
		if item.Size == v.size && !v.mayRepeat() {
			return fmt.Errorf("told %v at %d, which it was", item.Size, v.pos)
		}
		v.size = item.Size
		v.sizes = append(v.sizes, sizeAt{v.pos, v.size})
	case ItemResync:
		return v.resync(item)
	case ItemOutput:
		return v.output(item)
	case ItemExited:
		v.exited = true
		if v.left != 0 {
			return fmt.Errorf("exited with %d bytes of snapshot to come", v.left)
		}
	}
	return nil
}

// mayRepeat: a resumed viewer is told the size once more, as its client may not
// have been told before it lost the connection.
func (v *viewer) mayRepeat() bool { return v.resumes && len(v.sizes) == 0 }

func (v *viewer) snapshot(item Item) error {
	if len(item.Data) == 0 || len(item.Data) > v.left || item.Offset != v.pos {
		return fmt.Errorf("%d bytes of snapshot for %d, want at most %d for %d", len(item.Data), item.Offset, v.left, v.pos)
	}
	// At present a snapshot is the bytes that lead to its offset.
	from := v.pos - uint64(v.left)
	v.left -= len(item.Data)
	return v.show(from, item.Data)
}

func (v *viewer) resync(item Item) error {
	if want := v.pos + item.Missed + uint64(item.Bytes); item.Offset != want || item.Missed == 0 || v.left != 0 {
		return fmt.Errorf("resync from %d to %d, %d missed and %d in the snapshot; %d of the last one are to come",
			v.pos, item.Offset, item.Missed, item.Bytes, v.left)
	}
	v.resyncs++
	v.missed += item.Missed
	v.pos, v.left = item.Offset, item.Bytes
	return nil
}

func (v *viewer) output(item Item) error {
	if item.Offset != v.pos || len(item.Data) == 0 || v.left != 0 {
		return fmt.Errorf("%d bytes at %d, want some at %d after %d of snapshot", len(item.Data), item.Offset, v.pos, v.left)
	}
	v.pos += uint64(len(item.Data))
	if v.model != nil {
		if err := v.model.checkSize(item.Offset, v.pos, v.size); err != nil {
			return err
		}
	}
	return v.show(item.Offset, item.Data)
}

func (v *viewer) show(from uint64, data []byte) error {
	if v.model != nil {
		return v.model.checkBytes(from, data)
	}
	v.seen = append(v.seen, data...)
	return nil
}

// drain looks until nothing comes; it reports whether the end has.
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

// model is the plainest there is of a session's output: all the bytes in one
// slice, and each size with its offset.
type model struct {
	printed []byte
	sizes   []sizeAt
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
func (m *model) checkSize(from, end uint64, told protocol.Size) error {
	for i, s := range m.sizes {
		first, last := max(from, s.offset), end
		if i+1 < len(m.sizes) {
			last = min(end, m.sizes[i+1].offset)
		}
		if first < last && s.size != told {
			return fmt.Errorf("[%d, %d) was printed at %v, told %v", first, last, s.size, told)
		}
	}
	return nil
}
