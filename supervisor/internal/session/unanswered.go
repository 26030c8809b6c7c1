package session

import (
	"bytes"
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

const (
	maxUnanswered       = 4 << 10 // bytes of replies that are kept for a responder; further ones are dropped
	maxUnansweredOwners = 16      // responders for which replies are kept; the earliest are dropped
)

// unanswered are the session's replies to queries that were assigned to viewers. It is a part of savedState, and loop
// owns it.
type unanswered struct {
	Unanswered []unansweredReply `json:"unanswered,omitempty"`
}

// unansweredReply is the session's reply to the queries that a writer has not answered.
type unansweredReply struct {
	Writer string `json:"writer"`
	Reply  []byte `json:"reply"`
}

func (u *unanswered) index(writer string) int {
	return slices.IndexFunc(u.Unanswered, func(r unansweredReply) bool { return r.Writer == writer })
}

// add keeps the replies of all to queries that writer must answer, and reports whether it has kept any. own are the
// replies in all that the session has sent itself.
func (u *unanswered) add(writer string, all, own []byte) bool {
	reply, isCertain := withoutOwn(all, own)
	if !isCertain {
		return false
	}
	i := u.index(writer)
	if i < 0 {
		u.Unanswered = append(u.Unanswered[max(0, len(u.Unanswered)-maxUnansweredOwners+1):], unansweredReply{Writer: writer})
		i = len(u.Unanswered) - 1
	}
	r := &u.Unanswered[i]
	if len(r.Reply)+len(reply) > maxUnanswered {
		return false
	}
	r.Reply = append(r.Reply, reply...)
	return true
}

// take returns the replies that are kept for writer, and forgets them.
func (u *unanswered) take(writer string) []byte {
	i := u.index(writer)
	if i < 0 {
		return nil
	}
	reply := u.Unanswered[i].Reply
	u.Unanswered = slices.Delete(u.Unanswered, i, i+1)
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

// noteAnswer forgets the replies that are kept for a writer if its input may answer the queries.
func (s *Session) noteAnswer(writer string, p []byte) {
	if s.saved.index(writer) >= 0 && mayAnswer(p) {
		s.saved.take(writer)
		s.noteChange()
	}
}

// answerFor sends the replies that are kept for a writer, because the writer has left for good.
func (s *Session) answerFor(writer string) {
	if reply := s.saved.take(writer); len(reply) > 0 {
		s.noteChange()
		s.reply(reply)
	}
}
