package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"holdfast/protocol"
)

// Limits of one segment, in bytes and in entries. Decode refuses a segment that exceeds them.
const (
	maxHeader   = 1 << 20
	maxKeyframe = 8 << 20
	maxOutput   = 12 << 20
	maxRaw      = maxHeader + 1 + maxKeyframe + maxOutput
	maxObject   = maxRaw + 1<<20 // an object that cannot be compressed is a little longer than its content
	maxStamps   = 4000           // times, and changes of size
)

// ErrTorn is the error for an object that is not a whole segment.
var ErrTorn = errors.New("the object is torn or was changed")

// errFormat is the error for a segment of a later release.
var errFormat = errors.New("this release cannot read the segment")

// A Segment is a range of the output of a session.
type Segment struct {
	Name     Name
	Start    uint64              // offset of the first byte of Output
	Missing  uint64              // bytes before Start that were printed, but could not be recorded
	Previous string              // SHA-256 of the object of the segment before, in hex; "" if this is the first segment
	Size     protocol.Size       // of the terminal at Start
	Keyframe []byte              // bytes that bring a new terminal into the state at Start; they are empty for a blank screen
	IsShown  bool                // Keyframe is set
	Times    []protocol.PastTime // when the output was printed, at most one for each 100 ms
	Sizes    []protocol.PastSize // changes of the size
	Output   []byte
}

// End returns the offset behind the last byte.
func (s *Segment) End() uint64 { return s.Start + uint64(len(s.Output)) }

// A header is the first line of a segment. The keyframe and the output follow it.
type header struct {
	Format        int                 `json:"format"`
	Recording     string              `json:"recording"`
	Start         uint64              `json:"start"`
	End           uint64              `json:"end"`
	Missing       uint64              `json:"missing,omitempty"`
	Previous      string              `json:"previous,omitempty"`
	Cols          int                 `json:"cols"`
	Rows          int                 `json:"rows"`
	IsShown       bool                `json:"has_keyframe"`
	KeyframeBytes int                 `json:"keyframe_bytes"`
	SHA256        string              `json:"sha256"` // of the keyframe and the output
	Times         []protocol.PastTime `json:"times"`
	Sizes         []protocol.PastSize `json:"sizes,omitempty"`
}

const format = 1

// codecs compress and decompress segments. Their methods EncodeAll and DecodeAll may be called by any
// goroutine.
var codecs = sync.OnceValue(func() (c struct {
	*zstd.Encoder
	*zstd.Decoder
}) {
	var err error
	c.Encoder, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(2), zstd.WithSingleSegment(true), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(1<<20))
	if err == nil {
		c.Decoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxRaw), zstd.WithDecodeAllCapLimit(true))
	}
	if err != nil {
		panic("archive: zstd: " + err.Error()) // the options are constants
	}
	return c
})

// Encode returns the object of the segment: one zstd frame with a checksum, so that zstd -d shows it.
func (s *Segment) Encode() []byte {
	line, _ := json.Marshal(header{ // it has only texts, numbers and times
		Format: format, Recording: s.Name.String(), Start: s.Start, End: s.End(), Missing: s.Missing, Previous: s.Previous,
		Cols: s.Size.Cols, Rows: s.Size.Rows, IsShown: s.IsShown, KeyframeBytes: len(s.Keyframe), SHA256: s.sum(), Times: s.Times, Sizes: s.Sizes,
	})
	raw := make([]byte, 0, len(line)+1+len(s.Keyframe)+len(s.Output))
	raw = append(append(append(append(raw, line...), '\n'), s.Keyframe...), s.Output...)
	return codecs().EncodeAll(raw, nil)
}

func (s *Segment) sum() string {
	h := sha256.New()
	h.Write(s.Keyframe)
	h.Write(s.Output)
	return hex.EncodeToString(h.Sum(nil))
}

// hashOf returns the SHA-256 of an object in hex.
func hashOf(object []byte) string {
	sum := sha256.Sum256(object)
	return hex.EncodeToString(sum[:])
}

