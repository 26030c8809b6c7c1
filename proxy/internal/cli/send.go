package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/echo"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/keyname"
	"holdfast/shared/sysexits"
)

// sendOptions are the flags of send.
type sendOptions struct {
	file       string
	paste, raw bool
	keys       []string // --enter and --key, in their order
	wait       awaitOptions
}

func (a *App) sendCommand() *cobra.Command {
	o := &sendOptions{}
	cmd := a.JSONFlag(a.oneSession("send ID [TEXT...]", "Send input to a session, and wait for its effect", cobra.MinimumNArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, args []string) error {
			return a.send(cmd, c, o, id, args)
		}))
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if len(args) < 2 && o.file == "" && len(o.keys) == 0 {
			return exitcode.WrongUsagef("nothing to send: give TEXT, --file, --key or --enter")
		}
		if o.paste && o.raw {
			return exitcode.WrongUsagef("--paste and --raw exclude each other")
		}
		if err := keyname.Check(o.keys); err != nil { // before the text is sent
			return exitcode.WrongUsage(err)
		}
		if err := o.wait.check(cmd.Flags(), "wait-"); err != nil {
			return err
		}
		if !o.wait.asked() && (a.JSON || cmd.Flags().Changed("timeout")) {
			return exitcode.WrongUsagef("--json and --timeout need something to wait for: give --wait-text, --wait-prompt or --wait-idle")
		}
		return nil
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return exitcode.WrongUsagef("%v; put -- before a text that begins with -", err)
	})
	cmd.Long = "Send input to a session, as a terminal does, and wait for its effect.\n\n" +
		"TEXT on one line is sent as if it was typed. Text with line breaks, and text from a file, is pasted: if\n" +
		"the program has enabled bracketed paste (mode 2004), it receives one paste without control characters.\n" +
		"--raw sends all bytes unchanged. Keys are sent after the text, in the given order. Keys are\n" +
		"Enter, Tab, Escape, Space, Backspace, Up, Down, Left, Right, Home, End, Insert, Delete,\n" +
		"PageUp, PageDown, F1 to F12, or one character, with the prefixes C-, M- and S-.\n\n" +
		"--wait-text, --wait-prompt and --wait-idle consider all output after the input, however fast the\n" +
		"program is, and only that. The echo of a line that is sent with --enter is ignored. The exit code is\n" +
		"124 after --timeout. If the session ends first, the exit code is that of the session, or 1 if that\n" +
		"is 0.\n\n" +
		"The text and the keys stay together if several commands send at the same time. If the session accepts\n" +
		"no more input, because its program does not read, send waits until the program reads, and says so on\n" +
		"standard error."
	cmd.Example = "  proxy send build --enter 'make test'\n" +
		"  proxy send build --enter 'make test' --wait-text 'FAIL|ok' --timeout 10m   # prints that line\n" +
		"  proxy send edit ':wq' --enter\n" +
		"  proxy send edit --key Escape --key C-w --key Left\n" +
		"  proxy send repl --file script.py --enter --wait-text '^>>>$'"
	f := cmd.Flags()
	f.VarPF(&keyFlag{&o.keys, "Enter"}, "enter", "", "press Enter after the text").NoOptDefVal = "true"
	f.Var(&keyFlag{&o.keys, ""}, "key", "press a `key` after the text: Enter, C-c, Up, M-x; may be repeated")
	f.StringVar(&o.file, "file", "", "send the content of a `file`, - for standard input")
	f.BoolVar(&o.paste, "paste", false, "paste the text, even if it is one line")
	f.BoolVar(&o.raw, "raw", false, "send the bytes unchanged")
	o.wait.flags(cmd, "wait-")
	_ = cmd.RegisterFlagCompletionFunc("key", keyNames)
	return cmd
}

// keyFlag is the value of a flag that appends a key to a list each time that it is given: fixed, or
// the flag's value.
type keyFlag struct {
	keys  *[]string
	fixed string
}

func (k *keyFlag) String() string { return "" }

// Type returns "bool" if the flag takes no value.
func (k *keyFlag) Type() string {
	if k.fixed != "" {
		return "bool"
	}
	return "key"
}

func (k *keyFlag) Set(value string) error {
	switch {
	case k.fixed == "":
		*k.keys = append(*k.keys, value)
	case value == "true":
		*k.keys = append(*k.keys, k.fixed)
	case value != "false":
		return errors.New("the value must be true or false")
	}
	return nil
}

