package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/config"
)

type newOptions struct {
	id         string
	detach     bool
	existing   bool // -A
	size       string
	policy     string
	cwd        string
	env        []string
	clearEnv   bool
	labels     map[string]string
	scrollback int
	originator string
	earlyExit  time.Duration
	shell      bool
	limits     *protocol.Limits
	attach     attachOptions
}

func (a *app) newCommand() *cobra.Command {
	o := &newOptions{}
	cmd := &cobra.Command{
		Use:   "new [flags] [--] [argv...]",
		Short: "Start a session and attach to it; the login shell if nothing else is said",
		Example: "  proxy new                                   # the login shell\n" +
			"  proxy new --id build -- make -j8\n" +
			"  proxy new --detach --size 120x40 -- top     # prints its id",
		RunE: func(cmd *cobra.Command, argv []string) error {
			return a.new(cmd, o, argv)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // flags behind the command's name are the command's
	f.BoolVarP(&o.existing, "or-attach", "A", false, "with --id: attach if a session of that id exists")
	f.StringVar(&o.id, "id", "", "the session's `id`, 1 to 64 of [a-zA-Z0-9_-] (default one is made)")
	f.BoolVarP(&o.detach, "detach", "d", false, "do not attach; print the id")
	f.StringVar(&o.size, "size", "", "`COLSxROWS`, which it keeps (default this terminal's, else 80x24, and then by --size-policy)")
	f.StringVar(&o.policy, "size-policy", "", "`whose` size it has: latest, owner, smallest, largest, fixed (default latest, with --size fixed)")
	o.flags(cmd)
	f.DurationVar(&o.earlyExit, "early-exit", 200*time.Millisecond, "fail with -d if the child fails within this `time`; 0 does not look")
	f.BoolVar(&o.shell, "shell-integration", false, "a shell (bash, zsh, fish) tells of its prompts and commands (default the setting shell_integration)")
	f.Lookup("shell-integration").DefValue = "" // not shown a second time
	_ = cmd.RegisterFlagCompletionFunc("size-policy", sizePolicies)
	o.attach.flags(cmd)
	return cmd
}

// flags are those that say where a command is started, and with what.
func (o *newOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.cwd, "cwd", "", "working `directory` (default this one)")
	f.StringArrayVar(&o.env, "env", nil, "`K=V` for its environment; may be repeated")
	f.BoolVar(&o.clearEnv, "clear-env", false, "inherit no environment")
	f.StringToStringVar(&o.labels, "label", nil, "`k=v`, given back by ls and info; may be repeated")
	f.Lookup("label").DefValue = "" // not shown
	f.IntVar(&o.scrollback, "scrollback", 0, "`lines` of history (default 10000)")
	o.limits = limitFlags(cmd)
	f.StringVar(&o.originator, "originator", "", "who starts it, for ls --originator")
	_ = cmd.MarkFlagDirname("cwd") // it is there, some lines up
}

func (a *app) new(cmd *cobra.Command, o *newOptions, argv []string) error {
	r, err := o.request(argv)
	if err := errors.Join(err, a.checkAttach(&o.attach)); err != nil {
		return err
	}
	if r.ShellIntegration = o.shell; !cmd.Flags().Changed("shell-integration") {
		cfg, err := a.settings()
		if err != nil {
			return err
		}
		r.ShellIntegration = cfg.ShellIntegration
	}
	ctx := cmd.Context()
	return a.withStarted(ctx, func(c *client.Client) error {
		// The check for an early exit is made here: the proxy's removes also a
		// session whose child did what it was to do.
		none := time.Duration(0)
		r.EarlyExit = &none
		s, err := c.Spawn(ctx, r)
		if o.existing && o.id != "" && protocol.CodeOf(err) == protocol.CodeSessionExists {
			if err := notItself(r.ID); err != nil {
				return err
			}
			return a.attachTo(ctx, c, &protocol.SessionInfo{ID: r.ID}, &o.attach)
		}
		if err != nil {
			return err
		}
		if o.detach {
			return detached(cmd, c, s, o.earlyExit)
		}
		o.attach.fresh, o.attach.early = true, o.earlyExit
		return a.attachTo(ctx, c, &s.Session, &o.attach)
	})
}

// checkTime is how long the check for an early exit may take beside the time that the child
// is watched: then the creation stands.
const checkTime = 2 * time.Second

// detached says which session was started, unless its child fails within early after its
// start. A child that ends with success has done what it was to do: its record is kept.
func detached(cmd *cobra.Command, c *client.Client, s *client.Spawned, early time.Duration) error {
	ctx := cmd.Context()
	if early > 0 {
		watch, cancel := context.WithTimeout(ctx, early+checkTime)
		defer cancel()
		record, err := c.Wait(watch, s.SessionID, early)
		switch {
		case err != nil: // it runs, or nobody can say
		case record.ExitCode == 0:
			fmt.Fprintf(stderr, "proxy: session %s has ended with code 0 already; proxy screen %s shows what it printed\n", s.SessionID, s.SessionID)
		default:
			removeFailed(ctx, c, &s.Session)
			return tellEarlyExit(protocol.ExitedEarly(s.SessionID, record))
		}
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), s.SessionID)
	return err
}

