package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

// sendOptions are the flags of send.
type sendOptions struct {
	file       string
	paste, raw bool
	keys       []string // --enter and --key, in their order
	wait       awaitOptions
}

func (a *app) sendCommand() *cobra.Command {
	o := &sendOptions{}
	cmd := a.jsonFlag(a.oneSession("send ID [TEXT...]", "Type into a session, and wait for what comes of it", cobra.MinimumNArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, args []string) error {
			return a.send(cmd, c, o, id, args)
		}))
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if len(args) < 2 && o.file == "" && len(o.keys) == 0 {
			return usage(errors.New("nothing to send: give TEXT, --file, --key or --enter"))
		}
		if o.paste && o.raw {
			return usage(errors.New("--paste and --raw contradict each other"))
		}
		if !o.wait.asked() && (a.json || cmd.Flags().Changed("timeout")) {
			return usage(errors.New("--json and --timeout are of what is waited for: give --wait-text, --wait-prompt or --wait-idle"))
		}
		return o.wait.check()
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return usage(fmt.Errorf("%w; text that begins with - stands behind --", err))
	})
	cmd.Long = "Type into a session, as a terminal does, and wait for what comes of it.\n\n" +
		"One line of TEXT is typed as it is. What has line breaks, and what is in a file, is pasted:\n" +
		"a program that knows pastes by mode 2004 takes it as one, and controls in it are left out.\n" +
		"--raw sends all bytes as they are. Keys come after the text, in their order; they are\n" +
		"Enter, Tab, Escape, Space, Backspace, Up, Down, Left, Right, Home, End, Insert, Delete,\n" +
		"PageUp, PageDown, F1 to F12, or one character, with C-, M- and S- before it.\n\n" +
		"Only what comes after the input counts for --wait-text, --wait-prompt and --wait-idle,\n" +
		"and nothing of it is missed, however fast the program is. The echo of a line that ends\n" +
		"with --enter does not count. The exit code is 124 after --timeout; if the session ends\n" +
		"first it is the session's, or 1 where that is 0."
	cmd.Example = "  proxy send build --enter 'make test'\n" +
		"  proxy send build --enter 'make test' --wait-text 'FAIL|ok' --timeout 10m   # prints that line\n" +
		"  proxy send edit ':wq' --enter\n" +
		"  proxy send edit --key Escape --key C-w --key Left\n" +
		"  proxy send repl --file script.py --enter --wait-text '^>>>$'"
	f := cmd.Flags()
	f.VarPF(&keyFlag{&o.keys, "Enter"}, "enter", "", "press Enter after the text").NoOptDefVal = "true"
	f.Var(&keyFlag{&o.keys, ""}, "key", "press a `key` after the text: Enter, C-c, Up, M-x; may be given again")
	f.StringVar(&o.file, "file", "", "send what is in a `file`, - for standard input")
	f.BoolVar(&o.paste, "paste", false, "paste, even if it is one line")
	f.BoolVar(&o.raw, "raw", false, "send the bytes as they are")
	o.wait.flags(cmd, "wait-")
	_ = cmd.RegisterFlagCompletionFunc("key", keyNames)
	return cmd
}

// keyFlag adds a key to a list each time that it is given: fixed, or its value.
type keyFlag struct {
	keys  *[]string
	fixed string
}

func (k *keyFlag) String() string { return "" }

// Type is of flags that take no value where it is bool.
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
		return errors.New("it is true or false")
	}
	return nil
}

func keyNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names := strings.Fields("Enter Tab Escape Space Backspace Up Down Left Right Home End Insert Delete PageUp PageDown C-c C-d C-z")
	for n := range 12 {
		names = append(names, fmt.Sprintf("F%d", n+1))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// send marks, types and waits.
func (a *app) send(cmd *cobra.Command, c *client.Client, o *sendOptions, id protocol.SessionID, args []string) error {
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
		return o.typeAll(ctx, c, id, data)
	}
	mark, err := c.Mark(ctx, id)
	if err != nil {
		return err
	}
	if echo := o.echo(data); echo != "" {
		if err := sent(o.typeText(ctx, c, id, data)); err != nil {
			return err
		}
		if mark, err = markBehind(ctx, c, id, echo, mark); err != nil {
			return err
		}
		data = nil
	}
	if err := o.typeAll(ctx, c, id, data); err != nil {
		return err
	}
	return a.await(cmd, c, &o.wait, id, mark.Mark)
}

