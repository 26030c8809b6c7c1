package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/front"
)

// A stretch is the part of a session's past that the flags --from and --until choose.
type stretch struct{ from, until *protocol.Moment }

func (s *stretch) flags(cmd *cobra.Command, verb string) {
	MomentVar(cmd.Flags(), &s.from, "from", verb+" the output from this `MOMENT` on (default what is stored first)")
	MomentVar(cmd.Flags(), &s.until, "until", verb+" the output up to this `MOMENT` (default the end)")
}

// isSet reports whether one of the flags was given.
func (s *stretch) isSet() bool { return s.from != nil || s.until != nil }

// offsets returns the first and the last offset of the stretch.
func (s *stretch) offsets(ctx context.Context, c *client.Client, id protocol.SessionID) (from, until uint64, err error) {
	p, err := c.Past(ctx, id, 1, 1)
	if err != nil {
		return 0, 0, err
	}
	from, until = p.Start, p.End
	if s.from != nil {
		if from, err = c.OffsetAt(ctx, id, *s.from); err != nil {
			return 0, 0, err
		}
	}
	if s.until != nil {
		if until, err = c.OffsetAt(ctx, id, *s.until); err != nil {
			return 0, 0, err
		}
	}
	switch {
	case from <= until:
		return from, until, nil
	case s.until == nil:
		err = fmt.Errorf("--from is behind the output, which ends at offset %d", until)
	case s.from == nil:
		err = fmt.Errorf("--until is before the output that is kept, which begins at offset %d", from)
	default:
		err = errors.New("--until is a moment before --from")
	}
	return 0, 0, exitcode.WrongUsage(err)
}

// playOptions are the flags of play.
type playOptions struct {
	stretch
	speed float64
	idle  time.Duration
}

func (a *App) playCommand() *cobra.Command {
	o := &playOptions{}
	cmd := a.oneSession("play ID", "Show the past of a session in this terminal, with its timing", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			from, until, err := o.offsets(cmd.Context(), c, id)
			if err != nil {
				return err
			}
			a.answered() // the terminal becomes raw
			return front.Play(cmd.Context(), a.ending.open(), recording{c, id}, front.PlayOptions{From: from, Until: until, Speed: o.speed, MaxPause: o.idle})
		})
	cmd.PreRunE = func(*cobra.Command, []string) error {
		a.ending.catchToo(syscall.SIGQUIT) // the default action would leave the terminal raw, and print all goroutines
		if !(o.speed > 0 && o.speed <= 1000) {
			return exitcode.WrongUsagef("--speed must be greater than 0, and at most 1000")
		}
		if o.idle < 0 {
			return exitcode.WrongUsagef("--idle-limit must not be negative")
		}
		if !front.Open(os.Stdin, os.Stdout).Escapes() {
			return exitcode.WrongUsagef("play needs a terminal; proxy export --format cast --from 0 writes a recording")
		}
		return nil
	}
	cmd.Long = "Show the past of a session in this terminal, with its timing: of a running, an exited or a lost session.\n\n" +
		"Space pauses, the left and right arrows go back and ahead 10 seconds, up and down a minute, and q leaves.\n" +
		"The sizes of the session and of this terminal should be equal. Bells, notifications and changes of the\n" +
		"clipboard are not repeated.\n\n" + momentHelp
	cmd.Example = "  proxy play build\n  proxy play build --from -1h --speed 10\n  proxy play build --from 'command -2' --until 'command -1'"
	o.stretch.flags(cmd, "show")
	cmd.Flags().Float64Var(&o.speed, "speed", 1, "show it so many `times` as fast")
	SpanVar(cmd.Flags(), &o.idle, "idle-limit", 2*time.Second, "shorten longer pauses to this `time`")
	return cmd
}

// recording is the past of a session. It implements front.Recording.
type recording struct {
	c  *client.Client
	id protocol.SessionID
}

// State returns the screen at a moment, in the format state.
func (r recording) State(ctx context.Context, at protocol.Moment) (*protocol.ScreenContent, error) {
	return r.c.Screen(ctx, r.id, client.ScreenOptions{Format: protocol.ScreenState, At: &at})
}

// Output yields the output from one offset to another.
func (r recording) Output(ctx context.Context, from, to uint64) iter.Seq2[client.PastOutput, error] {
	if from >= to {
		return func(func(client.PastOutput, error) bool) {}
	}
	return r.c.ReadPast(ctx, r.id, from, to)
}
