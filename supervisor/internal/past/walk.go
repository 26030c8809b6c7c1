package past

import (
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// A walk reads the blocks of a segment in their order.
type walk struct {
	head
	key      *dataKey    // of the life; nil: sealed payloads cannot be read
	isReader bool        // a part that the disk does not return is damage
	cipher   cipher.AEAD // of a sealed segment; nil if the key is missing
	path     string
	file     *os.File
	length   int64  // bytes of the file when it was opened
	at       int64  // place behind the blocks that were read
	end      uint64 // end of the output in these blocks
	raw      int    // bytes of output and entries in these blocks
	last     block  // the block that next returned last
	place    int64  // place of its payload
	window   []byte // bytes of the file from windowAt on
	windowAt int64
}

// readAhead is the number of bytes that a walk reads at once, so that the small blocks of a
// segment that was often synced do not each need a read.
const readAhead = 32 << 10

// errUnread means that the disk does not return a part of a file. For a reader, this part is damaged. A writer must not
// cut, replace or delete a file because of it, because the next read may succeed.
var errUnread = errors.New("the disk does not return this part")

// Files are opened and read with these functions. Tests let them fail as a disk does.
var (
	openToRead = os.Open
	readAt     = (*os.File).ReadAt
)

// openWalk opens a segment of a life with this key and reads its header. isReader is true if nothing will be changed because
// of the result.
func openWalk(path string, key *dataKey, isReader bool) (*walk, error) {
	w := &walk{path: path, key: key, isReader: isReader}
	var err error
	if w.file, err = openFile(path); err != nil {
		if err = asUnread(err); errors.Is(err, errUnread) {
			err = w.name(err)
		}
		return nil, err
	}
	if err := w.begin(); err != nil {
		return nil, errors.Join(w.name(err), w.file.Close())
	}
	return w, nil
}

// asUnread returns the error of a file that could not be opened or read. It matches errUnread unless the file does not exist or is no
// file, or the process lacks the means to read any file.
func asUnread(err error) error {
	for _, other := range []error{ErrDamaged, fs.ErrNotExist, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, other) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", errUnread, err)
}

func (w *walk) begin() error {
	info, err := w.file.Stat()
	if err != nil {
		return asUnread(err)
	}
	w.length = info.Size()
	p, err := w.read(0, headBytes)
	if err != nil {
		return err
	}
	if w.head, err = parseHead(p); err != nil {
		return err
	}
	if w.isSealed {
		w.cipher = w.key.forSegment(p)
	}
	w.at, w.end = headBytes, w.start
	return nil
}

// Close closes the file, which was only read.
func (w *walk) Close() { _ = w.file.Close() }

// name adds to an error the file and the place in it.
func (w *walk) name(err error) error {
	if errors.Is(err, errTorn) || w.isReader && errors.Is(err, errUnread) {
		return fmt.Errorf("%w: %s at byte %d, offset %d: %w", ErrDamaged, w.path, w.at, w.end, err)
	}
	return fmt.Errorf("past: %s: %w", w.path, err)
}

// endsBefore returns the error of a file that ends before the offset that its name tells.
func (w *walk) endsBefore(offset uint64) error {
	return w.name(fmt.Errorf("%w: the file ends, output up to offset %d is missing", errTorn, offset))
}

// read returns n bytes of the file, which are valid until the next read.
func (w *walk) read(at int64, n int) ([]byte, error) {
	if at+int64(n) > w.length {
		return nil, fmt.Errorf("%w: the file ends at byte %d", errTorn, w.length)
	}
	if at < w.windowAt || at+int64(n) > w.windowAt+int64(len(w.window)) {
		err := w.fill(at, int(min(int64(max(n, readAhead)), w.length-at)))
		if errors.Is(err, errUnread) {
			err = w.fill(at, n) // the bytes that are wanted may be whole
		}
		if err != nil {
			return nil, err
		}
	}
	i := int(at - w.windowAt)
	return w.window[i : i+n], nil
}

// fill reads the window.
func (w *walk) fill(at int64, length int) error {
	if cap(w.window) < length {
		w.window = make([]byte, length)
	}
	w.window, w.windowAt = w.window[:length], at
	_, err := readAt(w.file, w.window, at)
	if err == nil {
		return nil
	}
	w.window = w.window[:0]
	if errors.Is(err, io.EOF) { // the file was truncated after a failed write
		return fmt.Errorf("%w: the file became shorter", errTorn)
	}
	return asUnread(err)
}

// next returns the header of the next block, or io.EOF at the end of the file.
func (w *walk) next() (block, error) {
	if w.at == w.length {
		return block{}, io.EOF
	}
	p, err := w.read(w.at, blockHeadBytes)
	if err != nil {
		return block{}, w.name(err)
	}
	b, err := w.parseBlock(p)
	if err == nil {
		err = w.accept(b)
	}
	if err != nil {
		return block{}, w.name(err)
	}
	return b, nil
}

func (w *walk) parseBlock(p []byte) (block, error) {
	sealed := 0
	if w.isSealed {
		sealed = gcmBytes
	}
	return parseBlock(p, sealed)
}

// blockFollows reports whether a whole block with output, or behind output, is anywhere from the byte at on. The output of the
// session may look like a block. w is of no use afterwards. If too many payloads must be read, the file is kept.
func (w *walk) blockFollows(at int64, end uint64) (bool, error) {
	for checked := 0; at+blockHeadBytes <= w.length; at++ {
		p, err := w.read(at, blockHeadBytes)
		if err != nil {
			return false, w.name(err)
		}
		if p[0] < kindOutput || p[0] > kindEntries || p[1] > encodingZstd || p[2] != 0 || p[3] != 0 {
			continue // most bytes are no block, and parseBlock is slow if it fails
		}
		b, err := w.parseBlock(p)
		if err != nil || b.from < end || b.from-w.start > maxRaw || b.kind == kindEntries && b.from == w.start {
			continue
		}
		if checked += int(b.stored); checked > maxKeyframe { // a file that is kept loses nothing
			return true, nil
		}
		w.last, w.place = b, at+blockHeadBytes
		if _, err = w.stored(); !errors.Is(err, ErrDamaged) {
			return err == nil, err
		}
	}
	return false, nil
}

// accept makes b the last block if it may follow the blocks before it.
func (w *walk) accept(b block) error {
	place := w.at + blockHeadBytes
	switch {
	case b.from != w.end:
		return fmt.Errorf("%w: it has offset %d", errTorn, b.from)
	case b.kind == kindKeyframe && w.at != headBytes:
		return fmt.Errorf("%w: keyframe inside a segment", errTorn)
	case place+int64(b.stored) > w.length:
		return fmt.Errorf("%w: the file ends at byte %d", errCut, w.length)
	case b.kind != kindKeyframe && w.raw+int(b.raw) > maxRaw:
		return fmt.Errorf("%w: segment has more than %d bytes", errTorn, maxRaw)
	}
	if b.kind == kindOutput {
		if w.end+uint64(b.raw) > maxOffset {
			return fmt.Errorf("%w: offset overflows", errTorn)
		}
		w.end += uint64(b.raw)
	}
	if b.kind != kindKeyframe {
		w.raw += int(b.raw)
	}
	w.last, w.place, w.at = b, place, place+int64(b.stored)
	return nil
}

// stored returns the payload of the last block as it is in the file.
func (w *walk) stored() ([]byte, error) {
	p, err := w.read(w.place, int(w.last.stored))
	if err != nil {
		return nil, w.name(err)
	}
	if checksum(p) != w.last.sum {
		return nil, w.name(fmt.Errorf("%w: wrong checksum", errTorn))
	}
	return p, nil
}

// payload returns the payload of the last block. It is valid until the next read.
func (w *walk) payload() ([]byte, error) {
	p, err := w.stored()
	if err != nil {
		return nil, err
	}
	if p, err = w.unseal(p); err != nil {
		return nil, w.name(err)
	}
	if p, err = decompress(w.last.encoding, p, int(w.last.raw)); err != nil {
		return nil, w.name(err)
	}
	return p, nil
}

// unseal returns the payload of the last block without its encryption.
func (w *walk) unseal(p []byte) ([]byte, error) {
	if !w.isSealed {
		return p, nil
	}
	if w.cipher == nil {
		return nil, ErrLocked
	}
	p, err := w.cipher.Open(nil, nil, p, w.last.appendBound(make([]byte, 0, boundBytes)))
	if err != nil {
		return nil, fmt.Errorf("%w: the payload was changed, or is of another place", errTorn)
	}
	return p, nil
}

// entries returns the entries of the last block.
func (w *walk) entries() ([]entry, error) {
	p, err := w.payload()
	if err != nil {
		return nil, err
	}
	entries, err := parseEntries(p)
	if err != nil {
		return nil, w.name(err)
	}
	return entries, nil
}
