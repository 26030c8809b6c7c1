package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

// awaitOptions say what is waited for, and for how long.
type awaitOptions struct {
	text    string
	prompt  bool
	idle    time.Duration
	timeout time.Duration // negative is for ever
}

// flags adds those of what is waited for, with a prefix, and --timeout.
func (o *awaitOptions) flags(cmd *cobra.Command, prefix string) {
	f := cmd.Flags()
	f.StringVar(&o.text, prefix+"text", "", "wait for a line that this `regexp` (RE2) matches, and print it")
	f.BoolVar(&o.prompt, prefix+"prompt", false, "wait until the shell waits for a command; it has to tell of that (OSC 133)")
	spanVar(f, &o.idle, prefix+"idle", 0, "wait until nothing is printed for this `time`")
	spanVar(f, &o.timeout, "timeout", -1, "give up after this `time`, with exit code 124 (default never)")
	f.Lookup("timeout").DefValue = "0s" // not shown
	f.Lookup(prefix + "idle").DefValue = "0s"
}

func (o *awaitOptions) asked() bool { return o.text != "" || o.prompt || o.idle != 0 }

func (o *awaitOptions) spec(id protocol.SessionID, since []byte) protocol.AwaitSpec {
	return protocol.AwaitSpec{SessionID: id, Text: o.text, Prompt: o.prompt, IdleMS: o.idle.Milliseconds(), Since: since}
}

// check finds what can be found before anything is connected to.
func (o *awaitOptions) check() error {
	switch {
	case !o.asked():
		return nil
	case o.idle != 0 && o.idle < time.Millisecond:
		return usage(errors.New("a silence is at least 1ms"))
	}
	if err := o.spec("any", nil).Validate(); err != nil {
		return usage(err)
	}
	return nil
}

func (a *app) waitCommand() *cobra.Command {
	o := &awaitOptions{}
	var exit bool
	var since string
	cmd := a.jsonFlag(a.oneSession("wait ID", "Wait for a session's end, or for what it shows", cobra.ExactArgs(1),
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
			return usage(errors.New("one thing is waited for: --exit, --text, --prompt or --idle"))
		}
		if since != "" && !o.asked() {
			return usage(errors.New("--since is of --text, --prompt and --idle"))
		}
		if _, err := parseMark(since); err != nil {
			return err
		}
		return o.check()
	}
	cmd.Long = "Wait for a session's end and exit with its code, or wait for what it shows.\n\n" +
		"--text is for a line on the screen, or one that goes above it meanwhile. A line is whole,\n" +
		"however it was wrapped, without the blanks at its end. With --since and what proxy mark\n" +
		"has printed only that counts which is news since then; proxy send --wait-text does so.\n" +
		"If the session ends first, the exit code is its own, or 1 where that is 0."
	cmd.Example = "  proxy wait build --timeout 10m\n" +
		"  proxy wait server --text 'listening on port (\\d+)' --timeout 30s\n" +
		"  mark=$(proxy mark build); proxy send build --enter make; proxy wait build --since \"$mark\" --prompt"
	o.flags(cmd, "")
	cmd.Flags().BoolVar(&exit, "exit", false, "wait for the session's end; so it is without --text, --prompt and --idle")
	cmd.Flags().StringVar(&since, "since", "", "only what is news since a `mark`")
	return cmd
}

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

// await waits, and prints the line that was waited for, or with --json all there is.
func (a *app) await(cmd *cobra.Command, c *client.Client, o *awaitOptions, id protocol.SessionID, since []byte) error {
	info, err := c.Await(cmd.Context(), o.spec(id, since), o.timeout)
	if err != nil {
		return err
	}
	if a.json {
		err = printJSON(cmd, info)
	} else if o.text != "" && info.Exit == nil {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), printable(info.Line))
	}
	if err != nil || info.Exit == nil {
		return err
	}
	code := info.Exit.ExitCode
	if code == 0 {
		code = 1 // it is no success
	} else if code < 0 {
		code = exitSoftware
	}
	return &exitError{code, fmt.Sprintf("session %s ended first", id)}
}

// childExit ends the process with a child's code, without a word.
func childExit(code int) error {
	if code == 0 {
		return nil
	}
	if code < 0 { // unknown
		code = exitSoftware
	}
	return &exitError{code, ""}
}

func (a *app) markCommand() *cobra.Command {
	cmd := a.jsonFlag(a.oneSession("mark ID", "Print where a session is now, for wait --since", cobra.ExactArgs(1),
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

// parseMark reads what mark has printed; "" is none.
func parseMark(s string) ([]byte, error) {
	mark, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(mark) > protocol.MaxMark {
		return nil, usage(errors.New("--since is what proxy mark has printed"))
	}
	return mark, nil
}
