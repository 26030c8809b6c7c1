package session

import (
	"context"

	"holdfast/protocol"
	"holdfast/supervisor/internal/replay"
	"holdfast/supervisor/internal/screen"
)

// past returns the past of the session for one request. It does not wait for loop. Describe asks
// loop for the last commands, and the past asks it for a keyframe if the store does not suffice.
func (s *Session) past() (*replay.Past, error) {
	_, err := s.Info()
	if err != nil {
		return nil, err
	}
	r := &s.recording
	clears := r.clears.Load() // before clearedTo, so that a clear between them is not missed
	p := &replay.Past{
		Mode: protocol.DurableOff, Ring: s.ring, Masker: s.masker, ClearedTo: r.clearedTo.Load(), IsBlank: !s.continues,
		Lines: s.spec.ScrollbackLines, Created: s.created, LastOutput: s.activity.last.get(), Now: s.cfg.Now(),
		Keyframe: func() (k replay.Keyframe, err error) { // that a successor would restore
			err = s.requestWithin(frameTime, func() (err error) { k.Offset, k.Data, err = s.display.keyframe.read(); return err })
			return k, err
		},
		Recent: func() (all []protocol.PastCommand) { // none if the session is busy
			_ = s.ask(frameTime, func() { all = s.saved.Log.past() })
			return all
		},
	}
	if !r.isStored() {
		return p, nil
	}
	p.Mode = r.mode
	p.Reader, err = r.open(clears)
	return p, err
}

// past returns the commands with a known place of their output.
func (l commandLog) past() (all []protocol.PastCommand) {
	for _, c := range l {
		if p, ok := pastCommand(c); ok {
			all = append(all, p)
		}
	}
	return all
}

// pastCommand converts a command for the past. ok is false if the command has not ended, or if the
// place of its output is unknown.
func pastCommand(c protocol.CommandInfo) (p protocol.PastCommand, ok bool) {
	if c.Output == nil || c.FinishedAt.IsZero() {
		return p, false
	}
	return protocol.PastCommand{
		Line: c.Line, Cwd: c.Cwd, Start: c.Output.Start, End: c.Output.End, StartedAt: c.StartedAt, FinishedAt: c.FinishedAt, ExitCode: c.ExitCode,
	}, true
}

// Past describes the past of the session.
//
// Errors: session_not_found; ctx's; those of the store.
func (s *Session) Past(ctx context.Context, spec protocol.PastSpec) (protocol.PastContent, error) {
	p, err := s.past()
	if err != nil {
		return protocol.PastContent{}, err
	}
	c, err := p.Describe(ctx, spec)
	c.Instance = s.instance
	for i := range c.Commands {
		c.Commands[i].Line, c.Commands[i].Cwd = s.masker.CutText(c.Commands[i].Line), s.masker.Text(c.Commands[i].Cwd)
	}
	return c, err
}

// ShowAt returns the screen content that spec selects at the moment spec.At. Only the present
// screen is read in loop; each other one is rebuilt in the goroutine of the caller.
//
// Errors: not_stored; limit_exceeded; session_not_found; ctx's; those of the store.
func (s *Session) ShowAt(ctx context.Context, spec protocol.ScreenSpec) (protocol.ScreenContent, error) {
	p, err := s.past()
	if err != nil {
		return protocol.ScreenContent{}, err
	}
	offset, err := p.Offset(ctx, *spec.At)
	if err != nil {
		return protocol.ScreenContent{}, err
	}
	if _, end, _ := s.ring.Bounds(); offset == end {
		if c, err := s.Show(spec); err == nil && c.Offset == offset {
			c.PrintedAt = p.LastOutput
			return c, nil
		}
	}
	sc, err := p.Screen(ctx, offset)
	if err != nil {
		return protocol.ScreenContent{}, err
	}
	sc.SetMasker(s.masker)
	c, err := contentOf(spec, func(take func(*screen.Screen) error) error { return take(sc.Screen) })
	c.Instance, c.PrintedAt, c.Inexact = s.instance, sc.PrintedAt, !sc.IsExact
	return c, err
}

// ReadPast returns up to n bytes of output from offset on. If the byte at offset is not kept, they
// begin at the next byte that the store or the ring has. They end where output is missing.
//
// Errors: session_not_found; ctx's; those of the store.
func (s *Session) ReadPast(ctx context.Context, offset uint64, n int) (replay.Output, error) {
	p, err := s.past()
	if err != nil {
		return replay.Output{}, err
	}
	return p.Read(ctx, offset, n)
}

// SearchPast returns the lines of output that match the pattern of spec, the newest first.
//
// Errors: invalid_argument for an invalid pattern; session_not_found; ctx's; those of the store.
func (s *Session) SearchPast(ctx context.Context, spec protocol.PastSearchSpec) (protocol.PastSearchContent, error) {
	p, err := s.past()
	if err != nil {
		return protocol.PastSearchContent{}, err
	}
	c, err := p.Search(ctx, spec)
	c.Instance = s.instance
	return c, err
}
