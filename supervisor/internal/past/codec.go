package past

import (
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// codecs compress and decompress the payloads of all lives. Their methods EncodeAll and
// DecodeAll may be called by any goroutine.
var codecs = sync.OnceValue(func() (c struct {
	*zstd.Encoder
	*zstd.Decoder
}) {
	var err error
	c.Encoder, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2),
		zstd.WithWindowSize(1<<20), zstd.WithSingleSegment(true), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
	if err == nil {
		c.Decoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(maxKeyframe), zstd.WithDecodeAllCapLimit(true))
	}
	if err != nil {
		panic("past: zstd: " + err.Error()) // the options are constants
	}
	return c
})

// compress appends the compressed payload to p, or the payload itself if it does not become
// shorter.
func compress(p, payload []byte) ([]byte, byte) {
	at := len(p)
	if p = codecs().EncodeAll(payload, p); len(p)-at < len(payload) {
		return p, encodingZstd
	}
	return append(p[:at], payload...), encodingPlain
}

// decompress returns the payload of a block. The payload must be raw bytes long. The result may share
// memory with stored.
func decompress(encoding byte, stored []byte, raw int) ([]byte, error) {
	if encoding == encodingPlain {
		if len(stored) != raw {
			return nil, fmt.Errorf("%w: %d bytes instead of %d", errTorn, len(stored), raw)
		}
		return stored, nil
	}
	var h zstd.Header
	if err := h.Decode(stored); err != nil {
		return nil, fmt.Errorf("%w: %w", errTorn, err)
	}
	if !h.HasFCS || h.FrameContentSize != uint64(raw) {
		return nil, fmt.Errorf("%w: frame has %d bytes instead of %d", errTorn, h.FrameContentSize, raw)
	}
	p, err := codecs().DecodeAll(stored, make([]byte, 0, raw))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errTorn, err)
	}
	if len(p) != raw {
		return nil, fmt.Errorf("%w: %d bytes instead of %d", errTorn, len(p), raw)
	}
	return p, nil
}
