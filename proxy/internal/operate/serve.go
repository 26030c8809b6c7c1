package operate

import (
	"context"
	"flag"

	"github.com/spf13/cobra"

	"holdfast/proxy/internal/cli"
	"holdfast/proxy/internal/handoff"
	"holdfast/proxy/internal/serve"
	"holdfast/shared/config"
)

func (a *app) serveCommand() *cobra.Command {
	var o serve.Options
	var verify cli.Verify
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Serve clients in the foreground; starts the supervisor if none runs",
		Example: "  proxy serve\n  proxy serve --web 127.0.0.1:0   # and the web page",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.VerifyAll = verify == cli.VerifyAll
			return a.serve(cmd.Context(), o)
		},
	}
	cmd.Flags().StringSliceVar(&o.Origins, "web-origin", nil, "another `origin` whose pages may connect")
	cmd.Flags().BoolVar(&o.Background, "background", false, "log to a file in the state directory")
	cmd.Flags().BoolVar(&o.TakeOver, "take-over", false, "take over from the running proxy")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "with --take-over: prepare, but do not take over")
	cli.SpanVar(cmd.Flags(), &o.Timeout, "timeout", handoff.Timeout, "with --take-over: the time for preparing")
	cli.VerifyVar(cmd, &verify, "with --take-over: ")
	for _, f := range []string{"take-over", "dry-run", "timeout", "verify"} {
		_ = cmd.Flags().MarkHidden(f) // --handoff starts a process with these flags
	}
	settings := flag.NewFlagSet("", flag.ContinueOnError)
	o.Flags = config.Flags(settings)
	cmd.Flags().AddGoFlagSet(settings)
	return cmd
}

// serve runs the proxy in this process until it ends.
func (a *app) serve(ctx context.Context, o serve.Options) error {
	a.Serves()
	dirs, err := a.Dirs()
	if err != nil {
		return err
	}
	o.Dir, o.Proxy, o.RecordingHost = a.Dir, a.Proxy, recordingHost(dirs)
	return serve.Run(ctx, o)
}
