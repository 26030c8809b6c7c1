package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/front"
	"holdfast/shared/plain"
)

// recordOptions are the flags of record.
type recordOptions struct {
	output                   string
	input, overwrite, append bool
	title                    string
	idleLimit                time.Duration
}

func (a *App) recordCommand() *cobra.Command {
	o := &recordOptions{}
	cmd := a.oneSession("record ID -o FILE", "Record a session's output as an asciicast", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			if o.output == "-" && front.IsTerminal(os.Stdout) { // it might record itself
				if err := a.notItself(cmd.Context(), c, id); err != nil {
					return err
				}
			}
			return o.record(cmd, c, id)
		})
	cmd.ValidArgsFunction = a.sessionIDs(alive)
	cmd.PreRunE = func(*cobra.Command, []string) error { return o.check() }
	cmd.Long = "Record a session's output until the session ends or ctrl-c is pressed. The recording is an asciicast\n" +
		"of version 2, for asciinema and its players. It begins with the current screen. The recorder does not\n" +
		"change the session's size; if that changes, the recording has the change.\n\n" +
		"The file is complete after each event, even if the recorder crashes. Only its owner can read it (0600),\n" +
		"because a screen may show secrets. --input also records the input of all viewers. If the terminal does\n" +
		"not show input, such as a password, each character is recorded as an asterisk, as is all input of a\n" +
		"session with secrets (--secret-env). proxy export prints the output from before the recording."
	cmd.Example = "  proxy record build -o build.cast\n" +
		"  proxy record build -o - | asciinema cat -"
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "", "the `file` to write, - for standard output")
	f.BoolVar(&o.input, "input", false, "record the input as well")
	f.BoolVar(&o.overwrite, "overwrite", false, "replace a file that exists")
	f.BoolVar(&o.append, "append", false, "continue an existing recording")
	f.StringVar(&o.title, "title", "", "the recording's `title` (default the session's)")
	SpanVar(f, &o.idleLimit, "idle-limit", 0, "tell players to shorten pauses to this `time`; the recorded times do not change")
	cmd.MarkFlagsMutuallyExclusive("overwrite", "append")
	_ = cmd.MarkFlagFilename("output", "cast") // the flag exists, so this cannot fail
	return cmd
}

// check reports invalid options.
func (o *recordOptions) check() error {
	switch {
	case o.output == "":
		return exitcode.WrongUsagef("-o is missing: name a file, or - for standard output")
	case o.idleLimit < 0:
		return exitcode.WrongUsagef("--idle-limit must not be negative")
	}
	return nil
}

// record attaches to the session and writes the recording.
func (o *recordOptions) record(cmd *cobra.Command, c *client.Client, id protocol.SessionID) error {
	ctx := cmd.Context()
	none := 0 // a player does not use lines above the screen
	view := client.AttachOptions{Mode: protocol.ModeReadOnly, History: &none, Mask: true}
	if o.input { // without a size this attachment does not change the session's size
		view.Mode, view.Typed = protocol.ModeShared, true
		if _, err := c.Environment(ctx, id); protocol.CodeOf(err) == protocol.CodeUnsupported {
			return err // such a supervisor does not send input to viewers either
		}
	}
	att, err := c.Attach(ctx, id, view)
	if err != nil {
		if protocol.CodeOf(err) == protocol.CodeSessionExited {
			err = fmt.Errorf("%w; proxy export prints what is kept of it", err)
		}
		return err
	}
	defer func() { _ = att.Detach() }()
	w, length, done, err := openCast(o.output, Raw(cmd), o.overwrite, o.append)
	if err != nil {
		return err
	}
	if length > 0 && (o.title != "" || o.idleLimit != 0) {
		Note("--title and --idle-limit have no effect, because %s has a header already", o.output)
	}
	took, err := o.write(ctx, w, att, length)
	if err := errors.Join(err, done()); err != nil {
		return err
	}
	if o.output != "-" {
		fmt.Fprintf(plain.Stderr, "recorded %v of %s to %s\n", took.Round(time.Second), id, o.output)
	}
	return nil
}

// write writes events until the session ends or ctx is done. length is the duration of the
// recording that it continues, or 0. It returns how long it recorded.
func (o *recordOptions) write(ctx context.Context, w io.Writer, att *client.Attachment, length time.Duration) (time.Duration, error) {
	s, began := att.Info().Session, time.Now()
	now := func() time.Duration { return length + time.Since(began) }
	cast := &castWriter{w: w, last: length}
	var err error
	if length == 0 {
		h := newCastHeader(&s, began)
		h.IdleTimeLimit = o.idleLimit.Seconds()
		if o.title != "" {
			h.Title = o.title
		}
		err = cast.line(h)
	} else { // the recording may continue another session, with another size
		err = errors.Join(cast.writeSize(now(), s.Size), cast.writeOutput(now(), []byte(resetTerminal)))
	}
	defer context.AfterFunc(ctx, func() { _ = att.Detach() })()
	for err == nil {
		var m *client.Message
		if m, err = att.Receive(-1); err != nil {
			break
		}
		switch m.Kind {
		case client.Output, client.Snapshot:
			err = cast.writeOutput(now(), m.Data)
		case client.Typed:
			err = cast.writeInput(now(), m.Data)
		case client.Missed: // a snapshot follows
			err = errors.Join(cast.flush(now()), cast.writeOutput(now(), []byte(resetTerminal)))
		case client.Resized:
			err = cast.writeSize(now(), m.Size)
		case client.Exited:
			err = io.EOF
		case client.Stolen:
			err = front.StolenError(m)
		case client.Failed:
			err = m.Err
		}
	}
	if errors.Is(err, io.EOF) { // the session has ended, or ctrl-c was pressed
		err = nil
	}
	return time.Since(began), errors.Join(err, cast.flush(now()))
}

// resetTerminal is RIS, which resets a terminal to its initial state.
const resetTerminal = "\x1bc"
