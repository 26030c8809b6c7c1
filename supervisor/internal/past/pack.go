package past

import (
	"errors"
	"fmt"
	"io"
)

// pack writes a segment anew with fewer and longer blocks, which compress better. A session
// that prints slowly has a block for each Sync. pack replaces the file; a crash leaves either
// the old or the new content. If the life has a key, the new file is sealed. pack returns the new file,
// which is synced, and its length.
func pack(d disk, path string, key *dataKey, end uint64) (file, int, error) {
	w, err := openWalk(path, key, false)
	if err != nil {
		return nil, 0, err
	}
	defer w.Close()
	content, err := packed(w, end)
	if err != nil {
		return nil, 0, err
	}
	f, err := writeDraft(d, path, content)
	return f, len(content), err
}

func packed(w *walk, end uint64) ([]byte, error) {
	var frame, entries, output []byte
	for {
		b, err := w.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		payload, err := w.payload()
		if err != nil {
			return nil, err
		}
		switch b.kind {
		case kindKeyframe:
			frame = append(frame, payload...)
		case kindEntries:
			entries = append(entries, payload...)
		case kindOutput:
			output = append(output, payload...)
		}
	}
	if w.end != end {
		return nil, fmt.Errorf("%w: %s ends at offset %d instead of %d", ErrDamaged, w.path, w.end, end)
	}
	h := w.head
	h.isSealed = w.key != nil
	content := h.append(nil)
	c := w.key.forSegment(content)
	if frame != nil {
		content = appendBlock(content, c, kindKeyframe, w.start, frame)
	}
	for len(entries) > 0 {
		n, err := entriesUpTo(entries, maxEntries)
		if err != nil {
			return nil, err
		}
		content = appendBlock(content, c, kindEntries, w.start, entries[:n])
		entries = entries[n:]
	}
	for from := w.start; len(output) > 0; {
		n := min(len(output), maxOutput)
		content = appendBlock(content, c, kindOutput, from, output[:n])
		from += uint64(n)
		output = output[n:]
	}
	return content, nil
}

// entriesUpTo returns the length of the whole entries in the first limit bytes of p.
func entriesUpTo(p []byte, limit int) (int, error) {
	n := 0
	for n < len(p) {
		length, err := entryLength(p[n:])
		if err != nil {
			return 0, err
		}
		if n+length > limit {
			break
		}
		n += length
	}
	if n == 0 {
		return 0, errors.New("past: entry is too long")
	}
	return n, nil
}
