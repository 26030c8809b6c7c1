package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
)

// oneSession returns a command with a first argument that is a session's id.
func (a *app) oneSession(use, short string, args cobra.PositionalArgs, run func(*cobra.Command, *client.Client, protocol.SessionID, []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: args, ValidArgsFunction: a.sessionIDs(anyState),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := sessionID(args[0])
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error { return run(cmd, c, id, args[1:]) })
		},
	}
}

// manySessions returns a command with one or more session ids as arguments. It calls run for each
// session, also after an error with another one, and returns all errors.
func (a *app) manySessions(use, short string, run func(*cobra.Command, *client.Client, protocol.SessionID) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.sessionIDs(anyState),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), func(c *client.Client) error {
				var errs []error
				for _, arg := range args {
					id, err := sessionID(arg)
					if err == nil {
						err = run(cmd, c, id)
					}
					errs = append(errs, err)
				}
				return errors.Join(errs...)
			})
		},
	}
}

// notItself returns an error if id is the session in which this command runs.
func notItself(id protocol.SessionID) error {
	if string(id) != os.Getenv("HOLDFAST_SESSION") {
		return nil
	}
	return exitcode.WrongUsage(fmt.Errorf("this terminal is session %s: a session cannot be attached to itself", id))
}

// sessionID converts an argument into a session id, and checks it.
func sessionID(arg string) (protocol.SessionID, error) {
	id := protocol.SessionID(arg)
	return id, id.Validate()
}