// keyNames completes the names of keys.
func keyNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names := strings.Fields("Enter Tab Escape Space Backspace Up Down Left Right Home End Insert Delete PageUp PageDown C-c C-d C-z")
	for n := range 12 {
		names = append(names, fmt.Sprintf("F%d", n+1))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// send marks the output, sends the input and waits.
func (a *App) send(cmd *cobra.Command, c *client.Client, o *sendOptions, id protocol.SessionID, args []string) error {
	ctx := cmd.Context()
	data := []byte(strings.Join(args, " "))
	if o.file != "" {
		more, err := readInput(cmd, o.file)
		if err != nil {
			return err
		}
		data = append(data, more...)
	}
	if !o.wait.asked() {
		q := c.Sequence(id)
		if err := o.typeText(ctx, q, data); err != nil {
			return err
		}
		return o.pressKeys(ctx, q)
	}
	mark, err := o.sendMarked(ctx, c, id, data)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return exitcode.Newf(sysexits.Timeout, "timeout: session %s has not accepted all of the input within %v; look at the session before you repeat the input", id, max(o.wait.timeout, sendTime))
	}
	if err != nil {
		return err
	}
	return a.await(cmd, c, &o.wait, id, mark)
}

// sendMarked sends the input within the time of --timeout, and returns the mark behind which its effect begins.
func (o *sendOptions) sendMarked(ctx context.Context, c *client.Client, id protocol.SessionID, data []byte) ([]byte, error) {
	if o.wait.timeout >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(o.wait.timeout, sendTime))
		defer cancel()
	}
	mark, err := c.Mark(ctx, id)
	if err != nil {
		return nil, err
	}
	q := c.Sequence(id)
	if err := o.typeText(ctx, q, data); err != nil {
		return nil, err
	}
	if shown := o.echo(data); shown != "" {
		if mark, err = echo.MarkBehind(ctx, c, id, shown, mark); err != nil {
			return nil, err
		}
	}
	return mark.Mark, o.pressKeys(ctx, q)
}

// sendTime is how long send may take to send its input also if --timeout is shorter. A program may need most of a second to
// echo the text, and the keys behind the text must not be left out because of a short --timeout.
const sendTime = 4 * time.Second

// echo returns the echo that must be ignored when the command waits for a text, or "".
func (o *sendOptions) echo(data []byte) string {
	if o.wait.text == "" || len(o.keys) == 0 || o.keys[0] != "Enter" {
		return ""
	}
	return echo.Of(data)
}

// typeText sends the text as input, or as a paste.
func (o *sendOptions) typeText(ctx context.Context, q *client.Sequence, data []byte) error {
	more := len(o.keys) > 0
	if o.raw || !o.paste && o.file == "" && !bytes.ContainsAny(data, "\r\n") {
		return sent(q.Type(ctx, data, more))
	}
	return sent(q.Paste(ctx, data, more))
}

// pressKeys sends each key in a request of its own, so that programs that read a paste at once still
// see the keys, and programs that distinguish keys by their time can do so.
func (o *sendOptions) pressKeys(ctx context.Context, q *client.Sequence) error {
	for i, key := range o.keys {
		if err := sent(q.Keys(ctx, i+1 < len(o.keys), key)); err != nil {
			return err
		}
	}
	return nil
}

// tellFull tells once on stderr that the command waits because a session accepts no input.
func (a *App) tellFull(id protocol.SessionID, waited time.Duration) {
	if waited >= askAfter && !a.toldFull {
		a.toldFull = true
		Note("session %s accepts no more input, because its program does not read, or another command sends; send waits", id)
	}
}

// sent turns an error that reports a possible loss of sent input into a warning.
func sent(err error) error {
	if protocol.CodeOf(err) == protocol.CodeLineTooLong {
		Warn("%v", err)
		return nil
	}
	return err
}

// maxSend bounds the input that send reads, in bytes.
const maxSend = 64 << 20

// readInput reads a file, or standard input if name is "-". It returns the error of the command's context if that
// is done first, because a pipe may have no writer, or a silent one.
func readInput(cmd *cobra.Command, name string) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	read := make(chan result, 1) // buffered, because the read may end after the context
	go func() {
		data, err := readAll(cmd, name)
		read <- result{data, err}
	}()
	select {
	case r := <-read:
		return r.data, r.err
	case <-cmd.Context().Done():
		return nil, cmd.Context().Err()
	}
}

// readAll reads a file as readInput does, and waits for its end.
func readAll(cmd *cobra.Command, name string) ([]byte, error) {
	in := cmd.InOrStdin()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, exitcode.New(sysexits.NoInput, err.Error())
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxSend+1))
	if err != nil {
		return nil, exitcode.New(sysexits.NoInput, err.Error())
	}
	if len(data) > maxSend {
		err = exitcode.WrongUsagef("%s is larger than %d bytes", name, maxSend)
	}
	return data, err
}
