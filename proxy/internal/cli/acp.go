package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/proxy/internal/acp"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/config"
	"holdfast/shared/sysexits"
)

const (
	// agentGrace is how long an agent may take to end after a signal to this command.
	agentGrace = 5 * time.Second
	// agentDrain is how long the messages of an agent are passed on after its end.
	agentDrain = 500 * time.Millisecond
)

func (a *App) acpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "acp [flags] [--] agent...",
		Short: "Start an agent of an editor, and give it terminals that outlive both (Agent Client Protocol)",
		Long: "Start an agent and stand between it and an editor, which speak the Agent Client Protocol on standard\n" +
			"input and output. An editor starts this command in place of the agent. The terminals that the agent asks\n" +
			"the editor for become sessions, which people see (proxy ls, proxy attach), and which continue when the\n" +
			"editor, the agent or this command ends. All other messages pass unchanged.\n\n" +
			"A session ends when its command ends, or when the agent kills or releases the terminal. The command exits\n" +
			"with the code of the agent.",
		Example: "  proxy acp -- gemini --experimental-acp",
		RunE: func(cmd *cobra.Command, argv []string) error {
			if len(argv) == 0 {
				return exitcode.WrongUsagef("acp needs an agent: give its command line after the flags")
			}
			return a.acp(cmd.Context(), argv)
		},
	}
	cmd.Flags().SetInterspersed(false) // flags after the agent belong to the agent
	return cmd
}

// acp runs an agent between standard input and output, and exits with its code.
func (a *App) acp(ctx context.Context, argv []string) error {
	cwd, err := WorkingDirectory()
	if err != nil {
		return err
	}
	a.ending.needs(2 * agentGrace) // for the agent, and for the sessions that it has started
	c, err := a.Connect(ctx, true)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	agent := exec.CommandContext(ctx, argv[0], argv[1:]...)
	agent.Stderr = os.Stderr
	agent.WaitDelay = agentGrace
	agent.Cancel = func() error {
		if err := agent.Process.Signal(syscall.SIGTERM); err == nil || errors.Is(err, os.ErrProcessDone) {
			return err
		}
		return agent.Process.Kill() // Windows has no such signal
	}
	in, err := agent.StdinPipe()
	if err != nil {
		return err
	}
	out, agentOut, err := os.Pipe()
	if err != nil {
		return err
	}
	agent.Stdout = agentOut
	err = agent.Start()
	_ = agentOut.Close()
	if err != nil {
		_ = out.Close()
		return exitcode.With(sysexits.Unavailable, err)
	}
	waited, stopped := make(chan error, 1), make(chan struct{})
	go func() {
		waited <- agent.Wait()
		time.AfterFunc(agentDrain, func() {
			_ = out.Close() // a process that the agent has left may hold the other end of the pipe for ever
			<-ctx.Done()
			close(stopped)
		})
	}()
	env, others := splitText(config.CleanEnv(os.Environ()))
	warnNotText(others)
	err = acp.Run(ctx, acp.Options{
		Sessions: c, Cwd: cwd, Env: env,
		FromEditor: os.Stdin, ToEditor: StdoutUntil(stopped), FromAgent: out, ToAgent: in,
	})
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	_ = out.Close() // so that an agent that still runs does not wait for a reader
	ended := <-waited
	var exit *exec.ExitError
	if errors.As(ended, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return childExit(128 + int(status.Signal()))
		}
		return childExit(exit.ExitCode())
	}
	return errors.Join(err, ended)
}
