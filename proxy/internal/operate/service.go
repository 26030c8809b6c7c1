package operate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/internal/cli"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/installed"
	"holdfast/proxy/internal/service"
	"holdfast/shared/config"
	"holdfast/shared/plain"
	"holdfast/shared/sysexits"
)

func (a *app) serviceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "service",
		Short:   "Let the system's service manager run the proxy: install, uninstall, status",
		Example: "  proxy service status",
		Long: "Let your service manager run the proxy when you log in: systemd --user on Linux, launchd on macOS.\n" +
			"Only service install installs a unit.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.installCommand(), a.uninstallCommand(), a.serviceStatusCommand())
	return cmd
}

// serviceOptions are the flags of service install and service uninstall.
type serviceOptions struct {
	service.Options
	dryRun, print bool
}

func (a *app) installCommand() *cobra.Command {
	o := &serviceOptions{}
	cmd := &cobra.Command{
		Use:     "install",
		Short:   "Write the unit, enable it at login, and start it",
		Example: "  proxy service install --dry-run   # show the unit",
		Long: "Write the unit, enable it at login, and start it. The unit has the same --proxy and --dir as this command.\n\n" +
			"A running proxy is replaced by a handoff, which closes no client. A second install rewrites the unit, prints\n" +
			"the differences, and hands off to the program that the unit names then (launchd restarts it instead). The unit\n" +
			"names this program by the path that was used; if that is a link, the unit follows it to the next version.\n\n" +
			"A unit of a package is not changed; the new unit takes precedence over it, until service uninstall.\n" +
			"A file that this command did not write is changed only with --force. If no service manager answers, as in a\n" +
			"container, install writes the file, prints the remaining commands, and exits with 69.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serviceError(a.install(cmd, o)) },
	}
	cmd.Flags().BoolVar(&o.Now, "now", true, "start the unit now, and not only at the next login")
	cmd.Flags().BoolVar(&o.Force, "force", false, "overwrite a file that this command did not write")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "print the unit and the steps, and change nothing")
	cmd.Flags().BoolVar(&o.print, "print", false, "print only the unit, and change nothing")
	return cmd
}

func (a *app) uninstallCommand() *cobra.Command {
	o := &serviceOptions{}
	cmd := &cobra.Command{
		Use:     "uninstall",
		Short:   "Stop the unit's proxy and remove the unit; the supervisor and all sessions continue",
		Example: "  proxy service uninstall --dry-run",
		Long: "Stop the unit's proxy and remove the unit. The supervisor and all sessions continue, and the next command that\n" +
			"needs a proxy starts one. supervisor stop --sessions=end ends them.\n\n" +
			"If the KillMode of the unit was changed, the unit is not stopped, because that might end sessions. A file that\n" +
			"proxy service install did not write is removed only with --force.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serviceError(a.uninstall(cmd, o)) },
	}
	cmd.Flags().BoolVar(&o.Now, "now", true, "stop the unit's proxy now")
	cmd.Flags().BoolVar(&o.Force, "force", false, "remove a file that this command did not write")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "print the steps, and change nothing")
	return cmd
}

func (a *app) serviceStatusCommand() *cobra.Command {
	return a.JSONFlag(&cobra.Command{
		Use:     "status",
		Short:   "Show whether the unit exists, runs, and has the proxy that serves",
		Example: "  proxy service status --json",
		Long: "Show whether the unit exists, runs, and has the proxy that serves. It starts nothing and changes nothing.\n" +
			"Exit code: 0 if the unit exists and runs, otherwise 69.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serviceError(a.serviceStatus(cmd)) },
	})
}

// serviceHost describes this system for package service.
func serviceHost() service.Host {
	return service.Host{OS: runtime.GOOS, UID: os.Getuid(), Env: os.Getenv, Run: serviceRun}
}

// serviceRun runs a command and returns its output. The error includes the command's standard
// error.
func serviceRun(ctx context.Context, argv ...string) (string, error) {
	var out, errout bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &errout
	err := cmd.Run()
	if text := strings.TrimSpace(errout.String()); err != nil && text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return out.String(), err
}

