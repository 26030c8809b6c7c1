package past

import (
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"holdfast/protocol"
)

// digits is the length of an offset in the name of a segment, so that names sort by offset.
const digits = 19

func openName(start uint64) string { return fmt.Sprintf("%0*d", digits, start) }
func closedName(start, end uint64) string {
	return fmt.Sprintf("%0*d-%0*d", digits, start, digits, end)
}

// A segment is a file of output in the listing of a directory.
type segment struct {
	name     string
	start    uint64
	end      uint64 // of a closed segment by its name; of an open one, the end of its whole blocks; if isKept, where the writer continues
	isClosed bool
	found    *found // of an open segment

	isKept bool // only for a writer: a part of this open segment is damaged or not returned, and its file must not be changed
}

// parseSegment parses the name of a segment: START or START-END.
func parseSegment(name string) (segment, bool) {
	start, end, isClosed := strings.Cut(name, "-")
	s := segment{name: name, isClosed: isClosed}
	var ok, endOK bool
	s.start, ok = parseOffset(start)
	s.end, endOK = parseOffset(end)
	return s, ok && (!isClosed || endOK && s.start < s.end && s.end-s.start <= maxRaw)
}

func parseOffset(p string) (uint64, bool) {
	n, err := strconv.ParseUint(p, 10, 63)
	return n, err == nil && len(p) == digits
}

// listSegments returns the segments in a directory by their names, in ascending order. A
// listing that was read while a segment was renamed may lack it, so the directory is read until
// two listings agree.
func listSegments(dir string) ([]segment, error) {
	var before []string
	for range 20 {
		names, err := segmentNames(dir)
		if err != nil {
			return nil, fmt.Errorf("past: %w", err)
		}
		if before != nil && slices.Equal(before, names) {
			return withoutTwins(names), nil
		}
		before = names
	}
	return nil, fmt.Errorf("past: %s changes all the time; try again", dir)
}

func segmentNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	all, err := d.Readdirnames(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return nil, err
	}
	names := slices.DeleteFunc(all, func(name string) bool { _, ok := parseSegment(name); return !ok })
	slices.Sort(names)
	return slices.Clip(names), nil
}

// withoutTwins returns the segments with these names, but only one for each start. If two begin at
// the same offset, the second name belongs to the longer closed one, which it returns.
func withoutTwins(names []string) []segment {
	segments := make([]segment, 0, len(names))
	for _, name := range names {
		s, _ := parseSegment(name)
		if n := len(segments); n > 0 && segments[n-1].start == s.start {
			segments = segments[:n-1]
		}
		segments = append(segments, s)
	}
	return segments
}

// found is the whole part of a segment.
type found struct {
	head
	cipher      cipher.AEAD // of a sealed segment
	end         uint64
	bytes       int64 // length of the whole blocks in the file
	raw         int   // bytes of output and entries
	blocks      int   // blocks of output and entries
	hasKeyframe bool
	sizeAtEnd   protocol.Size
	early       []byte // entries before the first output
	torn        error  // why the file is longer than bytes; nil if it is not
}

// isEmpty reports whether the segment has nothing to restore. At offset 0 every screen is blank.
func (f *found) isEmpty() bool { return f.start > 0 && f.end == f.start && !f.hasKeyframe }

// scan checks all blocks of an open segment. It returns nil if its header is not whole. If isReader is not set, and the disk
// does not return the header, the error matches errUnread; if it does not return a later part, torn does.
func scan(path string, key *dataKey, isReader bool) (*found, error) {
	w, err := openWalk(path, key, isReader)
	if errors.Is(err, ErrDamaged) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer w.Close()
	f := &found{head: w.head, cipher: w.cipher, end: w.start, bytes: headBytes, sizeAtEnd: w.size}
	for {
		b, err := w.next()
		if err == nil {
			err = f.add(w, b)
		}
		if errors.Is(err, ErrDamaged) || errors.Is(err, errUnread) {
			f.torn = err
			return f, nil
		}
		if err == io.EOF {
			return f, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// add adds the last block of w if it is whole.
func (f *found) add(w *walk, b block) error {
	switch b.kind {
	case kindEntries:
		payload, err := w.payload()
		if err != nil {
			return err
		}
		entries, err := parseEntries(payload)
		if err != nil {
			return w.name(err)
		}
		for _, e := range entries {
			if e.kind == entryResize {
				f.sizeAtEnd = e.size
			}
		}
		if f.end == f.start {
			f.early = append(f.early, payload...)
		}
	default:
		if _, err := w.stored(); err != nil {
			return err
		}
	}
	if b.kind == kindKeyframe {
		f.hasKeyframe = true
	} else {
		f.blocks++
	}
	f.end, f.bytes, f.raw = w.end, w.at, w.raw
	return nil
}

// loadSegments returns the segments that have output or a keyframe, in ascending order and
// without overlaps.
func loadSegments(dir string, key *dataKey) ([]segment, error) {
	for range 20 {
		listed, err := listSegments(dir)
		if err != nil {
			return nil, err
		}
		segments := listed[:0]
		for _, s := range listed {
			if !s.isClosed {
				s.found, err = scan(filepath.Join(dir, s.name), key, true)
				if err != nil {
					break
				}
				if s.found == nil || s.found.start != s.start || s.found.isEmpty() {
					continue
				}
				s.end = s.found.end
			}
			segments = append(segments, s)
		}
		if errors.Is(err, fs.ErrNotExist) { // it was closed or deleted since it was listed
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range segments[:max(0, len(segments)-1)] {
			segments[i].end = min(segments[i].end, segments[i+1].start)
		}
		return segments, nil
	}
	return nil, fmt.Errorf("past: %s changes all the time; try again", dir)
}
