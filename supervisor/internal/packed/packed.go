// Package packed compresses memory that is rarely read: lines above a screen, saved screens, and
// old output.
//
// Not here: files on disk (package past), and the decision what is compressed, and when.
package packed

import (
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// PieceBytes is the length of the pieces in which long content should be packed. Longer pieces become hardly
// smaller, and a reader that needs a part of the content must unpack a whole piece.
const PieceBytes = 64 << 10

// maxPlain bounds what Unpack returns. The longest content is a saved screen.
const maxPlain = 1 << 30

// All callers share the coders, because each costs hundreds of KiB. EncodeAll and DecodeAll may be
// called concurrently.
var (
	encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(PieceBytes), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
	decoder, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxPlain))
	filler, _  = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxPlain), zstd.WithDecodeAllCapLimit(true))
)

// Append appends the packed form of plain to dst.
func Append(dst, plain []byte) []byte { return encoder.EncodeAll(plain, dst) }

// Fill unpacks a packed piece into all of dst.
//
// Errors: packed is truncated or invalid, or its content does not have the length of dst.
func Fill(dst, packed []byte) error {
	plain, err := filler.DecodeAll(packed, dst[:0:len(dst)])
	if err == nil && len(plain) != len(dst) {
		err = fmt.Errorf("packed: content of %d bytes, want %d", len(plain), len(dst))
	}
	return err
}

// Unpack appends the content of packed, which may consist of several packed pieces, to dst.
//
// Errors: packed is truncated or invalid, or its content is longer than 1 GiB.
func Unpack(dst, packed []byte) ([]byte, error) { return decoder.DecodeAll(packed, dst) }