// serviceSpec describes the unit of the proxy that this command names, in the directories that it
// would use here. It changes nothing.
func (a *app) serviceSpec(host service.Host) (service.Spec, error) {
	dirs, err := config.Resolve(a.Dir, os.Getenv)
	if err != nil {
		return service.Spec{}, err
	}
	s := service.Spec{Proxy: a.Proxy, Log: filepath.Join(dirs.State, a.Proxy+".launchd.log")}
	if cmp.Or(a.Dir, os.Getenv("HOLDFAST_DIR")) != "" {
		s.Dir = dirs.State
	} else {
		s.Env = host.Moving()
	}
	exe, err := os.Executable()
	if err != nil {
		return s, err
	}
	s.Program, err = service.Program(os.Args[0], exe)
	return s, err
}

// install writes and starts the unit.
func (a *app) install(cmd *cobra.Command, o *serviceOptions) error {
	host := serviceHost()
	spec, err := a.serviceSpec(host)
	if err != nil {
		return err
	}
	if o.print {
		u, err := host.Unit(spec)
		if err == nil {
			_, err = fmt.Fprint(cmd.OutOrStdout(), u.Text)
		}
		return err
	}
	plan, err := host.Install(cmd.Context(), spec, o.Options)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if o.dryRun {
		fmt.Fprintf(out, "%s:\n\n%s\n", plan.Unit.Path, plan.Unit.Text)
		return printPlan(out, plan)
	}
	if _, err := a.MakeDirs(); err != nil { // launchd creates no directory for the log
		return err
	}
	err = plan.Do(cmd.Context(), sayStep(out))
	a.serviceNotes(cmd.Context(), out)
	return err
}

// uninstall stops and removes the unit.
func (a *app) uninstall(cmd *cobra.Command, o *serviceOptions) error {
	host := serviceHost()
	spec, err := a.serviceSpec(host)
	if spec.Program == "" { // even a program that cannot be installed may remove another program's unit
		spec.Program, err = os.Executable()
	}
	if err != nil {
		return err
	}
	plan, err := host.Uninstall(cmd.Context(), spec, o.Options)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	switch {
	case len(plan.Steps) == 0:
		text := "there is no " + plan.Unit.Path
		if plan.Packaged != "" {
			text += fmt.Sprintf("; %s was not written by proxy service install: systemctl --user disable --now %s stops it", plan.Packaged, plan.Unit.Name)
		}
		_, err := fmt.Fprintln(out, plain.Text(cli.Named(text)))
		return err
	case o.dryRun:
		return printPlan(out, plan)
	}
	if err := plan.Do(cmd.Context(), sayStep(out)); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "the supervisor and its sessions continue; supervisor stop --sessions=end ends them")
	return err
}

// sayStep returns a function that prints a step and its details.
func sayStep(out io.Writer) func(service.Step) {
	return func(s service.Step) {
		fmt.Fprintln(out, plain.Text(s.Text))
		for _, d := range s.Details {
			fmt.Fprintln(out, "  "+plain.Text(d))
		}
	}
}

// printPlan prints the steps without doing them.
func printPlan(out io.Writer, plan *service.Plan) error {
	for _, s := range plan.Steps {
		sayStep(out)(s)
	}
	if plan.Silent == nil {
		return nil
	}
	_, err := fmt.Fprintf(out, "\nyour service manager does not answer here (%s): you would have to run the commands yourself\n", plain.Text(plan.Silent.Error()))
	return err
}