// echoTime is how long a program may take to show what was typed. One that shows nothing,
// as at the question for a password, makes send that much slower.
const echoTime = time.Second

// echo returns how the screen shows what is typed before Enter, if a text is waited for
// that must not be found there, and "" if nothing is to be set aside. Text with a line
// break may act before its end, so that its echo and what comes of it cannot be told apart;
// without Enter the echo may be what is waited for.
func (o *sendOptions) echo(data []byte) string {
	if o.wait.text == "" || len(o.keys) == 0 || o.keys[0] != "Enter" || bytes.ContainsAny(data, "\r\n") || !utf8.Valid(data) {
		return ""
	}
	text := strings.TrimRight(string(data), " ") // a line has no blanks at its end
	if i := strings.LastIndexFunc(text, unicode.IsControl); i >= 0 {
		text = text[i+1:]
	}
	for len(regexp.QuoteMeta(text)) > protocol.MaxPattern {
		text = text[len(text)/2:]
		text = strings.TrimLeftFunc(text, func(r rune) bool { return r == utf8.RuneError })
	}
	return text
}

// markBehind waits until the screen shows the echo, and returns a mark behind it; a line
// that is as it was is no news. It returns the mark that was made before if the session
// has ended or shows something else.
func markBehind(ctx context.Context, c *client.Client, id protocol.SessionID, echo string, before *protocol.MarkInfo) (*protocol.MarkInfo, error) {
	spec := protocol.AwaitSpec{SessionID: id, Text: regexp.QuoteMeta(echo), Since: before.Mark}
	shown, err := c.Await(ctx, spec, echoTime)
	switch {
	case protocol.CodeOf(err) == protocol.CodeTimeout:
	case err != nil:
		return nil, err
	case shown.Exit != nil:
		return before, nil
	}
	return c.Mark(ctx, id)
}

// typeAll sends the text, and then each key on its own: programs that read a paste whole
// see keys, and those that tell keys by their time tell them apart.
func (o *sendOptions) typeAll(ctx context.Context, c *client.Client, id protocol.SessionID, data []byte) error {
	if len(data) > 0 {
		if err := sent(o.typeText(ctx, c, id, data)); err != nil {
			return err
		}
	}
	for _, key := range o.keys {
		err := c.Keys(ctx, id, key)
		if key == "Enter" && protocol.CodeOf(err) == protocol.CodeUnsupported { // which is what it is nearly always
			err = c.Type(ctx, id, []byte{'\r'})
		}
		if err := sent(err); err != nil {
			return err
		}
	}
	return nil
}

// typeText pastes what is to be pasted. A supervisor that cannot do that is sent the
// bytes, unless a paste was asked for.
func (o *sendOptions) typeText(ctx context.Context, c *client.Client, id protocol.SessionID, data []byte) error {
	if o.raw || !o.paste && o.file == "" && !bytes.ContainsAny(data, "\r\n") {
		return c.Type(ctx, id, data)
	}
	err := c.Paste(ctx, id, data)
	if !o.paste && protocol.CodeOf(err) == protocol.CodeUnsupported {
		return c.Type(ctx, id, data)
	}
	return err
}

// sent warns of what has been typed all the same.
func sent(err error) error {
	if protocol.CodeOf(err) == protocol.CodeLineTooLong {
		warn(err)
		return nil
	}
	return err
}

// maxSend bounds what send reads into memory.
const maxSend = 64 << 20

func readInput(cmd *cobra.Command, name string) ([]byte, error) {
	in := cmd.InOrStdin()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, &exitError{exitNoInput, err.Error()}
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxSend+1))
	if err == nil && len(data) > maxSend {
		err = usage(fmt.Errorf("%s is over %d bytes", name, maxSend))
	}
	return data, err
}
