package session

import (
	"fmt"

	"holdfast/protocol"
)

// What is pasted, and keys by name, are turned into what a terminal sends by the modes
// that the program has set by now. They are taken whole or not at all, and to their
// writer's offset they count as what was asked for: a byte for each of the text, and for
// each key.

// Paste is Type for text that was not typed key by key.
//
// Errors: those of Type, where input_full means that nothing was taken; limit_exceeded
// for more than the queue ever holds.
func (s *Session) Paste(name string, offset uint64, text []byte) (accepted uint64, err error) {
	return s.typeWhole(name, offset, len(text), func() ([]byte, error) { return s.screen.Paste(text), nil })
}

// Press is Type for keys by name. Errors: those of Paste, and invalid_argument for what
// is no key.
func (s *Session) Press(name string, offset uint64, keys []string) (accepted uint64, err error) {
	return s.typeWhole(name, offset, len(keys), func() ([]byte, error) { return s.screen.Keys(keys) })
}

// typeWhole types count bytes of a writer's, which made makes in loop.
func (s *Session) typeWhole(name string, offset uint64, count int, made func() ([]byte, error)) (accepted uint64, err error) {
	if unanswered := s.ask(answerTime, func() {
		s.feed()
		var p []byte
		err = protocol.Errorf(protocol.CodeInternal, "by a mistake of ours it is not known what to type") // unless made returns
		s.core(func() { p, err = made() })
		if err == nil {
			accepted, err = s.typedWhole(name, offset, count, p)
		}
	}); unanswered != nil {
		return 0, unanswered
	}
	return accepted, err
}

// typedWhole is typed for what is taken whole, as p.
func (s *Session) typedWhole(name string, offset uint64, count int, p []byte) (uint64, error) {
	if err := s.open(); err != nil {
		return 0, err
	}
	accepted := uint64(0)
	if name != "" {
		var had bool
		var err error
		if accepted, had, err = s.placed(name, offset, count); err != nil || had {
			return accepted, err
		}
		if offset < accepted {
			return accepted, protocol.Errorf(protocol.CodeInvalidArgument, fmt.Sprintf("what is taken whole begins before %d, up to which input was accepted", accepted))
		}
	}
	if len(p) > s.input.max {
		return accepted, protocol.Errorf(protocol.CodeLimitExceeded, fmt.Sprintf("%d bytes to be taken whole, and the input queue holds %d", len(p), s.input.max))
	}
	s.lastIO.set(s.cfg.Now())
	s.cfg.courtesy.typed(s)
	now := s.moment()
	done, err := s.acceptWhole(name, accepted, count, p)
	if err == nil && !done {
		return accepted, inputError(protocol.CodeInputFull, accepted, "the input queue of %d bytes has no room for all of it", s.input.max)
	}
	if !done {
		return accepted, err
	}
	s.overhear(now, p)
	s.cfg.counts.typed.Add(uint64(len(p)))
	accepted += uint64(count)
	return accepted, s.taken(accepted, p, len(p), err)
}

// acceptWhole takes all of p, for count bytes of the writer's, or nothing.
func (s *Session) acceptWhole(name string, offset uint64, count int, p []byte) (done bool, err error) {
	if name == "" {
		if len(p) > s.input.journal.Room() {
			return false, nil
		}
		n, err := s.accept("", 0, p)
		return n == len(p), err
	}
	n, err := s.replace(name, offset, count, p)
	return n == count, err
}
