package session

import (
	"bytes"
	"math"
	"slices"

	"holdfast/shared/escseq"
)

// A responder may leave before it has answered a query: it has not read the query, or its connection was lost with the
// answer. Some programs wait for an answer without a time limit. Therefore the session keeps its own replies until the
// responder sends an answer, and sends them if the responder leaves for good.
//
// A late reply to a program that waits no longer would become input of the next program. Therefore the session keeps
// replies only if the queries contain one that every terminal answers. A responder that is attached answers it at once,
// so a reply that is still kept when the responder leaves was never given.
//
// A responder that is attached may skip output: the ring has overtaken it, or it begins again with a snapshot for another reason.
// It has not received the queries in that output, so the session answers them. Therefore each reply has the offset behind
// which its queries were printed.

const (
	maxUnanswered        = 4 << 10 // bytes of replies that are kept for a responder; further ones are dropped
	maxUnansweredBatches = 64      // replies that are kept for a responder, one for each piece of output with queries
	maxUnansweredOwners  = 16      // responders for which replies are kept; the earliest are dropped
)

// unanswered are the session's replies to queries that were assigned to viewers. It is a part of savedState, and loop
// owns it.
type unanswered struct {
	Unanswered []unansweredReply `json:"unanswered,omitempty"`
}

// unansweredReply is the session's reply to the queries in a piece of output, which a writer has not answered.
type unansweredReply struct {
	Writer string `json:"writer"`
	Reply  []byte `json:"reply"`
	From   uint64 `json:"from,omitempty"` // offset at which the piece begins
}

// add keeps the replies of all to queries that writer must answer, and reports whether it has kept any. The queries are in
// the output from an offset on. own are the replies in all that the session has sent itself.
func (u *unanswered) add(writer string, from uint64, all, own []byte) bool {
	reply, isCertain := withoutOwn(all, own)
	if !isCertain {
		return false
	}
	size, batches := 0, 0
	var others []string
	for _, r := range u.Unanswered {
		if r.Writer == writer {
			size, batches = size+len(r.Reply), batches+1
		} else if !slices.Contains(others, r.Writer) {
			others = append(others, r.Writer)
		}
	}
	if size+len(reply) > maxUnanswered || batches == maxUnansweredBatches {
		return false
	}
	if len(others) == maxUnansweredOwners {
		u.take(others[0], 0, math.MaxUint64)
	}
	u.Unanswered = append(u.Unanswered, unansweredReply{writer, reply, from})
	return true
}

// take returns the replies that are kept for writer to the output between two offsets, and forgets them.
func (u *unanswered) take(writer string, from, to uint64) (reply []byte) {
	u.Unanswered = slices.DeleteFunc(u.Unanswered, func(r unansweredReply) bool {
		isTaken := r.Writer == writer && r.From >= from && r.From < to
		if isTaken {
			reply = append(reply, r.Reply...)
		}
		return isTaken
	})
	return reply
}

// withoutOwn returns the replies of all without those of own, which are in all in the same order. isCertain reports
// whether one of them answers a query that every terminal answers.
func withoutOwn(all, own []byte) (reply []byte, isCertain bool) {
	for len(all) > 0 {
		u := escseq.NextInput(all)
		var each []byte
		each, all = all[:u.Len], all[u.Len:]
		if remainder, isOwn := bytes.CutPrefix(own, each); isOwn {
			own = remainder
			continue
		}
		reply = append(reply, each...)
		isCertain = isCertain || isCertainAnswer(&u)
	}
	return reply, isCertain
}

// isCertainAnswer reports whether u answers a query that every terminal answers: DA1, the status or the cursor.
func isCertainAnswer(u *escseq.Input) bool {
	if !isCSI(u) || len(u.Body) == 0 {
		return false
	}
	switch u.Final {
	case 'c':
		return u.Body[0] == '?'
	case 'n':
		return string(u.Body) == "0"
	}
	return u.Final == 'R' && u.Body[0] != '?'
}

// mayAnswer reports whether p, input of a viewer, may contain an answer to a query. It also returns true for a part of a sequence,
// because an answer may arrive in pieces.
func mayAnswer(p []byte) bool {
	for len(p) > 0 {
		u := escseq.NextInput(p)
		if !u.Complete || isReport(&u) && !isFocus(&u) && u.Mouse == nil && (len(u.Body) == 0 || u.Body[0] != '<') {
			return true
		}
		p = p[u.Len:]
	}
	return false
}

// noteAnswer forgets the replies that are kept for a writer if its input may answer the queries. The writer answers no query that
// it has not received. It may answer one that the screen has not seen; the turn of the writer then tells that no reply to that
// one must be kept.
func (s *Session) noteAnswer(writer string, p []byte) {
	_, end, _ := s.ring.Bounds()
	shownTo := s.display.shownTo()
	isBehind := shownTo < end
	if len(s.saved.Unanswered) == 0 && !isBehind || !mayAnswer(p) {
		return
	}
	received := uint64(math.MaxUint64)
	if a := s.viewers.of(writer); a != nil {
		received = a.pacer.pos.Load()
	}
	isTaken := len(s.saved.take(writer, 0, received)) > 0
	if isBehind && s.answers.noteAnswered(writer, shownTo, received) || isTaken {
		s.noteChange()
	}
}

// answerFor sends the replies that are kept for a writer to the output from an offset on, because the writer has left for good or
// does not receive that output.
func (s *Session) answerFor(writer string, from uint64) {
	if reply := s.saved.take(writer, from, math.MaxUint64); len(reply) > 0 {
		s.noteChange()
		s.reply(reply)
	}
}
