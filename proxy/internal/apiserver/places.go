package apiserver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"holdfast/protocol"
)

// The supervisor numbers the events of all sessions. A client that sees those of
// one workspace would learn from the gaps how much happens elsewhere, so it gets
// for each number another one, which means the same place and nothing else: the
// number, enciphered by a Feistel network over numbers that JavaScript can hold.

const (
	halfBits    = 26
	halfMask    = 1<<halfBits - 1
	placeRounds = 8 // four make a permutation that looks random (Luby and Rackoff, 1988), if each half is large
)

// places tells the places of events in words that only we understand.
type places struct{ key []byte }

func newPlaces(secret string) places {
	key := sha256.Sum256([]byte("holdfast events " + secret))
	return places{key[:]}
}

// hide returns the place of a number, find the number of a place. 0, which is
// before all events, stays as it is: what would fall on it takes its place.
func (p places) hide(seq uint64) uint64 { return keepZero(seq, p.encipher) }
func (p places) find(at uint64) uint64  { return keepZero(at, p.decipher) }

func keepZero(n uint64, permute func(uint64) uint64) uint64 {
	if n == 0 {
		return 0
	}
	if n = permute(n); n == 0 {
		n = permute(0)
	}
	return n
}

func (p places) encipher(n uint64) uint64 {
	left, right := n>>halfBits&halfMask, n&halfMask
	for round := range uint64(placeRounds) {
		left, right = right, left^p.mix(round, right)
	}
	return left<<halfBits | right
}

func (p places) decipher(n uint64) uint64 {
	left, right := n>>halfBits&halfMask, n&halfMask
	for round := placeRounds; round > 0; round-- {
		left, right = right^p.mix(uint64(round-1), left), left
	}
	return left<<halfBits | right
}

func (p places) mix(round, half uint64) uint64 {
	h := hmac.New(sha256.New, p.key)
	h.Write(binary.BigEndian.AppendUint64(nil, round<<halfBits|half))
	return binary.BigEndian.Uint64(h.Sum(nil)) & halfMask
}

// place is an event's number as the client is told it.
func (c *conn) place(seq uint64) uint64 {
	if c.seesAll() {
		return seq
	}
	return c.s.places.hide(seq)
}

// after is the number of the last event that the client says it knows.
func (c *conn) after(instance protocol.Instance, at uint64) uint64 {
	if c.seesAll() || instance == "" {
		return at
	}
	return c.s.places.find(at)
}
