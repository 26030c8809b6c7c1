package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"holdfast/protocol"
)

// MarkCommand is the kind of the marks in the store that have a command, in the form of
// EncodeCommand.
const MarkCommand = 'D'

// maxCommandBytes bounds the commands in one reply, in bytes of JSON.
const maxCommandBytes = 512 << 10

// EncodeCommand returns the text of a mark that has a command.
func EncodeCommand(c protocol.PastCommand, limit int) string {
	for {
		text, err := json.Marshal(c)
		if err == nil && len(text) <= limit {
			return string(text)
		}
		switch {
		case c.Cwd != "":
			c.Cwd = ""
		case c.Line != "":
			c.Line = ""
		default:
			return ""
		}
	}
}

func parseCommand(text string) (c protocol.PastCommand, ok bool) {
	err := json.Unmarshal([]byte(text), &c)
	return c, err == nil && c.Start <= c.End && len(c.Line) <= protocol.MaxTitle && len(c.Cwd) <= protocol.MaxCwdBytes
}

// Describe describes the past.
//
// Errors: ctx's, and those of the store.
func (p *Past) Describe(ctx context.Context, spec protocol.PastSpec) (protocol.PastContent, error) {
	e, err := p.extent()
	if err != nil {
		return protocol.PastContent{}, err
	}
	c := protocol.PastContent{Mode: p.Mode, Start: p.start(e), End: e.last(), EndAt: p.LastOutput}
	if spec.To == 0 || spec.To > c.End {
		spec.To = c.End
	}
	var t samples
	spec.From = max(spec.From, p.ClearedTo)
	l := newCommandList(spec)
	if p.Reader != nil {
		if c.Gaps, err = p.gaps(e, spec); err != nil {
			return c, err
		}
		for n, err := range p.Reader.Notes(spec.From, spec.To) {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return c, err
			}
			if n.Missing > 0 {
				c.Gaps = append(c.Gaps, protocol.PastGap{From: n.Offset, To: n.Offset + n.Missing})
			} else if n.Kind == 0 {
				t.add(n.Offset, n.Time)
			} else if command, ok := parseCommand(n.Text); ok && n.Kind == MarkCommand {
				l.add(command)
			}
		}
		slices.SortFunc(c.Gaps, func(a, b protocol.PastGap) int { return cmp.Compare(a.From, b.From) })
	}
	for _, command := range p.recent() {
		l.add(command)
	}
	if spec.To == c.End && !p.LastOutput.IsZero() {
		t.add(c.End, p.LastOutput)
	}
	c.StartAt, c.Times = p.startAt(c.Start), t.list()
	c.Gaps, c.MoreGaps = largest(c.Gaps)
	c.Commands, c.MoreCommands = l.list()
	return c, nil
}

// start returns the first offset at which the screen can be shown.
func (p *Past) start(e extent) uint64 {
	switch {
	case e.start < e.end || p.Reader != nil && e.start == e.end && e.end > 0:
		return e.start
	case p.IsBlank && e.ringStart == 0:
		return 0
	}
	if k := p.keyframe(); len(k.Data) > 0 && k.Offset >= e.ringStart {
		return k.Offset
	}
	return e.last()
}

func (p *Past) startAt(start uint64) time.Time {
	if start == 0 {
		return p.Created
	}
	if p.Reader != nil {
		if at, err := p.Reader.TimeAt(start); err == nil {
			return at
		}
	}
	return time.Time{}
}

// gaps returns the output that is missing in the range of spec.
func (p *Past) gaps(e extent, spec protocol.PastSpec) ([]protocol.PastGap, error) {
	stored, err := p.Reader.Gaps()
	if err != nil {
		return nil, err
	}
	var all []protocol.PastGap
	for _, g := range stored {
		all = append(all, protocol.PastGap{From: g.From, To: g.To})
	}
	if e.end < e.ringStart { // the store does not have it yet, or leaves it out
		all = append(all, protocol.PastGap{From: e.end, To: e.ringStart})
	}
	return slices.DeleteFunc(all, func(g protocol.PastGap) bool { return g.To < spec.From || g.From > spec.To }), nil
}

