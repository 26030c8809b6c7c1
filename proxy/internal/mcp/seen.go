package mcp

import (
	"hash/maphash"
	"maps"

	"holdfast/protocol"
)

const (
	// maxSeen is the number of lines of a session of which the server knows that the agent has read them: more than the
	// rows of common terminals.
	maxSeen = 200
	// minMoved is the smallest number of lines that an answer does not repeat because they have only moved. Fewer would
	// save few tokens, and be harder to read.
	minMoved = 6
)

var seed = maphash.MakeSeed()

// A seen tells which lines and rows the agent has read last, as sums of their texts by their numbers. Programs as "top" and
// pagers write most of their rows again at other places.
type seen struct {
	lines, rows map[uint64]uint64
}

// after returns the lines and rows that the agent has read after an answer with these changes.
func (s seen) after(r *protocol.ChangesContent) seen {
	next := seen{make(map[uint64]uint64), make(map[uint64]uint64)}
	if !r.Whole {
		maps.Copy(next.lines, s.lines)
	}
	if !r.Whole && r.Alternate {
		maps.Copy(next.rows, s.rows)
	}
	for _, l := range r.Lines {
		note(next.lines, l.Line, l.Texts)
	}
	for _, l := range r.Rows {
		note(next.rows, uint64(l.Row), l.Texts)
	}
	maps.DeleteFunc(next.lines, func(number, _ uint64) bool { return number+maxSeen < r.Next || number >= r.Next })
	maps.DeleteFunc(next.rows, func(row, _ uint64) bool { return row >= maxSeen })
	return next
}

func note(sums map[uint64]uint64, first uint64, texts []string) {
	for i, text := range texts {
		sums[first+uint64(i)] = maphash.String(seed, text)
	}
}

// moved returns how many of the first texts the agent has read one below the other, or 0 if those are fewer than minMoved.
// The first of them must occur once in sums.
func moved(sums map[uint64]uint64, texts []string) int {
	if len(texts) < minMoved {
		return 0
	}
	at, times := uint64(0), 0
	first := maphash.String(seed, texts[0])
	for number, sum := range sums {
		if sum == first {
			at = number
			times++
		}
	}
	if times != 1 {
		return 0
	}
	n := 1
	for n < len(texts) {
		if sum, ok := sums[at+uint64(n)]; !ok || sum != maphash.String(seed, texts[n]) {
			break
		}
		n++
	}
	if n < minMoved {
		return 0
	}
	return n
}
