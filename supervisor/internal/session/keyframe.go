package session

import (
	"encoding/binary"
	"io"

	"golang.org/x/time/rate"

	"holdfast/supervisor/internal/recorder"
	"holdfast/supervisor/internal/screen"
	"holdfast/supervisor/internal/slate"
)

// A keyframe is a saved screen together with its offset. A successor restores the screen from
// the keyframe and the output after it. Therefore the keyframe must be renewed before the ring
// overwrites the output after it.

const (
	// frameShare is the part of the ring, one half, that may be printed until the keyframe is
	// renewed. The screen may be up to six eighths of the ring behind the reader; then the
	// reader waits.
	frameShare = 2
	// frameCost is the cost of output until the keyframe is renewed. A successor needs this
	// cost, some half a second, until it has the screen.
	frameCost = 256 << 20
	// A keyframe during a flood has no lines above the screen and takes a tenth of a
	// millisecond. Lines are lost only if a successor starts then, and the ring still has
	// thousands of them.
	noLines  = 0
	allLines = -1 // compressed if they are many
	// plainLines are all lines, not compressed. A program that does not know packed records restores a
	// packed one without its lines, so the keyframes are plain when another program takes over.
	plainLines = -2
	// A keyframe with all lines takes some 3 to 10 ms if the history is long. During floods all
	// sessions together write 2 a second, a fiftieth of a processor. A session that has fallen
	// silent needs only one; there may be 30 a second.
	wholeInFlood   = 2
	wholeInSilence = 30
)

// frameBudget limits the keyframes with all lines. All sessions of a table share it.
type frameBudget struct{ flood, silence *rate.Limiter }

func newFrameBudget() *frameBudget {
	return &frameBudget{rate.NewLimiter(wholeInFlood, wholeInFlood), rate.NewLimiter(wholeInSilence, wholeInSilence)}
}

// linesInFlood returns how many lines the next keyframe may have during a flood of output.
func (b *frameBudget) linesInFlood() int {
	if b.flood.Allow() {
		return allLines
	}
	return noLines
}

// sinceKeyframe returns how many bytes of output the screen has read since the keyframe.
func (d *display) sinceKeyframe() uint64 { return d.shownTo() - d.keyframe.offset }

// ringShare is the part of the ring, three quarters, that a session may print until it needs a keyframe at all.
const ringShare = 4

// ringSuffices reports whether a successor can make exactly this screen of the output in the ring alone, and at
// little cost. Such a session needs no keyframe. It does not suffice if lines were above the first output, if lines were
// cleared, if output was skipped, if there are pictures, which may be laid out for cells of another size, and after an adoption, because the cost of the output is unknown then.
func (d *display) ringSuffices() bool {
	_, end, _ := d.ring.Bounds()
	return d.isFromRing && !d.hasPictures() && d.cost <= frameCost/prepareShare && end <= uint64(d.ring.Keep()-d.ring.Keep()/ringShare)
}

// eraseKeyframe deletes the keyframe, if there is one, because the ring suffices.
func (d *display) eraseKeyframe() {
	k := &d.keyframe
	if k.offset == 0 && !k.isWhole {
		return
	}
	if err := k.Clear(); err != nil {
		d.log.Error().Err(err).Msg("keyframe not deleted; it stays")
		return
	}
	k.offset, k.isWhole, k.isPlain, k.cost = 0, false, false, d.cost
}

// keyframeDue reports whether the output since the last keyframe exceeds frameShare or frameCost,
// and how many lines the next keyframe must have.
func (d *display) keyframeDue() (lines int, isDue bool) {
	if d.cfg.Vault == nil || d.ringSuffices() || d.sinceKeyframe() < uint64(d.ring.Keep()/frameShare) && d.keyframe.cost < frameCost {
		return 0, false
	}
	return d.cfg.frames.linesInFlood(), true
}

// isSaved reports whether the keyframe has all lines and the present screen, or no successor would
// read it.
func (d *display) isSaved() bool {
	return d.cfg.Vault == nil || d.keyframe.isWhole && d.sinceKeyframe() == 0
}

// frame returns the keyframe, or makes a new one under the conditions of source.Frame. Secrets are not masked.
func (d *display) frame(after uint64, lines bool) (f recorder.Frame, err error) {
	k := &d.keyframe
	if k.offset < after || lines && !k.isWhole {
		d.restoreDropped()
		n := allLines
		if !lines {
			n = d.cfg.frames.linesInFlood()
		}
		if d.restoring == nil && d.ringSuffices() {
			d.cfg.trimmer.request()
			f.Offset, f.Data, err = d.unstoredFrame(n)
			f.IsWhole = n == allLines
			return f, err
		}
		d.writeKeyframe(n)
	}
	offset, saved, err := k.read()
	d.cfg.trimmer.request() // the frame is garbage as soon as it is stored
	if err != nil || saved == nil {
		return f, err
	}
	return recorder.Frame{Offset: offset, Data: saved, IsWhole: k.isWhole}, nil
}

