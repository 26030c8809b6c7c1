package cli

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/installed"
	"holdfast/shared/plain"
)

func (a *App) changesCommand() *cobra.Command {
	var mark string
	maxBytes := protocol.DefaultChangesBytes
	var since []byte
	cmd := a.JSONFlag(a.oneSession("changes ID", "Print what has changed in a session since the last call", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			r, err := c.Changes(cmd.Context(), id, since, maxBytes)
			if err != nil {
				return err
			}
			if a.JSON {
				return JSONTo(cmd.OutOrStdout()).Encode(r) // on one line, because it should be short
			}
			out := bufio.NewWriter(cmd.OutOrStdout())
			printChanges(out, id, r)
			return out.Flush()
		}))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		var err error
		if maxBytes < 0 {
			return exitcode.WrongUsagef("--max-bytes must not be negative")
		}
		if since, err = base64.StdEncoding.DecodeString(mark); err != nil {
			return exitcode.WrongUsagef("--since must be a mark that changes has printed")
		}
		if err := (protocol.ChangesSpec{SessionID: "any", Since: since, MaxBytes: maxBytes}).Validate(); err != nil {
			return exitcode.WrongUsage(err)
		}
		return nil
	}
	cmd.Long = "Print the least text that brings a reader up to date, for agents and scripts that follow a session:\n" +
		"the lines that are new or have changed, as NUMBER:TEXT, the rows of a full-screen program that have\n" +
		"changed, the commands that have ended, the cursor, and a mark for --since of the next call. Without\n" +
		"--since it prints the whole screen. If more than --max-bytes have changed, it prints the newest lines\n" +
		"and tells how to read the others."
	cmd.Example = "  proxy changes build\n  mark=$(proxy changes build | sed -n 's/^mark: //p'); proxy changes build --since \"$mark\""
	f := cmd.Flags()
	f.StringVar(&mark, "since", "", "print what has changed since this `mark` of an earlier call")
	f.IntVar(&maxBytes, "max-bytes", maxBytes, "print lines, rows and commands of at most so many `bytes`, as JSON")
	return cmd
}

// printChanges prints changes as text. The caller learns of errors when it flushes the writer.
func printChanges(w io.Writer, id protocol.SessionID, r *protocol.ChangesContent) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	if left := r.LeftOut; left != nil {
		say("lines %d to %d are left out; read them: %s history %s --before %d --lines %d", left.First, left.End-1, installed.Name(), id, left.End, left.End-left.First)
	}
	for _, l := range r.Lines {
		for i, text := range l.Texts {
			say("%d:%s", l.Line+uint64(i), plain.Text(text))
		}
	}
	for _, l := range r.Rows {
		for i, text := range l.Texts {
			say("row %d:%s", l.Row+i, plain.Text(text))
		}
	}
	if r.LeftOutRows > 0 {
		say("%d rows are left out; read them: %s screen %s", r.LeftOutRows, installed.Name(), id)
	}
	for _, c := range r.Commands {
		took := time.Duration(c.DurationMS) * time.Millisecond
		say("command %d: %s", c.Count, commandText(&protocol.CommandInfo{Line: c.Line, ExitCode: c.ExitCode, StartedAt: time.Unix(1, 0), FinishedAt: time.Unix(1, 0).Add(took)}))
	}
	if r.Title != nil && *r.Title != "" {
		say("title: %s", plain.Text(*r.Title))
	}
	say("cursor: column %d, row %d", r.Cursor.X, r.Cursor.Y)
	say("mark: %s", base64.StdEncoding.EncodeToString(r.Mark))
}
