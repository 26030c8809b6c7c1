package cli

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
)

// oneSession returns a command with a first argument that is a session's id.
func (a *App) oneSession(use, short string, args cobra.PositionalArgs, run func(*cobra.Command, *client.Client, protocol.SessionID, []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: args, ValidArgsFunction: a.sessionIDs(anyState),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := a.sessionID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error { return run(cmd, c, id, args[1:]) })
		},
	}
}

// manySessions returns a command with one or more session ids as arguments. It calls run for each
// session, also after an error with another one, and returns all errors.
func (a *App) manySessions(use, short string, run func(*cobra.Command, *client.Client, protocol.SessionID) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.sessionIDs(anyState),
		RunE: func(cmd *cobra.Command, args []string) error {
			groups, errs := a.byHost(cmd.Context(), args)
			for _, group := range groups {
				on := *a
				if err := on.setHost(group.host); err != nil {
					return err
				}
				errs = append(errs, on.withClient(cmd.Context(), func(c *client.Client) error {
					var errs []error
					for _, id := range group.ids {
						err := id.Validate()
						if err == nil {
							err = run(cmd, c, id)
						}
						errs = append(errs, err)
					}
					return errors.Join(errs...)
				}))
			}
			return errors.Join(errs...)
		},
	}
}

// A hostGroup has the sessions of one host that a command names.
type hostGroup struct {
	host string // "": the host of --on, or this one
	ids  []protocol.SessionID
}

// byHost groups names of sessions by their hosts. The groups are in the order of their first names. A name
// without a host is that of hostOf, and errs has the errors of the names for which hostOf returns one.
func (a *App) byHost(ctx context.Context, names []string) (groups []hostGroup, errs []error) {
	for _, name := range names {
		host, id := splitName(name)
		if host == "" && id.Validate() == nil {
			var err error
			if host, err = a.hostOf(ctx, id); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		i := slices.IndexFunc(groups, func(g hostGroup) bool { return g.host == host })
		if i < 0 {
			i, groups = len(groups), append(groups, hostGroup{host: host})
		}
		groups[i].ids = append(groups[i].ids, id)
	}
	return groups, errs
}

// isItself reports whether a session of the host of the command is the one in which the command runs. A session of
// another supervisor may have the same id. A session of an earlier release does not know its instance.
func (a *App) isItself(id protocol.SessionID, instance protocol.Instance) bool {
	own := protocol.Instance(os.Getenv("HOLDFAST_INSTANCE"))
	return a.Host == "" && id != "" && string(id) == os.Getenv("HOLDFAST_SESSION") && (own == "" || own == instance)
}

// notItself returns an error if id is the session in which this command runs.
func (a *App) notItself(ctx context.Context, c *client.Client, id protocol.SessionID) error {
	if a.Host != "" || id == "" || string(id) != os.Getenv("HOLDFAST_SESSION") { // then there is no need to ask for the instance
		return nil
	}
	info, err := c.SessionInfo(ctx, id)
	switch {
	case protocol.CodeOf(err) == protocol.CodeSessionNotFound:
		return nil
	case err != nil:
		return err
	case !a.isItself(id, info.Instance):
		return nil
	}
	return exitcode.WrongUsagef("this terminal is session %s: a session cannot be attached to itself", id)
}

// sessionID converts an argument into a session id, and checks it. If the argument is HOST/ID, the
// command is for that host; if it is an ID alone, the command is for the host that hostOf returns.
func (a *App) sessionID(ctx context.Context, arg string) (protocol.SessionID, error) {
	host, id := splitName(arg)
	err := id.Validate()
	if err == nil && host == "" {
		host, err = a.hostOf(ctx, id)
	}
	return id, errors.Join(err, a.setHost(host))
}

// splitName splits HOST/ID. The host is "" in a name that is an ID only. In a name with an empty host the ID begins with
// the slash, which is not valid, so that the name means no session of this host.
func splitName(name string) (host string, id protocol.SessionID) {
	i := strings.LastIndexByte(name, '/')
	if i <= 0 {
		return "", protocol.SessionID(name)
	}
	return name[:i], protocol.SessionID(name[i+1:])
}
