package ring

import "bytes"

// Poison is what lies where the next read(2) will put its bytes: whoever adopts
// the ring of a process that died tells by it how many there are.
//
// It is made of the 13 bytes that valid UTF-8 never has, so text is rescued to
// its last byte, also if that is in the middle of a character. Other output may
// lose its last bytes, if the process died between a read(2) and its Commit: the
// last one is taken for poison if it happens to be the one at its place, which
// is 1 in 256 if any byte is as likely as another, 1 in 65,536 for two of them,
// and 1 in 13 where the program prints nothing but such bytes.
const poisonBytes = "\xC0\xC1\xF5\xF6\xF7\xF8\xF9\xFA\xFB\xFC\xFD\xFE\xFF"

// poisonPeriod is after how many bytes it begins again: a page, which stays in
// the processor's nearest cache.
const poisonPeriod = 4 << 10

// poison is the same in each process: it is part of the layout.
var poison = newPoison()

// newPoison takes the bytes in an order without a pattern (SplitMix64 from 0).
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

// lay fills p, which lies at the given place of the ring's bytes.
func lay(p []byte, at int) {
	for len(p) > 0 {
		n := copy(p, poison[at%poisonPeriod:])
		p, at = p[n:], at+n
	}
}

// spoilt returns the length of the shortest prefix of p, which lies at the given
// place, behind which all is poison.
func spoilt(p []byte, at int) int {
	n := len(p)
	for n > 0 {
		k := min((at+n-1)%poisonPeriod+1, n) // back to where the poison begins again, or p does
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