// serviceNotes prints facts about the new unit that may surprise its user.
func (a *app) serviceNotes(ctx context.Context, out io.Writer) {
	note := func(format string, args ...any) { fmt.Fprintf(out, "note: "+format+"\n", args...) }
	names := []string{"HOLDFAST_SUPERVISOR"}
	settings := flag.NewFlagSet("", flag.ContinueOnError)
	_ = config.Flags(settings)
	settings.VisitAll(func(f *flag.Flag) {
		names = append(names, "HOLDFAST_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")))
	})
	for _, n := range names {
		if os.Getenv(n) != "" {
			note("%s is set here, but not in the unit; put settings for every proxy into holdfast.json", n)
		}
	}
	if _, err := installed.Supervisor(); err != nil {
		note("%s", plain.Text(err.Error()))
	}
	for _, f := range a.diagnose(ctx) {
		if f.Check == "linger" && f.Fix != "" {
			note("%s; fix: %s", plain.Text(f.Finding), f.Fix)
		}
	}
}

// serviceStatus prints the state of the unit.
func (a *app) serviceStatus(cmd *cobra.Command) error {
	host := serviceHost()
	spec, err := a.serviceSpec(host)
	if err != nil {
		return err
	}
	st, err := host.Status(cmd.Context(), spec)
	if err != nil {
		return err
	}
	st.Serving = a.servingPID(cmd.Context())
	err = a.Print(cmd, st, func(out io.Writer) error { return printService(out, st) })
	if err == nil && !st.Running() {
		err = exitcode.New(sysexits.Unavailable, "")
	}
	return err
}

// servingPID returns the pid of the proxy that answers, or 0. If there is no socket, it dials no
// proxy, because dialing would create the directories.
func (a *app) servingPID(ctx context.Context) int {
	dirs, err := config.Resolve(a.Dir, os.Getenv)
	if err != nil {
		return 0
	}
	if _, err := os.Lstat(dirs.Socket(config.APISocket(a.Proxy))); err != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	pid, err := a.ProxyPID(ctx)
	if err != nil {
		return 0
	}
	return pid
}

// fileTexts describes the unit's file.
var fileTexts = map[service.File]string{
	service.FileNone:    "does not exist; proxy service install writes it",
	service.FileOurs:    "has the content that install would write",
	service.FileOther:   "differs from the content that install would write; proxy service install --dry-run shows how",
	service.FileForeign: "was not written by proxy service install",

	service.FilePackaged: "came with a package; proxy service install writes your own, which takes precedence",
}

// printService prints the state of the unit for people.
func printService(out io.Writer, st *service.Status) error {
	state := "its state is unknown: " + plain.Text(strings.ReplaceAll(st.Manager, "\n", "; "))
	if st.Manager == "" {
		state = map[bool]string{true: "started at login", false: "not started at login"}[st.Enabled]
		if st.Active {
			state += fmt.Sprintf(", runs as pid %d", st.PID)
		} else {
			state += ", does not run"
		}
	}
	serving := "does not answer"
	switch {
	case st.Serving == 0:
	case st.Active && st.Serving == st.PID:
		serving = fmt.Sprintf("pid %d, the unit's", st.Serving)
	default:
		serving = fmt.Sprintf("pid %d, not of the unit; starting the unit takes over from it", st.Serving)
	}
	_, err := fmt.Fprintf(out, "unit   %s: %s\nfile   %s %s\nproxy  %s\n", st.Name, state, plain.Text(st.Path), cli.Named(fileTexts[st.File]), serving)
	return err
}

// serviceError chooses the exit code for an error.
func serviceError(err error) error {
	var left *service.LeftError
	var failed *service.FailedError
	switch {
	case errors.As(err, &left), errors.Is(err, protocol.ErrUnsupportedOS):
		return exitcode.New(sysexits.Unavailable, err.Error())
	case errors.As(err, &failed):
		return exitcode.New(sysexits.OSError, err.Error())
	case errors.Is(err, service.ErrForeign):
		return exitcode.New(sysexits.CantCreate, err.Error()+"; check the file, then move it away or use --force")
	case errors.Is(err, service.ErrEnds):
		return exitcode.New(sysexits.TempFail, err.Error()+"; set it to process (systemctl --user edit), or leave the proxy running with --now=false")
	}
	return err
}
