package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/plain"
	"holdfast/shared/sysexits"
)

// awaitOptions are the flags with the condition that a command waits for.
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
	SpanVar(f, &o.idle, prefix+"idle", 0, "wait until the session has printed nothing for this `time`")
	SpanVar(f, &o.timeout, "timeout", -1, "give up after this `time`, with exit code 124 (default never)")
	f.Lookup("timeout").DefValue = noDefault
}

// asked reports whether one of the flags is set.
func (o *awaitOptions) asked() bool { return o.text != "" || o.prompt || o.idle != 0 }

// spec returns the request to wait.
func (o *awaitOptions) spec(id protocol.SessionID, since []byte) protocol.AwaitSpec {
	return protocol.AwaitSpec{SessionID: id, Text: o.text, Prompt: o.prompt, IdleMS: o.idle.Milliseconds(), Since: since}
}

// check reports invalid options of flags with the prefix before the command connects. An empty text would be matched by each
// line, and is usually an unset variable.
func (o *awaitOptions) check(f *pflag.FlagSet, prefix string) error {
	switch {
	case f.Changed(prefix+"text") && o.text == "":
		return exitcode.WrongUsagef("--%stext needs a text", prefix)
	case f.Changed(prefix+"idle") && (o.idle < time.Millisecond || o.idle.Milliseconds() > protocol.MaxAwaitIdleMS):
		return exitcode.WrongUsagef("the time for --%sidle must be 1ms to 1d", prefix)
	case f.Changed("timeout") && o.timeout < 0:
		return exitcode.WrongUsagef("the time for --timeout must not be negative")
	case !o.asked():
		return nil
	case o.text != "" && (o.prompt || o.idle != 0), o.prompt && o.idle != 0:
		return exitcode.WrongUsagef("give only one of --%[1]stext, --%[1]sprompt and --%[1]sidle", prefix)
	}
	if err := o.spec("any", nil).Validate(); err != nil {
		return exitcode.WrongUsage(err)
	}
	return nil
}

// await waits, and prints the line that matched, or with --json the whole answer.
func (a *App) await(cmd *cobra.Command, c *client.Client, o *awaitOptions, id protocol.SessionID, since []byte) error {
	info, err := c.Await(cmd.Context(), o.spec(id, since), o.timeout)
	if err != nil {
		return err
	}
	if a.JSON {
		err = PrintJSON(cmd, info)
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
	return exitcode.Newf(code, "session %s ended first", id)
}
