package session

import "holdfast/protocol"

// Input arrives in pieces with the writer's offset, from attachments and from requests.

// acceptInput accepts input of a writer at the writer's offset, and returns up to which offset
// the writer's input is accepted now. Bytes that were accepted before are skipped, so a client
// may repeat input if it does not know whether it arrived. a is the attachment that sent the
// input, or nil if a request sent it.
//
// Errors, which carry the accepted offset: input_gap if bytes before offset are missing;
// input_full if the queue has no room for all of it; line_too_long if all was accepted, but the
// terminal will cut a line of it. Besides, those of checkOpen.
func (s *Session) acceptInput(a *Attachment, name string, offset uint64, p []byte) (uint64, error) {
	if err := s.checkOpen(); err != nil {
		return 0, err
	}
	accepted, had, err := s.input.checkOffset(name, offset, len(p))
	if err != nil || had {
		return accepted, err
	}
	p = p[accepted-offset:]
	s.noteAnswer(name, p)
	s.noteInput()
	var n int
	if a != nil && !onlyReports(p) { // before p is accepted, so that the program finds the right size when it reads p
		s.decide(a)
		if s.saved.SizePolicy == protocol.SizeLatest {
			s.applySizePolicy()
		}
	}
	now := s.inputContext()
	if a == nil {
		n, err = s.input.queue(name, accepted, p)
	} else {
		n, err = s.queueViewerInput(a, accepted, p)
	}
	accepted += uint64(n)
	s.echoInput(now, p[:n])
	s.cfg.counts.inputBytes.Add(uint64(n))
	return accepted, s.input.result(accepted, p, n, err)
}

// Type accepts input that comes without an attachment. With a writer's name, input is accepted
// exactly once by the writer's offset; with the name "" offset is ignored. Errors: those of
// acceptInput; busy; internal if the journal of a viewer's input was damaged.
func (s *Session) Type(name string, offset uint64, p []byte) (accepted uint64, err error) {
	err = s.request(func() (err error) {
		if accepted, err = s.enterHold(name); err != nil { // it has checked that the session is open
			return err
		}
		if name != "" {
			accepted, err = s.acceptInput(nil, name, offset, p)
			return err
		}
		s.noteInput()
		now := s.inputContext()
		var n int
		n, err = s.input.queue("", 0, p)
		accepted = uint64(n)
		s.echoInput(now, p[:n])
		s.cfg.counts.inputBytes.Add(accepted)
		return s.input.result(accepted, p, n, err)
	})
	return accepted, err
}

// noteInput notes that the session has received input, from whatever client.
func (s *Session) noteInput() {
	s.activity.noteUse(s.cfg.Now())
	s.cfg.courtesy.noteInput(s.instance)
}
