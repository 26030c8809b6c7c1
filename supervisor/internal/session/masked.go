package session

import (
	"time"

	"holdfast/shared/mask"
)

// holdTime is how long an attachment that masks secrets holds back output that may be the beginning
// of a secret. If no more output has come by then, the output is delivered.
const holdTime = 100 * time.Millisecond

// maskedOutput is the output of an attachment that masks secrets. The goroutine that calls Next
// owns it.
type maskedOutput struct {
	stream             *mask.Stream
	readTo             uint64    // the stream has the output up to this offset
	ready              []byte    // masked output that the viewer has not received
	readyAt            uint64    // offset of ready
	since              time.Time // when output was read last
	isSnapshotFinished bool      // the attachment's snapshot is masked
}

func (a *Attachment) masksSecrets() bool { return a.spec.Mask && a.s.masker != nil }

// maskSnapshot masks the secrets of the snapshot that is to be delivered.
func (a *Attachment) maskSnapshot() {
	if !a.masksSecrets() || a.masked.isSnapshotFinished {
		return
	}
	if snapshot := a.s.held.use(a); snapshot != nil {
		a.masked.isSnapshotFinished = true
		a.s.held.replace(a, a.s.masker.Whole(snapshot))
	}
}

// readOutput reads the output at the viewer's position, as Ring.ReadAt does.
func (a *Attachment) readOutput(buf []byte) (int, error) {
	if !a.masksSecrets() {
		return a.s.ring.ReadAt(buf, a.pos)
	}
	o := &a.masked
	if received := a.pos - o.readyAt; o.stream == nil || a.pos < o.readyAt || received > uint64(len(o.ready)) {
		*o = maskedOutput{stream: a.s.masker.StreamAt(a.s.ring, a.pos), readTo: a.pos, isSnapshotFinished: o.isSnapshotFinished}
	} else {
		o.ready = o.ready[received:]
	}
	o.readyAt = a.pos
	if len(o.ready) == 0 {
		if err := a.fillOutput(buf); err != nil {
			return 0, err
		}
	}
	return copy(buf, o.ready), nil
}

// fillOutput reads more output, up to the next change of size, and masks it. It uses buf to read the
// ring.
func (a *Attachment) fillOutput(buf []byte) error {
	o := &a.masked
	n := uint64(len(buf))
	resize, isResized := a.s.ring.NextMark(o.readTo)
	if isResized {
		n = min(n, resize.Offset-o.readTo)
	}
	isOver := a.s.hasExited() // must be read before the output, so that it covers all output
	k, err := a.s.ring.ReadAt(buf[:n], o.readTo)
	if err != nil {
		return err
	}
	if k > 0 {
		o.ready = append(o.ready[:0], o.stream.Write(buf[:k])...)
		o.readTo, o.since = o.readTo+uint64(k), time.Now()
		isOver = isResized && o.readTo == resize.Offset
	}
	held := o.stream.Held() > 0
	if isOver || held && len(o.ready) == 0 && time.Since(o.since) >= holdTime {
		o.ready = append(o.ready, o.stream.Flush()...)
	} else if held && len(o.ready) == 0 {
		time.AfterFunc(holdTime, a.notify)
	}
	return nil
}
