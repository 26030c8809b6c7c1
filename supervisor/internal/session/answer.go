package session

import (
	"slices"
	"sync"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// Programs ask their terminal: for its kind, its cursor, its colours. Somebody
// has to answer, and nobody else may. At each offset one does: the viewer that
// decides (sizing.go) if it said so, else the session itself, in the words of
// the last one that decided. A viewer that answers gets the questions of its own offsets
// as they are, and those of others without their end, which makes them nothing.

const (
	// maxAnswers bounds what of ours waits for a child that asks and does not
	// read. Beyond it answers are dropped.
	maxAnswers = 32 << 10
	maxTurns   = 64 // changes of who answers that are remembered
	// Whoever starts a session may attach to it before it is told what its own
	// terminal would have answered better: its colours, for one. What the child
	// asks in this time is answered by whoever attaches to all of it, or else
	// by us when the time is over.
	// It delays a program that asks while nobody comes, so it is short.
	claimTime = 100 * time.Millisecond
	unclaimed = "?" // no writer's name
)

// answers knows who answers from which offset on. It is changed by loop alone,
// and read by whoever reads the ring.
type answers struct {
	mu    sync.Mutex
	turns []turn // ascending; before the first, somebody whom we do not know
}

// turn says that from an offset on a writer answers, or with "" the session.
type turn struct {
	from   uint64
	writer string
}

// now returns who answers.
func (w *answers) now() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.turns[len(w.turns)-1].writer
}

// change notes that from an offset on somebody answers, and reports whether that was
// somebody else.
func (w *answers) change(from uint64, writer string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	nobodys := false
	if k := len(w.turns); k > 0 && w.turns[k-1].from == from { // it was nobody's turn yet
		nobodys = w.turns[k-1].writer != writer
		w.turns = w.turns[:k-1]
	}
	if k := len(w.turns); k > 0 && w.turns[k-1].writer == writer {
		return nobodys
	}
	w.turns = append(w.turns, turn{from, writer})
	w.turns = slices.Clone(w.turns[max(0, len(w.turns)-maxTurns):])
	return true
}

// claim gives the questions from the beginning on, which are nobody's yet, to
// a writer.
func (w *answers) claim(writer string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.turns[0].writer == unclaimed {
		w.turns[0].writer = writer
	}
}

// at returns who answers a question that ends at offset, and false where that
// is not known any more.
func (w *answers) at(offset uint64) (writer string, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range slices.Backward(w.turns) {
		if t.from <= offset {
			return t.writer, true
		}
	}
	return "", false
}

// all reports whether a writer answers all questions from an offset to another.
func (w *answers) all(from, to uint64, writer string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range slices.Backward(w.turns) {
		switch {
		case t.from >= to:
		case t.writer != writer:
			return false
		case t.from <= from:
			return true
		}
	}
	return false
}

// mayAnswer reports whether an attachment with this spec answers, if it is its
// turn.
func mayAnswer(spec *protocol.AttachSpec) bool {
	return spec.Answers && spec.Mode != protocol.ModeReadOnly
}

// chooseAnswerer is called in loop, after somebody came, went or decided. What
// was printed before was asked of who answered before.
func (s *Session) chooseAnswerer() {
	s.feed()
	a := s.attachment(s.sizing.decider)
	if a != nil && !(mayAnswer(&a.spec) && s.hears(a)) {
		a = nil
	}
	if s.answers.now() == unclaimed {
		if a == nil {
			return
		}
		s.claim(a)
	}
	writer := ""
	if a != nil {
		writer = a.spec.Writer
	}
	if s.answers.change(s.shownTo(), writer) {
		s.note()
	}
}

// hears reports whether a gets what the program prints, and its questions with
// it; a view of its own has none.
func (s *Session) hears(a *Attachment) bool {
	return !a.deaf && (!a.ownView() || a.window == s.size)
}

// claim ends the time in which the first questions are nobody's: they are a's,
// if it sees them, and else ours.
func (s *Session) claim(a *Attachment) {
	if a != nil && a.spec.Resume != nil && a.pos == 0 {
		s.answers.claim(a.spec.Writer)
		s.reply(s.heldAlone)
	} else {
		s.answers.claim("")
		s.reply(s.held)
	}
	s.held, s.heldAlone, s.claimed = nil, nil, nil
	s.note()
}

// answerFor types what a screen answers to what the child has just asked, in its
// turn among the input. If a viewer answers, that is what the session alone can
// tell. That it has been asked is noted first: a successor must not answer twice.
func (s *Session) answerFor(sc *screen.Screen) {
	alone := sc.RepliesAlone()
	p := sc.Replies()
	if len(p) == 0 {
		return
	}
	if err := s.stateSlate.SetWord(wordTold, s.asked()); err != nil {
		s.log.Error().Err(err).Msg("state not written")
	}
	switch s.answers.now() {
	case "":
		s.reply(p)
	case unclaimed:
		s.held = append(s.held, p...)
		s.heldAlone = append(s.heldAlone, alone...)
		if left := claimTime - time.Since(s.begun); left <= 0 || len(s.held) > maxAnswers {
			s.claim(nil)
		} else if s.claimed == nil {
			s.claimed = time.After(left)
		}
	default:
		s.reply(alone)
	}
}

// asked is up to where the child's questions have been heard.
func (s *Session) asked() uint64 {
	if s.restoring != nil {
		return s.restoring.at()
	}
	return s.screen.Offset()
}

func (s *Session) reply(p []byte) {
	if len(p) == 0 || s.open() != nil {
		return
	}
	in := &s.input
	if in.journal.Pending() == 0 {
		in.answered = 0
	}
	if in.answered+len(p) > maxAnswers || len(p) > in.journal.Room() {
		return
	}
	in.answered += len(p)
	_, _ = s.accept("", 0, p) // a terminal that takes no input is about to end
}

// mask makes nothing of those questions in output at an offset that others
// than this viewer answer.
func (a *Attachment) mask(offset uint64, p []byte) {
	if !mayAnswer(&a.spec) {
		return // it has said that it never answers
	}
	if a.s.answers.all(offset, offset+uint64(len(p)), a.spec.Writer) {
		a.questions.Pass(p)
		return
	}
	a.questions.Apply(p, func(i int) bool {
		who, known := a.s.answers.at(offset + uint64(i))
		return !known || who != a.spec.Writer
	})
}
