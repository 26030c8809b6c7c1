package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/protocol/frame"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/pipe"
	"holdfast/shared/sysexits"
	"holdfast/shared/version"
)

// stdioOptions are the flags of stdio.
type stdioOptions struct {
	start bool // start the processes that are missing
	again bool // the client was connected before
}

func (a *App) stdioCommand() *cobra.Command {
	o := &stdioOptions{}
	cmd := &cobra.Command{
		Use:   "stdio",
		Short: "Connect standard input and output with the proxy, for clients on other hosts",
		Long: "Connect standard input and output with the proxy. Clients on other hosts run this command by ssh\n" +
			"(proxy --on HOST, or the options of the Go and npm clients). It prints a line with its release, and\n" +
			"then copies the frames of the api in both directions until one side ends. If a secret is set here, it\n" +
			"is added to the client's hello.",
		Example: "  ssh build-host proxy stdio",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.stdio(cmd.Context(), o, os.Stdin, os.Stdout)
		},
	}
	cmd.Flags().BoolVar(&o.start, "start", false, "start the proxy and the supervisor if they do not run")
	cmd.Flags().BoolVar(&o.again, "again", false, "the client was connected before: do not start a proxy that a user has stopped")
	return cmd
}

// stdio connects in and out with the proxy.
func (a *App) stdio(ctx context.Context, o *stdioOptions, in io.Reader, out io.Writer) error {
	c, err := a.ConnectAgain(ctx, o.start, o.again) // it starts a proxy if that is necessary
	if err != nil {
		return err
	}
	if err := c.Close(); err != nil {
		return err
	}
	// A shell's start-up files may have printed text without a line end.
	if _, err := fmt.Fprintf(out, "\n%s %s %s\n", client.StdioGreeting, client.StdioFormat, version.String()); err != nil {
		return err
	}
	return a.ServeStream(ctx, in, out, nil)
}

// ConnectAgain returns a client like Connect. If the other side was connected before, it does not start
// a proxy that a user has stopped.
func (a *App) ConnectAgain(ctx context.Context, starts, again bool) (*client.Client, error) {
	if again && !pipe.Here && a.LeftInOrder() {
		return nil, exitcode.New(sysexits.TempFail, "the proxy was stopped")
	}
	return a.Connect(ctx, starts)
}

// ServeStream connects a client's frames with the proxy until one side ends. If a secret is set here, it
// is added to the client's hello. If vouch is not nil, it precedes the hello.
func (a *App) ServeStream(ctx context.Context, in io.Reader, out io.Writer, vouch *api.Vouch) error {
	dirs, secret, err := a.dirsAndSecret()
	if err != nil {
		return err
	}
	frames := frame.NewReader(in, frame.MaxHello)
	hello, err := frames.NextRaw()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the client's hello: %w", err)
	}
	if hello, err = addSecret(hello, secret); err != nil {
		return fmt.Errorf("read the client's hello: %w", err)
	}
	if vouch != nil {
		m, err := protocol.Encode(*vouch)
		if err != nil {
			return err
		}
		hello = append(frame.Append(nil, frame.Control, m), hello...)
	}
	nc, err := client.DialAPI(ctx, dirs, a.Proxy) // not earlier, because the proxy waits only 2 s for the hello
	if err != nil {
		return err
	}
	defer func() { _ = nc.Close() }()
	return copyBoth(ctx, nc, io.MultiReader(bytes.NewReader(hello), bytes.NewReader(bytes.Clone(frames.Buffered())), in), out)
}

// copyBoth copies in to nc and nc to out until one of them ends, or ctx is done.
func copyBoth(ctx context.Context, nc net.Conn, in io.Reader, out io.Writer) error {
	ended := make(chan error, 2)
	go func() { _, err := io.Copy(nc, in); ended <- err }()
	go func() { _, err := io.Copy(out, nc); ended <- err }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// addSecret adds a secret to a hello that has none. It keeps fields that this release does not know.
func addSecret(hello []byte, secret string) ([]byte, error) {
	if secret == "" {
		return hello, nil
	}
	kind, payload, err := frame.NewReader(bytes.NewReader(hello), frame.MaxHello).Next()
	if err != nil || kind != frame.Control {
		return hello, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(payload, &fields); err != nil {
		return nil, err
	}
	if _, has := fields["secret"]; has {
		return hello, nil
	}
	if fields["secret"], err = json.Marshal(secret); err != nil {
		return nil, err
	}
	payload, err = json.Marshal(fields)
	return frame.Append(nil, frame.Control, payload), err
}
