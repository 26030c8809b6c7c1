package main

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
)

type recordOptions struct {
	output                   string
	input, overwrite, append bool
	title                    string
	idleLimit                time.Duration
}

func (a *app) recordCommand() *cobra.Command {
	o := &recordOptions{}
	cmd := &cobra.Command{
		Use:               "record ID -o FILE",
		Short:             "Record what a session shows, as an asciicast",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.sessionIDs(alive),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := sessionID(args[0])
			if err := errors.Join(err, o.check(id)); err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error { return o.record(cmd, c, id) })
		},
	}
	cmd.Long = "Record what a session shows from now on, until it ends or ctrl-c: an asciicast of\n" +
		"version 2, for asciinema and its players. It begins with the screen as it is. Whoever\n" +
		"records has no say in the session's size; where that changes, so it does in the recording.\n\n" +
		"The file is right after each event, whatever ends the recording. It is for its owner\n" +
		"alone (0600), as what is on a screen may be secret. --input has what is typed, too, by\n" +
		"whomever; where the terminal does not show it, as passwords, an asterisk stands for each\n" +
		"character. What a session has shown before is printed by proxy export."
	cmd.Example = "  proxy record build -o build.cast\n" +
		"  proxy record build -o - | asciinema cat -"
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "", "the `file` to write, - for standard output")
	f.BoolVar(&o.input, "input", false, "record what is typed, too")
	f.BoolVar(&o.overwrite, "overwrite", false, "replace a file that exists")
	f.BoolVar(&o.append, "append", false, "go on with a recording that exists")
	f.StringVar(&o.title, "title", "", "the recording's `title` (default the session's)")
	f.DurationVar(&o.idleLimit, "idle-limit", 0, "have players wait no longer than this `time`; what is recorded is as it was")
	f.Lookup("idle-limit").DefValue = "0s" // not shown
	cmd.MarkFlagsMutuallyExclusive("overwrite", "append")
	_ = cmd.MarkFlagFilename("output", "cast") // it is there, some lines up
	return cmd
}

func (o *recordOptions) check(id protocol.SessionID) error {
	switch {
	case o.output == "":
		return usage(errors.New("-o says where to record to: a file, or - for standard output"))
	case o.idleLimit < 0:
		return usage(errors.New("--idle-limit is not negative"))
	case o.output == "-" && isTerminal(os.Stdout): // it may be recording itself
		return notItself(id)
	}
	return nil
}

func (o *recordOptions) record(cmd *cobra.Command, c *client.Client, id protocol.SessionID) error {
	ctx := cmd.Context()
	none := 0 // a player has no use for lines above the screen
	view := client.AttachOptions{Mode: protocol.ModeReadOnly, History: &none}
	if o.input { // without a size it has no say in the session's either
		view.Mode, view.Typed = protocol.ModeShared, true
		if _, err := c.Environment(ctx, id); protocol.CodeOf(err) == protocol.CodeUnsupported {
			return err // nor would it tell what is typed
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
	w, length, done, err := openCast(o.output, raw(cmd), o.overwrite, o.append)
	if err != nil {
		return err
	}
	took, err := o.write(ctx, w, att, length)
	if err := errors.Join(err, done()); err != nil {
		return err
	}
	if o.output != "-" {
		fmt.Fprintf(stderr, "recorded %v of %s to %s\n", took.Round(time.Second), id, o.output)
	}
	return nil
}

// write writes what comes until the session ends or ctx is done, behind a recording
// of some length. It returns how long it took.
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
	} else { // another session may have been before, of another size
		err = errors.Join(cast.resized(now(), s.Size), cast.printed(now(), []byte(resetTerminal)))
	}
	stop := context.AfterFunc(ctx, func() { _ = att.Detach() })
	defer stop()
	for err == nil {
		var m *client.Message
		if m, err = att.Receive(-1); err != nil {
			break
		}
		switch m.Kind {
		case client.Output, client.Snapshot:
			err = cast.printed(now(), m.Data)
		case client.Typed:
			err = cast.typed(now(), m.Data)
		case client.Missed: // a snapshot follows
			err = errors.Join(cast.flush(now()), cast.printed(now(), []byte(resetTerminal)))
		case client.Resized:
			err = cast.resized(now(), m.Size)
		case client.Exited:
			err = io.EOF
		case client.Stolen:
			err = fmt.Errorf("%w: %s", client.ErrStolen, printable(m.By))
		case client.Failed:
			err = m.Err
		}
	}
	if errors.Is(err, io.EOF) { // its end, or ctrl-c
		err = nil
	}
	return time.Since(began), errors.Join(err, cast.flush(now()))
}

// resetTerminal makes a terminal as if it was new (RIS).
const resetTerminal = "\x1bc"
