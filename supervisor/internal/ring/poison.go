package ring

import "bytes"

// poisonBytes are the 13 bytes that never occur in valid UTF-8. The memory that the next
// read(2) writes to is filled with them before the call. A program that adopts the ring of a
// dead process recognises by them how many bytes that read(2) has written.
//
// Text is therefore rescued to its last byte, even if that byte is in the middle of a
// character. Other output may lose its last bytes if the process died between a read(2) and its
// Commit, because a byte counts as poison if it is equal to the poison at its place. If all
// values of a byte are equally likely, the probability is 1 in 256 for one lost byte and 1 in
// 65,536 for two. For a program that prints only poison bytes it is 1 in 13 for each byte.
const poisonBytes = "\xC0\xC1\xF5\xF6\xF7\xF8\xF9\xFA\xFB\xFC\xFD\xFE\xFF"

// poisonPeriod is the number of bytes after which the poison repeats: one page, which stays in
// the processor's first cache.
const poisonPeriod = 4 << 10

// poison must be the same in every program, because it is part of the layout.
var poison = newPoison()

// newPoison returns one period of poison: poison bytes in a pseudo-random order (SplitMix64,
// seed 0).
func newPoison() *[poisonPeriod]byte {
	p := new([poisonPeriod]byte)
	var state uint64
	for i := range p {
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		p[i] = poisonBytes[(z^z>>31)%uint64(len(poisonBytes))]
	}
	return p
}

// layPoison fills p with poison. at is the place of p in the ring's buffer.
func layPoison(p []byte, at int) {
	for len(p) > 0 {
		n := copy(p, poison[at%poisonPeriod:])
		p, at = p[n:], at+n
	}
}

// unpoisonedLen returns the length of the shortest prefix of p that is followed only by poison.
// at is the place of p in the ring's buffer.
func unpoisonedLen(p []byte, at int) int {
	n := len(p)
	for n > 0 {
		k := min((at+n-1)%poisonPeriod+1, n) // back to the begin of the poison's period, or of p
		want := poison[(at+n-k)%poisonPeriod:][:k]
		if !bytes.Equal(p[n-k:n], want) {
			break
		}
		n -= k
	}
	for n > 0 && p[n-1] == poison[(at+n-1)%poisonPeriod] {
		n--
	}
	return n
}
