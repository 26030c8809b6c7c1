package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/front"
	"holdfast/proxy/internal/shellint"
	"holdfast/shared/config"
	"holdfast/shared/plain"
)

// newOptions are the flags of new.
type newOptions struct {
	id         string
	detach     bool
	existing   bool // -A
	size       string
	policy     protocol.SizePolicy
	cwd        string
	env        []string
	secretEnv  []string
	durable    protocol.Durable
	clearEnv   bool
	labels     map[string]string
	scrollback int
	originator string
	earlyExit  time.Duration
	shell      bool
	limits     *protocol.Limits
	place      string
	isRemote   bool // the session starts on another host
	attach     attachOptions
}

func (a *App) newCommand() *cobra.Command {
	o := &newOptions{}
	cmd := &cobra.Command{
		Use:   "new [flags] [--] [argv...]",
		Short: "Start a session and attach to it; without argv it runs the login shell",
		Example: "  proxy new                                   # the login shell\n" +
			"  proxy new --id build -- make -j8\n" +
			"  proxy new --detach --size 120x40 -- top     # prints its id\n" +
			"  proxy new -d --place team=compilers -- make # on a host of the gate; prints HOST/ID",
		RunE: func(cmd *cobra.Command, argv []string) error {
			return a.new(cmd, o, argv)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // flags after the command belong to the command
	f.BoolVarP(&o.existing, "or-attach", "A", false, "with --id: attach if a session with that id exists")
	f.StringVar(&o.id, "id", "", "the session's `id`, 1 to 64 characters of [a-zA-Z0-9_-] (default a new one)")
	f.BoolVarP(&o.detach, "detach", "d", false, "do not attach; print the id")
	f.StringVar(&o.size, "size", "", "fixed size, `COLSxROWS` (default the size of this terminal or 80x24, changed by --size-policy)")
	f.StringVar(&o.place, "place", "", "start the session on the host of the gate that has these `labels` (k=v,k=v, or any) and the fewest running sessions for each of its processors")
	sizePolicyVar(cmd, &o.policy, "size-policy", "the `viewer` that determines the size: latest, owner, smallest, largest, or fixed for none (default latest, with --size fixed)")
	o.flags(cmd)
	SpanVar(f, &o.earlyExit, "early-exit", earlyTime, "with -d: fail if the child fails within this `time`; 0 does not wait")
	f.BoolVar(&o.shell, "shell-integration", false, "make the shell (bash, zsh, fish) report its prompts and commands (default the setting shell_integration)")
	f.Lookup("shell-integration").DefValue = "" // omits the second default from the help text
	o.attach.flags(a, cmd)
	return cmd
}

// flags adds the flags that tell where and with which environment a command is started.
func (o *newOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.cwd, "cwd", "", "working `directory` (default this one)")
	f.StringArrayVar(&o.env, "env", nil, "add `K=V` to the environment; may be repeated")
	f.StringArrayVar(&o.secretEnv, "secret-env", nil, "pass the variable `NAME` of this environment to the session, and mask its value in recordings and in what programs read; * stands for any characters of names in --env; may be repeated")
	ChoiceVar(cmd, &o.durable, "durable", "", "how `much` of the session is stored on disk: off, screen or full (default the setting durable)",
		protocol.DurableOff, protocol.DurableScreen, protocol.DurableFull)
	f.BoolVar(&o.clearEnv, "clear-env", false, "do not inherit the environment")
	LabelsVar(f, &o.labels, "add the label `k=v`, which info prints")
	f.IntVar(&o.scrollback, "scrollback", 0, "`lines` of history (default 10000)")
	o.limits = limitFlags(cmd)
	f.StringVar(&o.originator, "originator", "", "the `name` of the program that starts the session, for ls --originator")
	_ = cmd.MarkFlagDirname("cwd") // the flag exists, so this cannot fail
}

// new starts a session, and attaches to it unless -d is given.
func (a *App) new(cmd *cobra.Command, o *newOptions, argv []string) error {
	if err := a.nameHost(cmd, o); err != nil {
		return err
	}
	if o.place != "" {
		if err := a.placeOn(cmd.Context(), o.place); err != nil {
			return err
		}
		o.isRemote = true
	}
	r, err := o.request(argv)
	if err := errors.Join(err, a.checkAttach(&o.attach)); err != nil {
		return err
	}
	if r.ShellIntegration = o.shell; !cmd.Flags().Changed("shell-integration") {
		cfg, err := a.Settings()
		if err != nil {
			return err
		}
		r.ShellIntegration = cfg.ShellIntegration
	} else if o.shell && !shellint.Applies(r.Argv, r.Env) {
		Warn("--shell-integration has no effect: the command is not bash, zsh or fish with no arguments but -i and -l")
	}
	ctx := cmd.Context()
	return a.WithStarted(ctx, func(c *client.Client) error {
		// This command checks for an early exit itself, because the proxy's check would also remove
		// a session after a success of its child.
		none := time.Duration(0)
		r.EarlyExit, r.Unattended = &none, o.detach
		s, err := c.Spawn(ctx, r)
		a.isStarting.Store(false)
		if o.existing && o.id != "" && protocol.CodeOf(err) == protocol.CodeSessionExists {
			if err := a.notItself(ctx, c, r.ID); err != nil {
				return err
			}
			return a.attachTo(ctx, c, &protocol.SessionInfo{ID: r.ID}, &o.attach)
		}
		if err != nil {
			return err
		}
		warnUnmasked(&s.Session)
		if o.detach {
			return a.detached(cmd, c, s, o.earlyExit, o.earlyExit)
		}
		o.attach.fresh, o.attach.early = true, o.earlyExit
		return a.attachTo(ctx, c, &s.Session, &o.attach)
	})
}

// isSetIn reports whether env (K=V) has a variable.
func isSetIn(env []string, name string) bool {
	return slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
}

// warnUnmasked tells which variables are secret without being masked.
func warnUnmasked(s *protocol.SessionInfo) {
	if len(s.Unmasked) > 0 {
		Warn("not masked, because it is not set or its value has fewer than 4 bytes: %s", plain.Text(strings.Join(s.Unmasked, ", ")))
	}
}

// request returns the spawn request for the flags and the command.
func (o *newOptions) request(argv []string) (client.SpawnRequest, error) {
	r := client.SpawnRequest{ID: protocol.SessionID(o.id), EarlyExit: &o.earlyExit}
	if err := o.check(); err != nil {
		return r, err
	}
	if len(argv) == 0 {
		argv = loginShell(o.isRemote)
	}
	size, policy := front.OwnSize(), o.policy
	if o.size != "" {
		var err error
		if size, err = parseSize(o.size); err != nil {
			return r, err
		}
		policy = cmp.Or(policy, protocol.SizeFixed)
	}
	cwd, err := o.directory()
	if err != nil {
		return r, err
	}
	r.SpawnSpec = protocol.SpawnSpec{
		Argv: argv, Cwd: cwd, Env: o.env, ClearInheritedEnv: o.clearEnv, Cols: size.Cols, Rows: size.Rows,
		Originator: o.originator, Labels: o.labels, ScrollbackLines: o.scrollback, SizePolicy: policy,
		Limits: *o.limits, SecretEnv: o.secretEnv, Durable: o.durable,
	}
	if !o.detach && !o.attach.readOnly {
		look := front.Open(os.Stdin, os.Stdout).Appearance()
		r.CellWidth, r.CellHeight = look.CellWidth, look.CellHeight
	}
	if !o.clearEnv && !o.isRemote {
		// For its user the session is a child of this shell. It therefore inherits this
		// environment, without the variables that describe this terminal.
		r.Env = append(o.attach.textOf(config.CleanEnv(os.Environ())), o.env...)
	}
	for _, name := range o.secretEnv { // the user has named it, so it is meant for the session
		if value, ok := os.LookupEnv(name); ok && !isSetIn(o.env, name) {
			r.Env = append(r.Env, name+"="+value)
		}
	}
	return r, r.Validate()
}

// checkEarlyExit reports a time of --early-exit that a user cannot have meant.
func checkEarlyExit(early time.Duration) error {
	if early < 0 {
		return exitcode.WrongUsagef("--early-exit must not be negative; 0 does not wait")
	}
	return nil
}

// check reports options that a supervisor would accept, but that the user cannot have meant.
func (o *newOptions) check() error {
	if o.id != "" {
		if err := protocol.SessionID(o.id).Validate(); err != nil {
			return err
		}
		if strings.HasPrefix(o.id, "-") {
			return exitcode.WrongUsagef("--id %s: an id must not begin with -, because other commands would take it for a flag", o.id)
		}
	}
	if o.scrollback < 0 || o.scrollback > protocol.MaxScrollback {
		return exitcode.WrongUsagef("--scrollback must be 0 to %d lines, it is %d", protocol.MaxScrollback, o.scrollback)
	}
	if err := checkEarlyExit(o.earlyExit); err != nil {
		return err
	}
	for k, v := range o.labels {
		if k == "" || plain.Text(k) != k || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return exitcode.WrongUsagef("--label %.40q: the name must be text without control characters, and the value must be text", k+"="+v)
		}
	}
	if idle, ok := o.labels[protocol.LabelIdleTimeout]; ok {
		if _, err := time.ParseDuration(idle); err != nil {
			return exitcode.WrongUsagef("--label %s=%.40s: the value must be a time such as 90m; 0 means never", protocol.LabelIdleTimeout, idle)
		}
	}
	return nil
}