// largest returns the largest gaps in ascending order, and whether there are more.
func largest(all []protocol.PastGap) (some []protocol.PastGap, more bool) {
	if len(all) <= protocol.MaxPastGaps {
		return all, false
	}
	slices.SortFunc(all, func(a, b protocol.PastGap) int { return cmp.Compare(b.To-b.From, a.To-a.From) })
	some = all[:protocol.MaxPastGaps]
	slices.SortFunc(some, func(a, b protocol.PastGap) int { return cmp.Compare(a.From, b.From) })
	return some, true
}

// samples are pairs of an offset and a time that are spread over all that were added.
type samples struct {
	all    []protocol.PastTime
	stride int // only each so-many-th is kept
	seen   int
}

func (s *samples) add(offset uint64, at time.Time) {
	if n := len(s.all); n > 0 && s.all[n-1].Offset >= offset {
		return
	}
	s.stride = max(s.stride, 1)
	if s.seen++; (s.seen-1)%s.stride != 0 {
		return
	}
	if len(s.all) == 2*protocol.MaxPastTimes {
		s.all = everyOther(s.all)
		s.stride *= 2
	}
	s.all = append(s.all, protocol.PastTime{Offset: offset, At: at})
}

func everyOther(all []protocol.PastTime) []protocol.PastTime {
	some := all[:0]
	for i := 0; i < len(all); i += 2 {
		some = append(some, all[i])
	}
	return some
}

// list returns the samples, at most protocol.MaxPastTimes.
func (s *samples) list() []protocol.PastTime {
	for len(s.all) > protocol.MaxPastTimes {
		s.all = everyOther(s.all)
	}
	if s.all == nil {
		return []protocol.PastTime{}
	}
	return s.all
}

// A commandList has the last commands that were added, each once.
type commandList struct {
	spec protocol.PastSpec
	all  []protocol.PastCommand
	more bool
}

func newCommandList(spec protocol.PastSpec) *commandList { return &commandList{spec: spec} }

// add adds a command, unless it ended before the last one that was added: an earlier supervisor
// may have stored a command that this one knows as well.
func (l *commandList) add(c protocol.PastCommand) {
	if n := len(l.all); c.End < l.spec.From || c.End > l.spec.To || n > 0 && c.End <= l.all[n-1].End {
		return
	}
	if len(l.all) == 2*protocol.MaxPastCommands {
		l.all, l.more = slices.Delete(l.all, 0, protocol.MaxPastCommands), true
	}
	l.all = append(l.all, c)
}

// list returns as many of the last commands as a reply has room for, and whether there are more.
func (l *commandList) list() (some []protocol.PastCommand, more bool) {
	first, room := len(l.all), maxCommandBytes
	for first > 0 && len(l.all)-first < protocol.MaxPastCommands {
		text, err := json.Marshal(l.all[first-1])
		if room -= len(text) + 1; err != nil || room < 0 {
			break
		}
		first--
	}
	return l.all[first:], l.more || first > 0
}

func (p *Past) recent() []protocol.PastCommand {
	if p.Recent == nil {
		return nil
	}
	return p.Recent()
}

// commandEnd returns the offset at which a command ended. n is negative, and -1 is the last one.
func (p *Past) commandEnd(ctx context.Context, n int) (uint64, error) {
	recent := p.recent()
	if k := len(recent); -n <= k {
		return recent[k+n].End, nil
	}
	c, err := p.Describe(ctx, protocol.PastSpec{})
	if err != nil {
		return 0, err
	}
	if k := len(c.Commands); -n <= k {
		return c.Commands[k+n].End, nil
	}
	return 0, p.noCommand(n, len(c.Commands))
}

func (p *Past) noCommand(n, known int) error {
	if known == 0 {
		return protocol.Errorf(protocol.CodeNotStored, "no command of this session is known; its shell has reported none (see proxy new --shell-integration)")
	}
	return protocol.Errorf(protocol.CodeNotStored, "command %d is not known; the oldest that is known is %d", n, -known)
}
