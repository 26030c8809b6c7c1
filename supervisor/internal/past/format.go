package past

import (
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"time"

	"holdfast/protocol"
)

// The layout of a segment; README.md explains it. All numbers are little endian.
const (
	segmentMagic   = "hfpast"
	segmentVersion = 1
	headBytes      = 32
	blockHeadBytes = 28

	maxOffset = math.MaxInt64
)

// Limits in bytes. Lengths are those before compression.
const (
	// segmentBytes is the output after which a segment should be closed, because the screen at
	// its end is restored by writing all of it to the screen at its start.
	segmentBytes = 4 << 20
	// CapsuleBytes of output after the keyframe are kept in the mode Screen.
	CapsuleBytes = 256 << 10
	// maxKeyframe is the limit of a keyframe.
	maxKeyframe = 64 << 20
	// MaxMark is the limit of the text of a mark.
	MaxMark = 4 << 10

	maxOutput  = 128 << 10          // output in a block
	maxEntries = 64 << 10           // entries in a block
	fullBlock  = maxEntries - 8<<10 // entries after which a block is written; one more entry fits
	maxSegment = 2 * segmentBytes   // output and entries, after which a segment is closed without a keyframe
	maxRaw     = maxSegment + 1<<20 // output and entries that a reader accepts in a segment
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// A head is the header of a segment.
type head struct {
	start   uint64        // offset of the first byte of output
	created time.Time     // when the output at start was printed
	size    protocol.Size // size of the terminal at start; zero: unknown

	isSealed bool // the payloads are encrypted with the key of the life
}

// The values of the byte in the header that tells how payloads are sealed.
const (
	sealedNot = 0
	sealedGCM = 1 // AES-256-GCM
)

func (h head) append(p []byte) []byte {
	at := len(p)
	p = append(p, segmentMagic...)
	p = append(p, segmentVersion, sealedNot)
	if h.isSealed {
		p[len(p)-1] = sealedGCM
	}
	p = binary.LittleEndian.AppendUint64(p, h.start)
	p = appendTime(p, h.created)
	p = appendSize(p, h.size)
	return binary.LittleEndian.AppendUint32(p, checksum(p[at:]))
}

// errTorn is returned if the remaining bytes of a file are no whole block.
var errTorn = errors.New("block is not whole")

// errCut is the error of a block with a whole header and a payload that reaches behind the end of the file.
var errCut = fmt.Errorf("%w: its payload is cut off", errTorn)

func parseHead(p []byte) (head, error) {
	if len(p) < headBytes || binary.LittleEndian.Uint32(p[28:]) != checksum(p[:28]) || string(p[:6]) != segmentMagic {
		return head{}, fmt.Errorf("%w: invalid header of a segment", errTorn)
	}
	if p[6] > segmentVersion {
		return head{}, fmt.Errorf("%w: segment has version %d, this program reads version %d", ErrVersion, p[6], segmentVersion)
	}
	if p[7] > sealedGCM {
		return head{}, fmt.Errorf("%w: segment is encoded by method %d, which this program does not know", ErrVersion, p[7])
	}
	h := head{binary.LittleEndian.Uint64(p[8:]), parseTime(p[16:]), parseSize(p[24:]), p[7] == sealedGCM}
	if h.start > maxOffset {
		return head{}, fmt.Errorf("%w: invalid offset %d", errTorn, h.start)
	}
	return h, nil
}

// The kinds of blocks.
const (
	kindKeyframe = 1
	kindOutput   = 2
	kindEntries  = 3
)

// The encodings of a block's payload.
const (
	encodingPlain = 0
	encodingZstd  = 1
)

// A block is the header of a block.
type block struct {
	kind     byte
	encoding byte
	stored   uint32 // length of the payload in the file
	raw      uint32 // length of the payload after decoding
	from     uint64 // end of the output in the file before this block
	sum      uint32 // checksum of the payload in the file
}

// boundBytes is the length of the first part of a block's header. The encryption of a payload
// authenticates this part, so that the payload opens behind no other header.
const boundBytes = 20

// appendBound appends the beginning of the header of a block.
func (b block) appendBound(p []byte) []byte {
	p = append(p, b.kind, b.encoding, 0, 0)
	p = binary.LittleEndian.AppendUint32(p, b.stored)
	p = binary.LittleEndian.AppendUint32(p, b.raw)
	return binary.LittleEndian.AppendUint64(p, b.from)
}

// appendBlock appends a block with its payload, sealed by c unless c is nil.
func appendBlock(p []byte, c cipher.AEAD, kind byte, from uint64, payload []byte) []byte {
	at := len(p)
	p = append(p, make([]byte, blockHeadBytes)...)
	h := block{kind: kind, raw: uint32(len(payload)), from: from}
	p, h.encoding = compress(p, payload)
	stored := p[at+blockHeadBytes:]
	h.stored = uint32(len(stored) + sealedBytes(c))
	bound := h.appendBound(make([]byte, 0, boundBytes))
	if c != nil {
		p = c.Seal(p[:at+blockHeadBytes], nil, slices.Clone(stored), bound)
	}
	b := p[at:]
	copy(b, bound)
	binary.LittleEndian.PutUint32(b[20:], checksum(b[blockHeadBytes:]))
	binary.LittleEndian.PutUint32(b[24:], checksum(b[:24]))
	return p
}

// parseBlock parses the header of a block from p, which must have all bytes of the header. sealed is
// the number of bytes by which encryption makes a payload longer.
func parseBlock(p []byte, sealed int) (block, error) {
	if binary.LittleEndian.Uint32(p[24:]) != checksum(p[:24]) {
		return block{}, fmt.Errorf("%w: wrong checksum of its header", errTorn)
	}
	b := block{
		p[0], p[1], binary.LittleEndian.Uint32(p[4:]), binary.LittleEndian.Uint32(p[8:]),
		binary.LittleEndian.Uint64(p[12:]), binary.LittleEndian.Uint32(p[20:]),
	}
	limit, ok := map[byte]uint32{kindKeyframe: maxKeyframe, kindOutput: maxOutput, kindEntries: maxEntries}[b.kind]
	if !ok || b.encoding > encodingZstd || p[2] != 0 || p[3] != 0 {
		return block{}, fmt.Errorf("%w: unknown kind %d or encoding %d", errTorn, b.kind, b.encoding)
	}
	if b.raw > limit || uint64(b.stored) > uint64(b.raw)+uint64(sealed) || b.raw == 0 || uint64(b.stored) <= uint64(sealed) {
		return block{}, fmt.Errorf("%w: invalid length %d, or %d in the file; the limit is %d", errTorn, b.raw, b.stored, limit)
	}
	return b, nil
}

// The kinds of entries.
const (
	entryTime   = 1
	entryResize = 2
	entryMark   = 3
)

// An entry says that something happened at an offset.
type entry struct {
	kind   byte
	offset uint64
	time   time.Time     // of a time or a mark
	size   protocol.Size // of a resize
	mark   byte          // kind of a mark
	text   string        // of a mark
}

func (e entry) append(p []byte) []byte {
	p = append(p, e.kind)
	p = binary.LittleEndian.AppendUint64(p, e.offset)
	switch e.kind {
	case entryTime:
		p = appendTime(p, e.time)
	case entryResize:
		p = appendSize(p, e.size)
	case entryMark:
		p = appendTime(p, e.time)
		p = append(p, e.mark)
		p = binary.LittleEndian.AppendUint16(p, uint16(len(e.text)))
		p = append(p, e.text...)
	}
	return p
}

// Lengths of entries, without the text of a mark.
var entryBytes = map[byte]int{entryTime: 17, entryResize: 13, entryMark: 20}

// entryLength returns the length of the first entry in p.
func entryLength(p []byte) (int, error) {
	n := entryBytes[p[0]]
	if n > 0 && p[0] == entryMark && n <= len(p) {
		text := int(binary.LittleEndian.Uint16(p[18:]))
		if text > MaxMark {
			return 0, fmt.Errorf("%w: mark with %d bytes of text", errTorn, text)
		}
		n += text
	}
	if n == 0 || n > len(p) {
		return 0, fmt.Errorf("%w: entry of kind %d in %d bytes", errTorn, p[0], len(p))
	}
	return n, nil
}

// parseEntries parses the payload of a block.
func parseEntries(p []byte) ([]entry, error) {
	var entries []entry
	for len(p) > 0 {
		n, err := entryLength(p)
		if err != nil {
			return nil, err
		}
		e := entry{kind: p[0], offset: binary.LittleEndian.Uint64(p[1:])}
		switch e.kind {
		case entryTime:
			e.time = parseTime(p[9:])
		case entryResize:
			e.size = parseSize(p[9:])
		case entryMark:
			e.time, e.mark, e.text = parseTime(p[9:]), p[17], string(p[20:n])
		}
		entries = append(entries, e)
		p = p[n:]
	}
	return entries, nil
}

// Times have a precision of a microsecond.
func appendTime(p []byte, t time.Time) []byte {
	return binary.LittleEndian.AppendUint64(p, uint64(t.UnixMicro()))
}

func parseTime(p []byte) time.Time {
	return time.UnixMicro(min(max(int64(binary.LittleEndian.Uint64(p)), firstTime), lastTime))
}

// The first and the last time that JSON can express, in microseconds: of the years 1 and 9999.
const (
	firstTime = -62135596800 * 1_000_000
	lastTime  = 253402300799 * 1_000_000
)

func appendSize(p []byte, s protocol.Size) []byte {
	p = binary.LittleEndian.AppendUint16(p, uint16(s.Cols))
	return binary.LittleEndian.AppendUint16(p, uint16(s.Rows))
}

func parseSize(p []byte) protocol.Size {
	return protocol.Size{Cols: int(binary.LittleEndian.Uint16(p)), Rows: int(binary.LittleEndian.Uint16(p[2:]))}
}
