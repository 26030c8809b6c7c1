package session

import (
	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// Paste and Press convert text and key names to the bytes that a terminal sends in the modes
// that the program has set. Such input is accepted completely or not at all. In the writer's
// offset it counts as the request and not as the bytes sent: one for each byte of the text, and
// one for each key.

// Paste accepts text that is pasted, as Type accepts input. The session adds the brackets of
// bracketed paste if the program has asked for them.
//
// Errors: those of Type, but input_full means that no byte was accepted; limit_exceeded if the
// text exceeds the whole queue; internal if the screen is lost.
func (s *Session) Paste(name string, offset uint64, text []byte) (accepted uint64, err error) {
	return s.convertInput(name, offset, len(text), func(sc *screen.Screen) ([]byte, error) { return sc.Paste(text), nil })
}

// Press accepts keys by name, as Type accepts input. Errors: those of Paste, and
// invalid_argument if a name is not that of a key.
func (s *Session) Press(name string, offset uint64, keys []string) (accepted uint64, err error) {
	return s.convertInput(name, offset, len(keys), func(sc *screen.Screen) ([]byte, error) { return sc.Keys(keys) })
}

// convertInput accepts input that stands for count bytes of a writer. made converts the input;
// it is called in loop after feed.
func (s *Session) convertInput(name string, offset uint64, count int, made func(*screen.Screen) ([]byte, error)) (accepted uint64, err error) {
	err = s.request(func() (err error) {
		if accepted, err = s.enterHold(name); err != nil {
			return err
		}
		s.feed()
		var p []byte
		err = protocol.Errorf(protocol.CodeInternal, "the input was not converted because of a defect of the terminal core; send it as plain data") // stays if made panics
		s.display.useRestored(func(sc *screen.Screen) { p, err = made(sc) })
		if err == nil {
			accepted, err = s.acceptWholeInput(name, offset, count, p)
		}
		return err
	})
	return accepted, err
}

// acceptWholeInput accepts all of p, which stands for count bytes of the writer at offset, or
// nothing.
func (s *Session) acceptWholeInput(name string, offset uint64, count int, p []byte) (uint64, error) {
	if err := s.checkOpen(); err != nil {
		return 0, err
	}
	accepted := uint64(0)
	if name != "" {
		var had bool
		var err error
		if accepted, had, err = s.input.checkOffset(name, offset, count); err != nil || had {
			return accepted, err
		}
		if offset < accepted {
			return accepted, protocol.Errorf(protocol.CodeInvalidArgument, "a paste or keys cannot begin before offset %d, up to which the writer's input was accepted; repeat the original request", accepted)
		}
	}
	if len(p) > s.input.max {
		return accepted, protocol.TooLarge("a paste or keys of %d bytes exceed the input queue of %d bytes; send them in pieces", len(p), s.input.max)
	}
	s.noteInput()
	now := s.inputContext()
	done, err := s.input.queueWhole(name, accepted, count, p)
	if err == nil && !done {
		return accepted, inputError(protocol.CodeInputFull, accepted, "the input queue of %d bytes has no room for all of the paste or keys; send it again later", s.input.max)
	}
	if !done {
		return accepted, err
	}
	s.echoInput(now, p)
	s.cfg.counts.inputBytes.Add(uint64(len(p)))
	accepted += uint64(count)
	return accepted, s.input.result(accepted, p, len(p), err)
}
