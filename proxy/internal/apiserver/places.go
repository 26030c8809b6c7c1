package apiserver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"

	"holdfast/protocol"
)

// The supervisor numbers the events of all sessions. A client that sees one workspace only could
// learn from gaps in the numbers how much happens in other workspaces. Such a client receives an
// enciphered number instead, from which only the proxy can compute the position. The cipher is a
// Feistel network on numbers of 52 bits, because JavaScript can represent them exactly. A table of positions per
// connection would not do, because a client resumes over another connection, and often through another proxy.

const (
	halfBits    = 26
	halfMask    = 1<<halfBits - 1
	placeRounds = 8 // 4 rounds look random if each half is large (Luby and Rackoff, 1988); these halves have only 26 bits
)

// places enciphers and deciphers event numbers. Proxies that follow each other have the same key.
type places struct{ key []byte }

func newPlaces(secret string) places {
	key := sha256.Sum256([]byte("holdfast events " + secret))
	return places{key[:]}
}

// encode returns the enciphered number. decode returns the event number of an enciphered one. Both
// map 0 to 0, because 0 means "before all events".
func (p places) encode(seq uint64) uint64 { return keepZero(seq, p.encipher) }
func (p places) decode(at uint64) uint64  { return keepZero(at, p.decipher) }

// keepZero makes a permutation that maps 0 to 0. The number that permute maps to 0 gets the value
// that permute gives to 0.
func keepZero(n uint64, permute func(uint64) uint64) uint64 {
	if n == 0 {
		return 0
	}
	if n = permute(n); n == 0 {
		n = permute(0)
	}
	return n
}

// encipher permutes the numbers below 2^52.
func (p places) encipher(n uint64) uint64 {
	left, right := n>>halfBits&halfMask, n&halfMask
	for round := range uint64(placeRounds) {
		left, right = right, left^p.mix(round, right)
	}
	return left<<halfBits | right
}

// decipher is the inverse of encipher.
func (p places) decipher(n uint64) uint64 {
	left, right := n>>halfBits&halfMask, n&halfMask
	for round := placeRounds; round > 0; round-- {
		left, right = right^p.mix(uint64(round-1), left), left
	}
	return left<<halfBits | right
}

// mix is the round function: the low 26 bits of an HMAC of the round and one half.
func (p places) mix(round, half uint64) uint64 {
	h := hmac.New(sha256.New, p.key)
	h.Write(binary.BigEndian.AppendUint64(nil, round<<halfBits|half))
	return binary.BigEndian.Uint64(h.Sum(nil)) & halfMask
}

// place returns the number of an event for the client, enciphered if the client cannot see all
// sessions.
func (c *caller) place(seq uint64) uint64 {
	if c.canSeeAll() {
		return seq
	}
	return c.s.places.encode(seq)
}

// after returns the event number for the number that the client received with its last event.
func (c *caller) after(instance protocol.Instance, at uint64) uint64 {
	if c.canSeeAll() || instance == "" {
		return at
	}
	return c.s.places.decode(at)
}