// directory returns the absolute path of the session's directory. Without --cwd it is the working
// directory, and on another host the home directory there, which "" stands for.
func (o *newOptions) directory() (string, error) {
	switch {
	case strings.HasPrefix(o.cwd, "/"), o.isRemote && o.cwd == "":
		return o.cwd, nil
	case o.isRemote:
		return "", exitcode.WrongUsagef("--cwd %s: a directory of another host must begin with /", o.cwd)
	}
	wd, err := WorkingDirectory()
	if err != nil || o.cwd == "" {
		return wd, err
	}
	return wd + "/" + o.cwd, nil
}

// WorkingDirectory returns the working directory of this command.
func WorkingDirectory() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("the working directory cannot be used: %w; cd to another one", err)
	}
	return wd, nil
}

// nameHost makes the command one for the host in --id HOST/ID. It returns an error if --id has no id: a script whose
// variable is not set would start another session with each call.
func (a *App) nameHost(cmd *cobra.Command, o *newOptions) error {
	host, id := splitName(o.id)
	if id == "" && cmd.Flags().Changed("id") {
		return exitcode.WrongUsagef("--id needs an id, but it is empty; without --id the session has a new one")
	}
	o.id = string(id)
	err := a.setHost(host)
	o.isRemote = a.Host != ""
	return err
}
