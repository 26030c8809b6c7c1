package operate

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"holdfast/proxy/internal/cli"
	"holdfast/proxy/internal/mcp"
)

// lastAnswers is how long an agent may take, after a signal to this command, to read the answer that is being written.
const lastAnswers = 500 * time.Millisecond

func (a *app) mcpCommand() *cobra.Command {
	var control mcp.Control
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Let an agent use the sessions, by the Model Context Protocol",
		Long: "Serve the Model Context Protocol on standard input and output, for agents: programs with language models.\n" +
			"An agent starts this command itself; its settings name it. It can list, run, read, drive and end sessions, which\n" +
			"people see at the same time (proxy ls, proxy attach), and which continue when the agent ends.\n\n" +
			"With --control own, an agent sends input to, and ends, only sessions that such an agent has started. It can read all\n" +
			"sessions. Values of secret variables are masked, as everywhere except in a viewer.",
		Example: "  proxy mcp\n  claude mcp add holdfast -- proxy mcp",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.mcp(cmd.Context(), control)
		},
	}
	cli.ChoiceVar(cmd, &control, "control", mcp.ControlOwn, "`which` sessions the agent may send input to and end: own, all or none",
		mcp.ControlOwn, mcp.ControlAll, mcp.ControlNone)
	return cmd
}

// mcp serves an agent. Sessions are started in the directory of this process, except on another host.
func (a *app) mcp(ctx context.Context, control mcp.Control) error {
	c, err := a.Connect(ctx, true)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	stopped := make(chan struct{})
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastAnswers, func() { close(stopped) }) })()
	o := mcp.Options{Client: c, Control: control, In: os.Stdin, Out: cli.StdoutUntil(stopped)}
	if a.Host == "" {
		if o.Cwd, err = cli.WorkingDirectory(); err != nil {
			return err
		}
	}
	return mcp.Run(ctx, o)
}
