package session

import (
	"math"
	"slices"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/picture"
	"holdfast/supervisor/internal/screen"
)

// Programs send queries to their terminal, for its kind, its cursor or its colours. Exactly one
// responder must answer each query. At each offset of the output there is one responder: the
// deciding viewer (sizing.go) if it has offered to respond, otherwise the session itself, which
// answers with the appearance of the last deciding viewer. The responder receives terminal
// queries unchanged. Every other viewer receives them with the final byte replaced by CAN, so
// that its terminal ignores them. If the responder leaves before it has answered, or skips the
// query, the session answers (unanswered.go).

const (
	// maxReplies bounds the session's own replies that wait for a child which sends queries and
	// does not read. Further replies are dropped.
	maxReplies        = 32 << 10
	maxResponderTurns = 64 // changes of the responder that are remembered
	// claimTime is how long the first queries of a new session wait for a viewer. A client that
	// starts a session usually attaches at once, and its terminal knows better answers, for
	// example its colours. A viewer that attaches within claimTime and receives all output
	// answers these queries; otherwise the session answers them. claimTime delays a program
	// that sends queries while no viewer attaches. Helix and Neovim wait 100 ms for an answer,
	// and then do without it, so claimTime must be much shorter. The queries of a session that is
	// unattended (protocol.SpawnSpec) do not wait.
	claimTime = 50 * time.Millisecond
	unclaimed = "?" // no writer has this name
)

// responders knows which writer responds from which offset on. Only loop changes it. The
// goroutines of viewers read it.
type responders struct {
	mu     sync.Mutex
	turns  []responderTurn // ascending by offset; the responder before the first is unknown
	seenTo uint64          // viewers have received output up to this offset with its queries, or without them
}

// responderTurn makes a writer the responder from an offset on. The writer "" is the session
// itself. The last turn is never answered.
type responderTurn struct {
	From       uint64 `json:"from"`
	Writer     string `json:"writer"`
	IsAnswered bool   `json:"answered,omitempty"` // the writer has sent answers since it received the output of this turn
}

// current returns the writer that responds now.
func (w *responders) current() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.turns[len(w.turns)-1].Writer
}

// setFrom makes writer the responder from an offset on, and reports whether this changed the
// responder.
func (w *responders) setFrom(from uint64, writer string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.turn(from, writer)
}

// handOver makes writer the responder from now on, and reports whether this changed the responder. The screen has the output
// up to shownTo, and viewers may have more, of which each knows whether it responds. The responder before stays that of this
// output, unless it has left.
func (w *responders) handOver(shownTo uint64, writer string, hasLeft bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := max(shownTo, w.turns[len(w.turns)-1].From)
	if !hasLeft {
		from = max(from, w.seenTo)
	}
	return w.turn(from, writer)
}

// turn does the work of setFrom. mu must be held.
func (w *responders) turn(from uint64, writer string) bool {
	nobodys := false
	if k := len(w.turns); k > 0 && w.turns[k-1].From == from { // the last change concerned no output yet
		nobodys = w.turns[k-1].Writer != writer
		w.turns = w.turns[:k-1]
	}
	if k := len(w.turns); k > 0 && w.turns[k-1].Writer == writer && !w.turns[k-1].IsAnswered {
		return nobodys
	}
	w.setTurns(append(w.turns, responderTurn{From: from, Writer: writer}))
	return true
}

// setTurns sets the last turns of all. mu must be held.
func (w *responders) setTurns(all []responderTurn) {
	w.turns = slices.Clone(all[max(0, len(all)-maxResponderTurns):])
}