// removeFailed removes a session whose child failed right after its start. One that was
// opened again is as it was before.
func removeFailed(ctx context.Context, c *client.Client, s *protocol.SessionInfo) {
	if err := c.ForgetFailed(ctx, s.ID, s.Instance); err != nil {
		fmt.Fprintln(stderr, "proxy: the dead session is still listed:", err)
	}
}

func (o *newOptions) request(argv []string) (client.SpawnRequest, error) {
	r := client.SpawnRequest{ID: protocol.SessionID(o.id), EarlyExit: &o.earlyExit}
	if err := o.check(); err != nil {
		return r, err
	}
	if len(argv) == 0 {
		argv = []string{config.LoginShell(), "-l"}
	}
	size, policy := ownSize(), protocol.SizePolicy(o.policy)
	if o.size != "" {
		var err error
		if size, err = parseSize(o.size); err != nil {
			return r, err
		}
		policy = cmp.Or(policy, protocol.SizeFixed)
	}
	cwd, err := directory(o.cwd)
	if err != nil {
		return r, err
	}
	r.SpawnSpec = protocol.SpawnSpec{
		Argv: argv, Cwd: cwd, Env: o.env, ClearInheritedEnv: o.clearEnv, Cols: size.Cols, Rows: size.Rows,
		Originator: o.originator, Labels: o.labels, ScrollbackLines: o.scrollback, SizePolicy: policy,
		Limits: *o.limits,
	}
	if !o.clearEnv {
		// The session is this shell's child in its user's eyes: it gets this
		// environment, less what a terminal has no business with.
		r.Env = append(config.CleanEnv(os.Environ()), o.env...)
	}
	return r, r.Validate()
}

// check finds what a supervisor would accept, and the user cannot have meant.
func (o *newOptions) check() error {
	if o.id != "" {
		if err := protocol.SessionID(o.id).Validate(); err != nil {
			return err
		}
		if strings.HasPrefix(o.id, "-") {
			return usage(fmt.Errorf("--id %s: an id that begins with - would be taken for a flag by every other command", o.id))
		}
	}
	if o.scrollback < 0 || o.scrollback > protocol.MaxScrollback {
		return usage(fmt.Errorf("--scrollback is 0 to %d lines, it is %d", protocol.MaxScrollback, o.scrollback))
	}
	for k, v := range o.labels {
		if k == "" || printable(k) != k || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return usage(fmt.Errorf("--label %.40q: a label's name is text without controls, and its value is text", k+"="+v))
		}
	}
	if idle, ok := o.labels[protocol.LabelIdleTimeout]; ok {
		if _, err := time.ParseDuration(idle); err != nil {
			return usage(fmt.Errorf("--label %s=%.40s: it is a time such as 90m; 0 is never", protocol.LabelIdleTimeout, idle))
		}
	}
	return nil
}

func directory(name string) (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	switch {
	case name == "":
		return wd, nil
	case strings.HasPrefix(name, "/"):
		return name, nil
	}
	return wd + "/" + name, nil
}

// reopenSize is the size for a session that is started again in this terminal:
// this one's, or 0 and 0 where it keeps its own.
func reopenSize(ctx context.Context, c *client.Client, id protocol.SessionID) (cols, rows int) {
	if info, err := c.SessionInfo(ctx, id); err != nil || info.SizePolicy == protocol.SizeFixed {
		return 0, 0 // what is wrong shows when it is started
	}
	size := ownSize()
	return size.Cols, size.Rows
}

func (a *app) reopenCommand() *cobra.Command {
	o := &attachOptions{}
	var detach bool
	early := 200 * time.Millisecond
	cmd := &cobra.Command{
		Use:               "reopen ID [-- argv...]",
		Short:             "Start an exited session again under its id: same command, directory, environment and labels",
		Example:           "  proxy reopen old               # as it was\n  proxy reopen old -- make -k    # another command",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.sessionIDs(exited),
		RunE: func(cmd *cobra.Command, args []string) error {
			if n := cmd.ArgsLenAtDash(); n != 1 && (n >= 0 || len(args) > 1) {
				return usage(errors.New("reopen takes one ID; the command to run stands behind --"))
			}
			id, err := sessionID(args[0])
			if err := errors.Join(err, a.checkAttach(o), notItself(id)); err != nil {
				return err
			}
			ctx := cmd.Context()
			return a.withClient(ctx, func(c *client.Client) error {
				o.fresh, o.reopened, o.early = !detach, true, early
				change := protocol.RespawnSpec{Argv: args[1:]}
				if o.fresh {
					change.Cols, change.Rows = reopenSize(ctx, c, id)
				}
				none := time.Duration(0)
				s, err := c.Reopen(ctx, id, change, &none) // checked here, as in new
				if err != nil {
					return err
				}
				if detach {
					return detached(cmd, c, s, early)
				}
				return a.attachTo(ctx, c, &s.Session, o)
			})
		},
	}
	cmd.Flags().BoolVarP(&detach, "detach", "d", false, "do not attach; print the id")
	cmd.Flags().DurationVar(&early, "early-exit", early, "take the old record back if the child fails within this `time`; 0 does not look")
	o.flags(cmd)
	return cmd
}
