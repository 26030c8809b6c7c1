package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

type attachOptions struct {
	readOnly, exclusive, steal bool
	detachKey                  string
	early                      time.Duration // an end within this time of the start is exited_early
}

func (o *attachOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.readOnly, "read-only", false, "look, do not type")
	f.BoolVar(&o.exclusive, "exclusive", false, "let nobody else type")
	f.BoolVar(&o.steal, "steal", false, "take the place of whoever is in the way")
	f.StringVar(&o.detachKey, "detach-key", defaultDetachKey, "`keys` that detach, or none")
}

func (o *attachOptions) mode() (protocol.Mode, error) {
	switch {
	case o.readOnly && (o.exclusive || o.steal):
		return "", usage(errors.New("--read-only goes with neither --exclusive nor --steal"))
	case o.readOnly:
		return protocol.ModeReadOnly, nil
	case o.exclusive:
		return protocol.ModeExclusive, nil
	}
	return protocol.ModeShared, nil
}

func (a *app) attachCommand() *cobra.Command {
	o := &attachOptions{}
	cmd := a.oneSession("attach ID", "Attach this terminal to a session; exits with the child's code", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			info, err := c.SessionInfo(cmd.Context(), id)
			if err != nil {
				return err
			}
			return a.attachTo(cmd, c, info, o)
		})
	o.flags(cmd)
	return cmd
}

// attachTo joins this terminal and a session until either ends.
func (a *app) attachTo(cmd *cobra.Command, c *client.Client, s *protocol.SessionInfo, o *attachOptions) error {
	mode, err := o.mode()
	if err != nil {
		return err
	}
	keys, err := parseDetachKey(o.detachKey)
	if err != nil {
		return err
	}
	if string(s.ID) == os.Getenv("HOLDFAST_SESSION") {
		return usage(fmt.Errorf("this terminal is session %s; attached to itself it would show itself for ever", s.ID))
	}
	ctx := cmd.Context()
	t := openTerminal(os.Stdin, os.Stdout)
	size := t.size()
	att, err := c.Attach(ctx, s.ID, client.AttachOptions{
		Cols: size.Cols, Rows: size.Rows, Mode: mode, Steal: o.steal, Term: os.Getenv("TERM"), IsTTY: t.isTerminal(),
	})
	if err != nil {
		return tellExited(err)
	}
	v := &viewer{att: att, term: t, keys: keys, detach: make(chan struct{})}
	if err := t.raw(); err != nil {
		return errors.Join(err, att.Detach())
	}
	// Whatever happens from here on, a panic included, this terminal is put
	// back as it was.
	defer t.restore()
	end := v.run(ctx)
	t.restore()
	return v.report(ctx, c, s, o, end)
}

// A viewer joins a terminal and an attachment.
//
//	run     shows what comes, in the calling goroutine
//	typing  reads the terminal; ended by the process's end
//	resize  follows the terminal's size
type viewer struct {
	att    *client.Attachment
	term   *terminal
	keys   *detachKey
	detach chan struct{} // closed by the detach keys
}

// errDetached ends the viewer by its user's wish.
var errDetached = errors.New("detached")

func (v *viewer) run(ctx context.Context) error {
	go v.typing()
	stop := v.followSize()
	defer stop()
	shown := make(chan error, 1)
	go func() { shown <- v.show() }()
	select {
	case err := <-shown:
		return err
	case <-v.detach:
		_ = v.att.Detach()
		return errDetached
	case <-ctx.Done(): // a signal
		_ = v.att.Detach()
		return ctx.Err()
	}
}

// show writes what comes until the attachment ends.
func (v *viewer) show() error {
	if v.att.Info().Replay == protocol.ReplaySnapshot {
		v.term.clear()
	}
	for {
		m, err := v.att.Receive(-1)
		if err != nil {
			return err
		}
		switch m.Kind {
		case client.Output, client.Snapshot:
			if _, err := v.term.Write(m.Data); err != nil {
				return fmt.Errorf("write to the terminal: %w", err)
			}
		case client.Missed:
			v.term.clear()
		case client.Exited:
			return nil
		case client.Stolen:
			return fmt.Errorf("%w: %s", client.ErrStolen, printable(m.By))
		case client.Failed:
			return m.Err
		}
	}
}

// typing brings what is typed to the session. The end of standard input ends
// the typing and not the viewing.
func (v *viewer) typing() {
	buf := make([]byte, 32<<10)
	keys := newKeyFilter(v.keys, func(p []byte) {
		_, _ = v.att.Write(p) // a read-only viewer's, or after the end
	})
	for {
		n, err := v.term.in.Read(buf)
		if n > 0 && keys.typed(buf[:n]) {
			close(v.detach)
			return
		}
		if err != nil {
			keys.flush()
			return
		}
	}
}

func (v *viewer) followSize() (stop func()) {
	if !v.term.isTerminal() {
		return func() {}
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGWINCH)
	go func() {
		for range c {
			size := v.term.size()
			_ = v.att.Resize(size.Cols, size.Rows) // after the end it does not matter
		}
	}()
	return func() { signal.Stop(c); close(c) }
}

// report says how the viewing ended and returns what the command exits with.
func (v *viewer) report(ctx context.Context, c *client.Client, s *protocol.SessionInfo, o *attachOptions, end error) error {
	switch {
	case errors.Is(end, errDetached):
		fmt.Fprintf(os.Stderr, "\r\n[detached from %s]\n", s.ID)
		return nil
	case ctx.Err() != nil:
		fmt.Fprintf(os.Stderr, "\r\n[detached from %s by a signal]\n", s.ID)
		return &exitError{128 + int(syscall.SIGTERM), ""}
	case end != nil && !errors.Is(end, io.EOF):
		return end
	}
	exit := v.att.Exit()
	if exit == nil {
		return nil
	}
	if time.Since(s.CreatedAt) < o.early {
		return earlyExit(ctx, c, s)
	}
	return childExit(exit.ExitCode)
}

// earlyExit is the error of a new session whose child has ended at once; the
// dead session is removed.
func earlyExit(ctx context.Context, c *client.Client, s *protocol.SessionInfo) error {
	record, err := c.Wait(ctx, s.ID, 0)
	if err != nil {
		return err
	}
	if err := c.Forget(ctx, s.ID); err != nil {
		fmt.Fprintln(os.Stderr, "proxy: the dead session is still listed:", err)
	}
	e := protocol.ExitedEarly(s.ID, record)
	e.Exit.Tail = nil // it stands on the terminal already
	return tellEarlyExit(e)
}

// tellExited puts a session's last lines under the error that it has exited.
func tellExited(err error) error {
	e := protocol.AsError(err)
	if e.Code != protocol.CodeSessionExited || e.Exit == nil {
		return err
	}
	text := e.Error()
	for _, l := range e.Exit.Tail {
		text += "\n  " + printable(l)
	}
	code := e.Exit.ExitCode
	if code <= 0 {
		code = exitNoInput
	}
	return &exitError{code, text}
}
