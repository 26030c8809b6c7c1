package session

import (
	"time"

	"holdfast/protocol"
)

// A program that sends a text and then Enter sends two requests, because programs on a terminal distinguish a
// paste from a key by the time between them. The text and the key belong together, so the program's writer holds
// back the requests of other writers meanwhile. Attachments are not held back: their input may answer a query of
// the child.

// A hold is the right of one writer to send the next requests with input. loop owns it. It is not saved, because a
// successor that lacks it only accepts another writer's input earlier.
type hold struct {
	writer string    // "" if there is none
	until  time.Time // when it ends without a request of the writer
	isNew  bool      // the input that began it has not come yet
}

// HoldInput holds back the input requests of other writers from the writer's next request until the one after it,
// and at most for d. Errors: busy, and input_full if another writer holds them back.
func (s *Session) HoldInput(writer string, d time.Duration) error {
	return s.request(func() error {
		_, err := s.enterHold(writer)
		if err == nil {
			s.hold = hold{writer, s.cfg.Now().Add(d), true}
		}
		return err
	})
}

// enterHold is called before a request with input of a writer is accepted. It ends the writer's hold, unless the
// request is the one that began it. If another writer holds the input, the error is input_full with the accepted
// offset of this writer. Other errors: those of checkOpen and of doubtedInput.check.
func (s *Session) enterHold(writer string) (accepted uint64, err error) {
	if err := s.checkOpen(); err != nil {
		return 0, err
	}
	if err := s.saved.doubtedInput.check(s.id, writer); err != nil {
		return 0, err
	}
	switch h := &s.hold; {
	case h.writer == "" || h.writer == writer && h.isNew:
		h.isNew = false
	case h.writer == writer || !s.cfg.Now().Before(h.until):
		*h = hold{}
	default:
		if writer != "" {
			if accepted, _, err = s.input.journal.Writer(writer); err != nil {
				return 0, err
			}
		}
		return accepted, inputError(protocol.CodeInputFull, accepted, "another writer sends input that belongs together; send the input again in a moment")
	}
	return 0, nil
}
