package cli

import (
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/plain"
	"holdfast/shared/sysexits"
)

// awaitOptions are the flags that tell what a command waits for.
type awaitOptions struct {
	text    string
	prompt  bool
	idle    time.Duration
	timeout time.Duration // negative means for ever
}

// flags adds the flags with a prefix, and --timeout.
func (o *awaitOptions) flags(cmd *cobra.Command, prefix string) {
	f := cmd.Flags()
	f.StringVar(&o.text, prefix+"text", "", "wait for a line that this `regexp` (RE2) matches, and print it")
	f.BoolVar(&o.prompt, prefix+"prompt", false, "wait until the shell waits for a command; the shell must report its prompts (OSC 133)")
	spanVar(f, &o.idle, prefix+"idle", 0, "wait until the session has printed nothing for this `time`")
	spanVar(f, &o.timeout, "timeout", -1, "give up after this `time`, with exit code 124 (default never)")
	f.Lookup("timeout").DefValue = "0s" // omits the default from the help text
	f.Lookup(prefix + "idle").DefValue = "0s"
}

// asked reports whether one of the flags is set.
func (o *awaitOptions) asked() bool { return o.text != "" || o.prompt || o.idle != 0 }

// spec returns the request to wait.
func (o *awaitOptions) spec(id protocol.SessionID, since []byte) protocol.AwaitSpec {
	return protocol.AwaitSpec{SessionID: id, Text: o.text, Prompt: o.prompt, IdleMS: o.idle.Milliseconds(), Since: since}
}

// check reports invalid options before the command connects.
func (o *awaitOptions) check() error {
	switch {
	case !o.asked():
		return nil
	case o.idle != 0 && o.idle < time.Millisecond:
		return exitcode.WrongUsage(errors.New("the time for --idle must be at least 1ms"))
	}
	if err := o.spec("any", nil).Validate(); err != nil {
		return exitcode.WrongUsage(err)
	}
	return nil
}

func (a *app) waitCommand() *cobra.Command {
	o := &awaitOptions{}
	var exit bool
	var since string
	cmd := a.jsonFlag(a.oneSession("wait ID", "Wait for a session's end or for its output", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			if !o.asked() {
				return a.waitForExit(cmd, c, id, o.timeout)
			}
			mark, err := parseMark(since)
			if err != nil {
				return err
			}
			return a.await(cmd, c, o, id, mark)
		}))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if exit && o.asked() {
			return exitcode.WrongUsage(errors.New("give only one of --exit, --text, --prompt and --idle"))
		}
		if since != "" && !o.asked() {
			return exitcode.WrongUsage(errors.New("--since needs --text, --prompt or --idle"))
		}
		if _, err := parseMark(since); err != nil {
			return err
		}
		return o.check()
	}
	cmd.Long = "Wait for a session's end and exit with its code, or wait for output.\n\n" +
		"--text waits for a line on the screen, or one that scrolls off the screen meanwhile. Wrapped lines are\n" +
		"joined, and blanks at the end of a line are ignored. --since with the output of proxy mark considers only\n" +
		"changes after that mark; proxy send --wait-text does the same. If the session ends first, the exit code\n" +
		"is that of the session, or 1 if that is 0."
	cmd.Example = "  proxy wait build --timeout 10m\n" +
		"  proxy wait server --text 'listening on port (\\d+)' --timeout 30s\n" +
		"  mark=$(proxy mark build); proxy send build --enter make; proxy wait build --since \"$mark\" --prompt"
	o.flags(cmd, "")
	cmd.Flags().BoolVar(&exit, "exit", false, "wait for the session's end (the default)")
	cmd.Flags().StringVar(&since, "since", "", "consider only changes after a `mark`")
	return cmd
}

// waitForExit waits for the session's end and exits with its code.
func (a *app) waitForExit(cmd *cobra.Command, c *client.Client, id protocol.SessionID, timeout time.Duration) error {
	exit, err := c.Wait(cmd.Context(), id, timeout)
	if err != nil {
		return err
	}
	if a.json {
		if err := printJSON(cmd, exit); err != nil {
			return err
		}
	}
	return childExit(exit.ExitCode)
}

// await waits, and prints the line that matched, or with --json the whole answer.
func (a *app) await(cmd *cobra.Command, c *client.Client, o *awaitOptions, id protocol.SessionID, since []byte) error {
	info, err := c.Await(cmd.Context(), o.spec(id, since), o.timeout)
	if err != nil {
		return err
	}
	if a.json {
		err = printJSON(cmd, info)
	} else if o.text != "" && info.Exit == nil {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), plain.Text(info.Line))
	}
	if err != nil || info.Exit == nil {
		return err
	}
	code := info.Exit.ExitCode
	if code == 0 {
		code = 1 // the awaited output did not appear
	} else if code < 0 {
		code = sysexits.Software
	}
	return exitcode.New(code, fmt.Sprintf("session %s ended first", id))
}

// childExit returns an error that ends this process with the child's code and without a message.
func childExit(code int) error {
	if code == 0 {
		return nil
	}
	if code < 0 { // unknown
		code = sysexits.Software
	}
	return exitcode.New(code, "")
}

func (a *app) markCommand() *cobra.Command {
	cmd := a.jsonFlag(a.oneSession("mark ID", "Print the current position of a session, for wait --since", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			m, err := c.Mark(cmd.Context(), id)
			if err != nil {
				return err
			}
			if a.json {
				return printJSON(cmd, m)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), base64.StdEncoding.EncodeToString(m.Mark))
			return err
		}))
	cmd.Example = "  mark=$(proxy mark build); proxy send build --enter 'make test'; proxy wait build --since \"$mark\" --text ok"
	return cmd
}

// parseMark parses the output of mark; "" means no mark.
func parseMark(s string) ([]byte, error) {
	mark, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(mark) > protocol.MaxMark {
		return nil, exitcode.WrongUsage(errors.New("--since must be the output of proxy mark"))
	}
	return mark, nil
}
