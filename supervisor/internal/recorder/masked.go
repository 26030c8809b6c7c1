package recorder

import "holdfast/shared/mask"

// maskedCopy masks the secrets in the output that a track copies. It holds back bytes that may
// be the beginning of a secret, until more output comes, or until none came for the time between two
// syncs.
type maskedCopy struct {
	stream *mask.Stream // nil if no output was copied since the files were opened
	end    uint64       // end of the output that the stream has
	silent uint64       // end at the last sync
}

// copied returns the offset up to which the output was read.
func (t *track) copied() uint64 {
	at := t.writer.End()
	m := t.source.Masker()
	if m == nil {
		return at
	}
	c := &t.masked
	if c.stream == nil || at+uint64(c.stream.Held()) != c.end { // the writer has skipped output
		*c = maskedCopy{m.StreamAt(t.ring, at), at, c.silent}
	}
	return c.end
}

// append appends output, which must begin at copied, without its secrets.
func (t *track) append(at uint64, output []byte) error {
	if t.source.Masker() == nil {
		return t.writer.Append(at, output)
	}
	c := &t.masked
	c.end = at + uint64(len(output))
	return t.appendMasked(c.stream.Write(output))
}

func (t *track) appendMasked(output []byte) error {
	if len(output) == 0 {
		return nil
	}
	return t.writer.Append(t.writer.End(), output)
}

// release appends the output that is held back.
func (t *track) release() error {
	if t.masked.stream == nil {
		return nil
	}
	return t.appendMasked(t.masked.stream.Flush())
}

// releaseIfSilent appends the output that is held back, if the session has printed nothing since
// the last call, or will print no more.
func (t *track) releaseIfSilent() error {
	c := &t.masked
	_, _, isComplete := t.ring.Bounds()
	if isComplete || c.end == c.silent || t.isEnding() {
		return t.release()
	}
	c.silent = c.end
	return nil
}

// isEnding reports whether the recording ends.
func (t *track) isEnding() bool {
	select {
	case <-t.stop:
		return true
	default:
		return false
	}
}
