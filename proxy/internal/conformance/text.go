package conformance

// block is the number of bytes of a line of text.
const block = 16

// text returns the output of the session between two offsets. Each line differs, so that a missing, repeated or
// moved byte shows. Characters have one, two, three and four bytes.
func text(from, to uint64) []byte {
	const hex = "0123456789abcdef"
	line := []byte("00000 é€🙂\n")
	first := from / block * block
	out := make([]byte, 0, to-first+block)
	for at := first; at < to; at += block {
		for i := range 5 {
			line[i] = hex[at/block>>(16-4*i)&15]
		}
		out = append(out, line...)
	}
	return out[from-first : to-first]
}

// keys returns input in which each byte tells where it belongs, as in text.
func keys(from, to uint64) []byte {
	b := text(from, to)
	for i := range b {
		b[i] ^= byte(from+uint64(i)) & 1 // differs from the output, also in bytes that no text has
	}
	return b
}