// noteAnswered notes that a writer, which has received the output before an offset, has answered the queries in it that the screen,
// which has the output up to shownTo, has not seen. It splits the turn at the offset, and reports whether it has changed a turn. If
// the writer is not attached, the offset is unknown (math.MaxUint64), and the writer has received at most as much as any viewer.
func (w *responders) noteAnswered(writer string, shownTo, received uint64) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if received == math.MaxUint64 {
		received = w.seenTo
	}
	if received <= shownTo {
		return false
	}
	var turns []responderTurn
	add := func(t responderTurn) {
		if k := len(turns); k == 0 || turns[k-1].Writer != t.Writer || turns[k-1].IsAnswered != t.IsAnswered {
			turns = append(turns, t)
		}
	}
	for i, t := range w.turns {
		if t.Writer != writer || t.IsAnswered || t.From >= received {
			add(t)
			continue
		}
		changed = true
		add(responderTurn{t.From, writer, true})
		if i == len(w.turns)-1 || w.turns[i+1].From > received {
			add(responderTurn{received, writer, false})
		}
	}
	w.setTurns(turns)
	return changed
}

// answeredTo returns the offset before which a writer has answered the queries that it has received, as far as noteAnswered knows.
func (w *responders) answeredTo(writer string) (offset uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, next := range w.turns[1:] {
		if t := w.turns[i]; t.Writer == writer && t.IsAnswered {
			offset = next.From
		}
	}
	return offset
}

// claim assigns the first queries, which have no responder yet, to a writer.
func (w *responders) claim(writer string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.turns[0].Writer == unclaimed {
		w.turns[0].Writer = writer
	}
}

// at returns the responder of a query that ends at offset. known is false if that turn is
// forgotten.
func (w *responders) at(offset uint64) (writer string, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range slices.Backward(w.turns) {
		if t.From <= offset {
			return t.Writer, true
		}
	}
	return "", false
}

// before returns the turn of the queries that end in the output just before offset.
func (w *responders) before(offset uint64) responderTurn {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range slices.Backward(w.turns) {
		if t.From < max(offset, 1) {
			return t
		}
	}
	return w.turns[len(w.turns)-1]
}

// end returns the offset from which another responder than at offset responds, or the greatest offset.
func (w *responders) end(offset uint64) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.turns {
		if t.From > offset {
			return t.From
		}
	}
	return math.MaxUint64
}

// respondsToAll reports whether writer responds to all queries between two offsets, which a viewer is about to receive.
func (w *responders) respondsToAll(from, to uint64, writer string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seenTo = max(w.seenTo, to)
	for _, t := range slices.Backward(w.turns) {
		switch {
		case t.From >= to:
		case t.Writer != writer:
			return false
		case t.From <= from:
			return true
		}
	}
	return false
}

// answering decides which queries the session answers itself. loop owns it, besides responders.
type answering struct {
	responders
	startedAt time.Time        // when this process started or adopted the session, by the real clock and not by Config.Now
	held      *heldReplies     // in the session's savedState
	lookedTo  uint64           // the screen's replies to queries before this offset were taken
	due       <-chan time.Time // when it fires, the session must answer the queries of held
}

// heldReplies are the session's replies to queries that are not assigned to a responder yet.
type heldReplies struct {
	HeldReplies    []byte `json:"held,omitempty"`
	HeldOwnReplies []byte `json:"held_alone,omitempty"` // the part of HeldReplies that a viewer cannot give
}

// admit returns the replies that the session must send now, of all that its screen has made to queries of writer. own are
// those that a viewer cannot give. If the queries have no responder yet, admit holds the replies.
// claimed reports whether the wait for a responder is over, and the session answers these queries.
func (w *answering) admit(writer string, all, own []byte) (send []byte, claimed bool) {
	switch writer {
	case "":
		return all, false
	case unclaimed:
		h := w.held
		h.HeldReplies, h.HeldOwnReplies = append(h.HeldReplies, all...), append(h.HeldOwnReplies, own...)
		if left := claimTime - time.Since(w.startedAt); left <= 0 || len(h.HeldReplies) > maxReplies {
			return w.claim(""), true
		} else if w.due == nil {
			w.due = time.After(left)
		}
		return nil, false
	}
	return own, false
}

// claim assigns the first queries to a writer, or with "" to the session, and returns the replies
// that the session must send.
func (w *answering) claim(writer string) (send []byte) {
	w.responders.claim(writer)
	send = w.held.HeldReplies
	if writer != "" {
		send = w.held.HeldOwnReplies
	}
	*w.held, w.due = heldReplies{}, nil
	return send
}