// unstoredFrame returns a keyframe of the present screen that is not stored. It is for a session whose ring suffices.
func (d *display) unstoredFrame(lines int) (offset uint64, saved []byte, err error) {
	b := make(buffer, 0, d.frameBytes+d.frameBytes/8) // probably the next one is hardly longer
	d.use(func() { offset, err = d.screen.Offset(), d.screen.Save(&b, lines) })
	if d.saved.Degraded {
		return 0, nil, nil
	}
	d.frameBytes = len(b)
	return offset, b, err
}

// buffer is a file in memory.
type buffer []byte

func (b *buffer) WriteAt(p []byte, at int64) (int, error) {
	if more := int(at) + len(p) - len(*b); more > 0 {
		*b = append(*b, make([]byte, more)...)
	}
	return copy((*b)[at:], p), nil
}

// needsSaving reports whether a successor would need long to restore the screen from the keyframe.
func (d *display) needsSaving() bool {
	return !d.keyframe.isWhole || d.sinceKeyframe() > uint64(d.ring.Keep()/prepareShare) || d.keyframe.cost > frameCost/prepareShare
}

// writeKeyframe replaces the keyframe and reports whether it did. If it fails, the previous
// keyframe stays. There is no keyframe of a screen that is lost or not restored yet.
func (d *display) writeKeyframe(lines int) (isWritten bool) {
	if d.restoring != nil || d.saved.Degraded {
		return false
	}
	d.use(func() {
		if err := d.keyframe.write(d.screen, lines); err != nil {
			d.log.Error().Err(err).Msg("keyframe not written; the previous one stays")
			return
		}
		isWritten = true
		d.noteChange() // ScannedTo must be saved together with the keyframe
	})
	return isWritten
}

// unpackKeyframe makes the lines of the keyframe plain, for a program that does not know packed ones.
func (d *display) unpackKeyframe() {
	if err := d.keyframe.unpack(); err != nil {
		d.log.Error().Err(err).Msg("keyframe not unpacked; an older program would restore the screen without its lines")
	}
}

// keyframe is the slate with the keyframe, and a description of its content. loop owns it.
type keyframe struct {
	*slate.Slate
	offset  uint64 // the keyframe contains the screen at this offset
	isWhole bool   // the keyframe contains all lines of history
	isPlain bool   // none of the lines is compressed
	cost    int    // cost of the output that was written to the screen since the keyframe
}

// frameHead is the length of a keyframe's offset, little endian. The saved screen follows. A
// successor of many sessions first reads only the offsets.
const frameHead = 8

// readOffset reads the offset of the keyframe, or returns false if there is no keyframe.
func (k *keyframe) readOffset() (uint64, bool, error) {
	head, err := k.ReadFirst(frameHead)
	offset, _, ok := splitFrame(head)
	return offset, ok, err
}

// read returns the saved screen and its offset, or no screen if there is no keyframe.
func (k *keyframe) read() (offset uint64, saved []byte, err error) {
	frame, err := k.Read()
	if err != nil {
		return 0, nil, err
	}
	offset, saved, _ = splitFrame(frame)
	saved, err = screen.Unpack(saved)
	return offset, saved, err
}

// unpack replaces a packed keyframe by the same one with plain lines.
func (k *keyframe) unpack() error {
	if k.isPlain {
		return nil
	}
	offset, saved, err := k.read()
	if err != nil || saved == nil {
		return err
	}
	err = k.replace(offset, func(w io.WriterAt) error {
		_, err := w.WriteAt(saved, 0)
		return err
	})
	k.isPlain = err == nil
	return err
}

// replace replaces the content by a screen at an offset, which save writes.
func (k *keyframe) replace(offset uint64, save func(io.WriterAt) error) error {
	return k.WriteBy(func(w io.WriterAt) error {
		if _, err := w.WriteAt(binary.LittleEndian.AppendUint64(nil, offset), 0); err != nil {
			return err
		}
		return save(io.NewOffsetWriter(w, frameHead))
	})
}

// splitFrame splits the content of a keyframe into its offset and the saved screen. It returns false
// if frame is empty, which means that no keyframe was written.
func splitFrame(frame []byte) (offset uint64, saved []byte, ok bool) {
	if len(frame) < frameHead {
		return 0, nil, false
	}
	return binary.LittleEndian.Uint64(frame), frame[frameHead:], true
}

// openFrame begins to restore the screen of a keyframe. It returns nil if no keyframe was written.
func openFrame(frame []byte, scrollback int) (*screen.Restorer, error) {
	_, saved, ok := splitFrame(frame)
	if !ok {
		return nil, nil
	}
	saved, err := screen.Unpack(saved)
	if err != nil {
		return nil, err
	}
	return screen.Restore(saved, scrollback)
}

// write replaces the keyframe by the present screen. If it fails, the previous keyframe stays.
func (k *keyframe) write(sc *screen.Screen, lines int) error {
	err := k.replace(sc.Offset(), func(w io.WriterAt) error {
		if lines == allLines {
			return sc.SavePacked(w)
		}
		return sc.Save(w, lines)
	})
	if err == nil {
		k.offset, k.isWhole, k.isPlain, k.cost = sc.Offset(), lines != noLines, lines != allLines, 0
	}
	return err
}