// Decode returns the segment in an object. The error is ErrTorn if the object is not whole. It needs at
// most maxRaw bytes for the content.
func Decode(object []byte) (*Segment, error) {
	raw, err := decompress(object)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTorn, err)
	}
	n := bytes.IndexByte(raw[:min(len(raw), maxHeader+1)], '\n')
	if n < 0 {
		return nil, fmt.Errorf("%w: it has no header", ErrTorn)
	}
	line, body := raw[:n], raw[n+1:]
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrTorn, err)
	}
	if h.Format != format {
		return nil, fmt.Errorf("%w: it has the format %d; use a later release", errFormat, h.Format)
	}
	name, err := ParseName(h.Recording)
	if err == nil {
		err = h.check(len(body))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrTorn, err)
	}
	s := &Segment{
		Name: name, Start: h.Start, Missing: h.Missing, Previous: h.Previous, Size: protocol.Size{Cols: h.Cols, Rows: h.Rows},
		Keyframe: body[:h.KeyframeBytes], IsShown: h.IsShown, Times: h.Times, Sizes: h.Sizes, Output: body[h.KeyframeBytes:],
	}
	if s.sum() != h.SHA256 {
		return nil, fmt.Errorf("%w: the output does not have the checksum of the header", ErrTorn)
	}
	if !s.IsShown { // an earlier release has stored the part of a snapshot that it had received
		s.Keyframe = nil
	}
	return s, nil
}

// decompress returns the content of an object, which must be one frame that tells its length.
func decompress(object []byte) ([]byte, error) {
	var h zstd.Header
	if err := h.Decode(object); err != nil {
		return nil, err
	}
	if h.Skippable || !h.HasFCS || h.FrameContentSize > maxRaw {
		return nil, errors.New("its length is missing or too large")
	}
	return codecs().DecodeAll(object, make([]byte, 0, h.FrameContentSize))
}

// check returns an error unless the header is consistent. n is the number of bytes that follow it.
func (h *header) check(n int) error {
	size := protocol.Size{Cols: h.Cols, Rows: h.Rows}
	switch {
	case h.Start > h.End || h.End > math.MaxInt64 || h.Missing > h.Start:
		return errors.New("invalid offsets")
	case h.KeyframeBytes < 0 || h.KeyframeBytes > maxKeyframe:
		return errors.New("invalid length of the keyframe")
	case h.End-h.Start > maxOutput || uint64(n) != uint64(h.KeyframeBytes)+h.End-h.Start:
		return errors.New("the length does not fit the offsets")
	case size != size.Normalize():
		return errors.New("invalid size of the terminal")
	case h.Previous != "" && !isHash(h.Previous):
		return errors.New("invalid hash of the segment before")
	case len(h.Times) > maxStamps || len(h.Sizes) > maxStamps:
		return errors.New("too many times or sizes")
	}
	at := h.Start
	for _, t := range h.Times {
		if t.Offset < at || t.Offset > h.End {
			return errors.New("a time has an invalid offset")
		}
		at = t.Offset
	}
	at = h.Start
	for _, s := range h.Sizes {
		if s.Offset < at || s.Offset > h.End || s.Size != s.Size.Normalize() {
			return errors.New("a change of size is invalid")
		}
		at = s.Offset
	}
	return nil
}

func isHash(text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && len(b) == sha256.Size
}

// split splits the segment at an offset within it. The second part has the given keyframe.
func (s *Segment) split(at uint64, k keyframe) (first, second *Segment) {
	a, b := *s, Segment{Name: s.Name, Start: at, Size: k.size, Keyframe: k.data, IsShown: k.isShown}
	n := at - s.Start
	a.Output, b.Output = s.Output[:n:n], bytes.Clone(s.Output[n:])
	a.Times, a.Sizes = nil, nil
	if !a.IsShown { // the attachment broke before the whole snapshot had come
		a.Keyframe = nil
	}
	for _, t := range s.Times {
		if t.Offset < at {
			a.Times = append(a.Times, t)
		} else {
			b.Times = append(b.Times, t)
		}
	}
	if len(b.Output) > 0 && len(a.Times) > 0 && (len(b.Times) == 0 || b.Times[0].Offset > at) {
		b.Times = append([]protocol.PastTime{{Offset: at, At: a.Times[len(a.Times)-1].At}}, b.Times...)
	}
	for _, z := range s.Sizes {
		if z.Offset <= at {
			a.Sizes = append(a.Sizes, z)
		} else {
			b.Sizes = append(b.Sizes, z)
		}
	}
	if b.Size == (protocol.Size{}) {
		b.Size = a.endSize()
	}
	return &a, &b
}

// endSize returns the size of the terminal at the end of the segment.
func (s *Segment) endSize() protocol.Size {
	if n := len(s.Sizes); n > 0 {
		return s.Sizes[n-1].Size
	}
	return s.Size
}

// firstTime returns when the first output was printed, or the zero time.
func (s *Segment) firstTime() time.Time {
	if len(s.Times) == 0 {
		return time.Time{}
	}
	return s.Times[0].At
}