// canRespond reports whether an attachment with this spec may become the responder.
func canRespond(spec *protocol.AttachSpec) bool {
	return spec.Answers && spec.Mode != protocol.ModeReadOnly
}

// chooseResponder makes the deciding viewer, or the session, the responder for output from now
// on. It is called in loop after a viewer has attached, detached or decided. It first writes
// the output so far to the screen, because queries in it belong to the previous responder. So do
// those in output that viewers have received before the screen.
func (s *Session) chooseResponder() {
	s.feed()
	a := s.viewers.of(s.saved.Decider)
	if a != nil && !(canRespond(&a.spec) && a.receivesOutput(s.size)) {
		a = nil
	}
	if s.answers.current() == unclaimed {
		if a == nil {
			return
		}
		s.claim(a)
	}
	writer := ""
	if a != nil {
		writer = a.spec.Writer
	}
	before := s.answers.current()
	former := s.viewers.of(before)
	hasLeft := before != "" && (s.viewers.isGone(before) || former != nil && !canRespond(&former.spec)) // a lost viewer may still answer
	if s.answers.handOver(s.display.shownTo(), writer, hasLeft) {
		s.noteChange()
	}
}

// receivesOutput reports whether a receives the output of a session of this size, with its queries. A
// view of a's own contains none.
func (a *Attachment) receivesOutput(size protocol.Size) bool {
	return !a.noOutput && (!a.ownView() || a.window == size)
}

// claim ends the wait of the first queries for a responder. a responds to them if it receives
// all output from offset 0; otherwise the session does.
func (s *Session) claim(a *Attachment) {
	writer := ""
	if a != nil && a.spec.Resume != nil && a.pos == 0 {
		writer = a.spec.Writer
		s.saved.add(writer, 0, s.saved.HeldReplies, s.saved.HeldOwnReplies)
	}
	s.reply(s.answers.claim(writer))
	s.noteChange()
}

// sendReplies queues the screen's replies to the latest queries as input. If a viewer responds,
// only the replies that a viewer cannot give are sent. The offset is saved before, so that a
// successor does not answer the same queries again.
func (s *Session) sendReplies(sc *screen.Screen) {
	from := s.answers.lookedTo
	s.answers.lookedTo = sc.Offset()
	alone := sc.RequiredReplies()
	p := sc.Replies()
	if len(p) == 0 {
		return
	}
	if err := s.stateSlate.SetWord(wordAnswered, sc.Offset()); err != nil {
		s.log.Error().Err(err).Msg("offset of answered queries not saved; a successor may answer some of them again")
	}
	turn := s.answers.before(sc.Offset())
	writer := turn.Writer
	send, claimed := s.answers.admit(writer, p, alone)
	s.reply(send)
	if claimed || writer != "" && writer != unclaimed && !turn.IsAnswered && s.saved.add(writer, from, p, alone) {
		s.noteChange()
	}
	if writer != s.answers.current() && s.viewers.isGone(writer) {
		s.answerFor(writer, 0)
	}
}

func (s *Session) reply(p []byte) {
	if len(p) == 0 || s.checkOpen() != nil {
		return
	}
	s.input.reply(p)
}

// mask covers the pictures in p, output at offset, that the viewer does not show, and disables queries.
func (a *Attachment) mask(offset uint64, p []byte) {
	if alike := picture.Formats(a.alike.Load()); alike != picture.AllFormats {
		a.cover.Apply(p, alike)
	}
	a.maskQueries(offset, p)
}

// maskQueries disables those queries in p, output at offset, for which another writer responds, and those that the viewer has
// received before.
func (a *Attachment) maskQueries(offset uint64, p []byte) {
	if !canRespond(&a.spec) {
		return // its client has promised to ignore queries
	}
	if a.s.answers.respondsToAll(offset, offset+uint64(len(p)), a.spec.Writer) && offset >= a.receivedTo {
		a.queryMask.Pass(p)
		return
	}
	a.queryMask.Apply(p, func(i int) bool {
		writer, known := a.s.answers.at(offset + uint64(i))
		return !known || writer != a.spec.Writer || offset+uint64(i) < a.receivedTo
	})
}
