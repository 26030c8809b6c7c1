package session

import (
	"slices"

	"holdfast/protocol"
	"holdfast/supervisor/internal/screen"
)

// commandLogText bounds the lines and directories in a commandLog, in bytes.
const commandLogText = 64 << 10

// commandLog has the last protocol.MaxCommands commands of a session that have ended, or fewer if
// their texts are long. The newest is the last. A command is replaced, and never changed, because
// events share its parts.
type commandLog []protocol.CommandInfo

// add adds a command, and drops the oldest ones that have no room.
func (l *commandLog) add(c protocol.CommandInfo) {
	c.Prompt = false
	all := append(*l, c)
	first, text := len(all), 0
	for first > 0 && len(all)-first < protocol.MaxCommands && text <= commandLogText {
		first--
		text += len(all[first].Line) + len(all[first].Cwd)
	}
	if text > commandLogText && first < len(all)-1 {
		first++
	}
	if first > 0 {
		all = slices.Delete(all, 0, first)
	}
	*l = all
}

// since returns the commands behind the first count ones of the session.
func (l commandLog) since(count uint64) (all []protocol.ChangedCommand) {
	for _, c := range l {
		if c.Count > count {
			all = append(all, protocol.ChangedCommand{
				Count: c.Count, Line: c.Line, ExitCode: c.ExitCode, DurationMS: c.FinishedAt.Sub(c.StartedAt).Milliseconds(),
			})
		}
	}
	return all
}

// find returns the command with a number, as HistorySpec.Command numbers it. Errors: not_stored if
// the log does not have the command, or does not know where its output is.
func (l commandLog) find(number int) (*protocol.CommandInfo, error) {
	i := len(l) + number
	if number > 0 {
		i = slices.IndexFunc(l, func(c protocol.CommandInfo) bool { return c.Count == uint64(number) })
	}
	if len(l) == 0 {
		return nil, protocol.Errorf(protocol.CodeNotStored, "the session keeps no ended command; only a shell with shell integration reports its commands")
	}
	if i < 0 || i >= len(l) {
		return nil, protocol.Errorf(protocol.CodeNotStored, "the session does not keep a command %d; the ended commands that it keeps are %d to %d", number, l[0].Count, l[len(l)-1].Count)
	}
	c := l[i]
	if c.Output == nil {
		return nil, protocol.Errorf(protocol.CodeNotStored, "the place of the output of command %d is unknown", number)
	}
	return &c, nil
}

// erase notes that the lines from a number on were erased, and reports whether that changed a
// command. Later lines may have the same numbers.
func (l commandLog) erase(line uint64) (hasChanged bool) {
	for i, c := range l {
		if c.Output == nil || !endsBehind(c.Output.To, line) {
			continue
		}
		output := *c.Output
		output.To, output.Erased = protocol.LinePlace{Line: line}, true
		if endsBehind(output.From, line) {
			output.From = output.To
		}
		l[i].Output, hasChanged = &output, true
	}
	return hasChanged
}

// endsBehind reports whether text up to a place has a part in the lines from a number on.
func endsBehind(p protocol.LinePlace, line uint64) bool {
	return p.Line > line || p.Line == line && p.Byte > 0
}

// erase notes that the lines from a number on were erased. It reports whether that changed c.
func (c *commands) erase(line uint64) (hasChanged bool) {
	hasChanged = c.Log.erase(line)
	next := c.current()
	switch {
	case next.Output == nil:
		return hasChanged
	case !next.FinishedAt.IsZero():
		if n := len(c.Log); n > 0 {
			next.Output = c.Log[n-1].Output // the same command
		}
	default:
		output := *next.Output
		output.Erased = true
		if endsBehind(output.From, line) {
			output.From = protocol.LinePlace{Line: line}
		}
		hasChanged = hasChanged || output != *next.Output
		next.Output = &output
	}
	if hasChanged {
		c.Command = &next
	}
	return hasChanged
}

// restore sets the commands that a recording has, up to an offset of the output. Later ones are not
// on the screen of that offset.
func (c *commands) restore(ended []protocol.CommandInfo, end uint64) {
	for _, e := range ended {
		if e.Output == nil || e.Output.End <= end {
			c.Log.add(e)
		}
	}
	if n := len(c.Log); n > 0 {
		c.Command = &c.Log[n-1]
	}
}

// endOutput returns the output of a command that has ended with m. It is nil if the start of the
// output is unknown.
func endOutput(o *protocol.CommandOutput, m screen.Mark) *protocol.CommandOutput {
	if o == nil {
		return nil
	}
	ended := *o
	ended.End, ended.To = max(m.Begin, o.Start), m.Place
	if from := o.From; ended.To.Line < from.Line || ended.To.Line == from.Line && ended.To.Byte < from.Byte {
		ended.To = from // the program has moved the cursor up
	}
	return &ended
}
