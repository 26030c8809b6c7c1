package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/plain"
)

// historyOptions are the flags of history.
type historyOptions struct {
	before       uint64
	lines        int
	command      int
	commands     bool
	ansi, number bool
}

func (a *App) historyCommand() *cobra.Command {
	o := &historyOptions{}
	cmd := a.JSONFlag(a.oneSession("history ID", "Print the lines above a session's screen", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			if o.commands {
				return a.printCommands(cmd, c, id)
			}
			h, err := readHistory(cmd.Context(), c, id, o.request(cmd))
			if err != nil {
				return err
			}
			if a.JSON {
				return JSONTo(cmd.OutOrStdout()).Encode(withDuration(h)) // on one line, because there are many lines
			}
			if h.Truncated {
				Note("a part of the command's output has left the history or was erased; the lines that remain follow")
			}
			noteCut(id, h.Lines)
			out := bufio.NewWriter(Raw(cmd))
			for _, l := range h.Lines {
				o.print(out, l, h.Looks)
			}
			return out.Flush()
		}))
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case o.lines < 0:
			return exitcode.WrongUsagef("--lines must not be negative")
		case o.command == 0 && cmd.Flags().Changed("command"):
			return exitcode.WrongUsagef("--command must not be 0; -1 is the last command")
		}
		return nil
	}
	cmd.Example = "  proxy history build --lines 50\n  proxy history build --before 413 --lines 10 --number   # what led to line 413\n" +
		"  proxy history build --command -1          # the output of the last command\n  proxy history build --commands"
	cmd.Long = "Print the lines above a session's screen, oldest first.\n\n" +
		"Wrapped lines are joined. A line keeps its number for as long as it is kept. --before with the\n" +
		"number of a line, as search prints it, prints the lines before that line.\n\n" +
		"--command prints the output of a command that has ended, and --json also its exit code, duration,\n" +
		"directory and output offsets. --commands lists these commands. The shell must report its commands\n" +
		"(see new --shell-integration)."
	f := cmd.Flags()
	f.Uint64Var(&o.before, "before", 0, "print lines before the line with this `number` (default the lines above the screen)")
	f.IntVar(&o.lines, "lines", protocol.DefaultHistoryLines, "print the last `n` lines; 0 prints all, which is the default for --command")
	f.IntVar(&o.command, "command", 0, "print the output of the command with this `number`: -1 is the last one, -2 the one before it; a positive number is one that --commands prints")
	f.BoolVar(&o.commands, "commands", false, "list the last commands that have ended, oldest first")
	f.BoolVarP(&o.number, "number", "n", false, "print each line's number before it")
	f.BoolVar(&o.ansi, "ansi", false, "print colours, for a terminal")
	cmd.MarkFlagsMutuallyExclusive("ansi", "json")
	cmd.MarkFlagsMutuallyExclusive("number", "json")
	for _, other := range []string{"command", "before", "lines", "ansi", "number"} {
		cmd.MarkFlagsMutuallyExclusive("commands", other)
	}
	return cmd
}

// request returns the request for the lines that the flags select.
func (o *historyOptions) request(cmd *cobra.Command) client.HistoryOptions {
	r := client.HistoryOptions{Lines: o.lines, Command: o.command}
	if o.command != 0 && !cmd.Flags().Changed("lines") {
		r.Lines = 0
	}
	if cmd.Flags().Changed("before") {
		r.Before = &o.before
	}
	return r
}

// historyJSON is a history, with the duration of the command whose output it has.
type historyJSON struct {
	*protocol.HistoryContent
	DurationMS *int64 `json:"duration_ms,omitempty"`
}

func withDuration(h *protocol.HistoryContent) historyJSON {
	if h.Command == nil {
		return historyJSON{HistoryContent: h}
	}
	return historyJSON{h, new(h.Command.FinishedAt.Sub(h.Command.StartedAt).Milliseconds())}
}

// printCommands prints the commands that have ended, each with the number for --command.
func (a *App) printCommands(cmd *cobra.Command, c *client.Client, id protocol.SessionID) error {
	r, err := c.Commands(cmd.Context(), id)
	if err != nil {
		return err
	}
	if a.JSON {
		return PrintJSON(cmd, r)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	for _, one := range r.Commands {
		_, _ = fmt.Fprintf(out, "%d: %s\n", one.Count, commandText(&one)) // Flush returns the error
	}
	return out.Flush()
}

// readHistory reads o.Lines lines (0 reads all) with as many requests as necessary, and returns them
// as one answer with the oldest line first.
func readHistory(ctx context.Context, c *client.Client, id protocol.SessionID, o client.HistoryOptions) (*protocol.HistoryContent, error) {
	var all *protocol.HistoryContent
	for lines, left := o.Lines, o.Lines; ; left = lines - len(all.Lines) {
		if lines == 0 {
			left = protocol.MaxHistoryLines
		}
		o.Lines = min(left, protocol.MaxHistoryLines)
		part, err := c.History(ctx, id, o)
		if err != nil {
			return nil, err
		}
		switch {
		case all == nil:
			all = part
		case part.Instance != all.Instance:
			return nil, protocol.Errorf(protocol.CodeInstanceMismatch, "session %s was started again meanwhile", id)
		default:
			addHistory(all, part)
		}
		if n := len(part.Lines); part.More && n > 0 && (lines == 0 || len(all.Lines) < lines) {
			o.Before = &part.Lines[n-1].Line
			if part.Command != nil {
				o.Command = int(part.Command.Count) // the same command, also if another one has ended meanwhile
			}
			continue
		}
		slices.Reverse(all.Lines)
		return all, nil
	}
}

// noteCut says so if lines are longer than their texts in a history.
func noteCut(id protocol.SessionID, lines []protocol.HistoryLine) {
	n := 0
	for _, l := range lines {
		if l.Cut {
			n++
		}
	}
	if n > 0 {
		Note("only the beginning of %s follows, because long lines are cut; proxy export %s --from 0 prints all", plain.Count(n, "line"), id)
	}
}

// addHistory appends older lines to all. It renumbers their styles, because each answer numbers its
// own.
func addHistory(all, older *protocol.HistoryContent) {
	number := make([]int, len(older.Looks))
	for i, l := range older.Looks {
		if number[i] = slices.Index(all.Looks, l); number[i] < 0 {
			number[i] = len(all.Looks)
			all.Looks = append(all.Looks, l)
		}
	}
	for _, l := range older.Lines {
		for i, s := range l.Spans {
			if s.Look >= 0 && s.Look < len(number) {
				l.Spans[i].Look = number[s.Look]
			}
		}
		all.Lines = append(all.Lines, l)
	}
	all.More = older.More
}

// print writes one line. The caller learns of errors when it flushes the writer.
func (o *historyOptions) print(w io.Writer, l protocol.HistoryLine, looks []protocol.Look) {
	var b strings.Builder
	if o.number {
		fmt.Fprintf(&b, "%d:", l.Line)
	}
	for _, s := range l.Spans {
		sgr := ""
		if o.ansi && s.Look > 0 && s.Look < len(looks) {
			sgr = sgrOf(looks[s.Look])
		}
		if sgr == "" {
			b.WriteString(s.Text)
		} else {
			b.WriteString("\x1b[" + sgr + "m" + s.Text + "\x1b[0m")
		}
	}
	_, _ = fmt.Fprintln(w, b.String())
}
