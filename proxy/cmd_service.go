package main

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
	"holdfast/proxy/internal/service"
	"holdfast/shared/config"
)

func (a *app) serviceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "service",
		Short:   "Have the system's service manager run the proxy: install, uninstall, status",
		Example: "  proxy service status",
		Long: "Have your service manager run the proxy from your login on: systemd --user on Linux, launchd on macOS.\n" +
			"Nothing but service install ever installs anything.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.installCommand(), a.uninstallCommand(), a.serviceStatusCommand())
	return cmd
}

type serviceOptions struct {
	service.Options
	dryRun, print bool
}

func (a *app) installCommand() *cobra.Command {
	o := &serviceOptions{}
	cmd := &cobra.Command{
		Use:     "install",
		Short:   "Write the unit, have it started at login, and start it",
		Example: "  proxy service install --dry-run   # show the unit",
		Long: "Write the unit, have it started at login, and start it. --proxy and --dir hold for the unit, too.\n\n" +
			"A proxy that runs already is taken over from by a handoff: no client is closed. A second install rewrites\n" +
			"the unit, says what has changed, and hands off to the program that it names then (launchd starts it anew).\n" +
			"The unit names this program as it was called; a link is kept, so that it leads to the next version, too.\n\n" +
			"A unit that a package brought stays as it is; the one written here goes before it, until service uninstall.\n" +
			"A file that this command did not write is left alone, but for --force. Where no service manager answers,\n" +
			"as in a container, the file is written, the commands that are left to do are printed, and the exit code is 69.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serviceError(a.install(cmd, o)) },
	}
	cmd.Flags().BoolVar(&o.Now, "now", true, "start it now, too, and not only at the next login")
	cmd.Flags().BoolVar(&o.Force, "force", false, "overwrite a file that this command did not write")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "print the unit and what would be done, and do nothing")
	cmd.Flags().BoolVar(&o.print, "print", false, "print the unit alone, and do nothing")
	return cmd
}

func (a *app) uninstallCommand() *cobra.Command {
	o := &serviceOptions{}
	cmd := &cobra.Command{
		Use:     "uninstall",
		Short:   "Stop the unit's proxy and remove the unit; the supervisor and every session go on",
		Example: "  proxy service uninstall --dry-run",
		Long: "Stop the unit's proxy and remove the unit. The supervisor and every session go on, and the next command that\n" +
			"needs a proxy starts one. To end them: supervisor stop --sessions=end.\n\n" +
			"A unit whose KillMode somebody has changed is not stopped, as that may end sessions; nor is a file removed that\n" +
			"proxy service install did not write, but for --force.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serviceError(a.uninstall(cmd, o)) },
	}
	cmd.Flags().BoolVar(&o.Now, "now", true, "stop the unit's proxy, too")
	cmd.Flags().BoolVar(&o.Force, "force", false, "remove a file that this command did not write")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "print what would be done, and do nothing")
	return cmd
}

func (a *app) serviceStatusCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:     "status",
		Short:   "Say whether the unit is there, runs, and is the proxy that serves",
		Example: "  proxy service status --json",
		Long: "Say whether the unit is there, runs, and is the proxy that serves. It starts nothing and changes nothing.\n" +
			"Exit code: 0 if the unit is there and runs, else 69.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serviceError(a.serviceStatus(cmd)) },
	})
}

func serviceHost() service.Host {
	return service.Host{OS: runtime.GOOS, UID: os.Getuid(), Env: os.Getenv, Run: serviceRun}
}

// serviceRun returns what a command prints, and in its error what that complains of.
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

// serviceSpec is the proxy that this command is asked about, in the directories
// that it would serve in here. It touches nothing.
func (a *app) serviceSpec(host service.Host) (service.Spec, error) {
	dirs, err := config.Resolve(a.dir, os.Getenv)
	if err != nil {
		return service.Spec{}, err
	}
	s := service.Spec{Proxy: a.proxy, Log: filepath.Join(dirs.State, a.proxy+".launchd.log")}
	if cmp.Or(a.dir, os.Getenv("HOLDFAST_DIR")) != "" {
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
	if _, err := a.makeDirs(); err != nil { // launchd makes no directory for the log
		return err
	}
	err = plan.Do(cmd.Context(), sayStep(out))
	a.serviceNotes(cmd.Context(), out)
	return err
}

func (a *app) uninstall(cmd *cobra.Command, o *serviceOptions) error {
	host := serviceHost()
	spec, err := a.serviceSpec(host)
	if spec.Program == "" { // a program that cannot be installed may take another's unit away
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
			text += fmt.Sprintf("; %s is not of proxy service install: systemctl --user disable --now %s stops it", plan.Packaged, plan.Unit.Name)
		}
		_, err := fmt.Fprintln(out, printable(text))
		return err
	case o.dryRun:
		return printPlan(out, plan)
	}
	if err := plan.Do(cmd.Context(), sayStep(out)); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, "the supervisor and its sessions go on, if they run; supervisor stop --sessions=end ends them")
	return err
}

func sayStep(out io.Writer) func(service.Step) {
	return func(s service.Step) {
		fmt.Fprintln(out, printable(s.Text))
		for _, d := range s.Details {
			fmt.Fprintln(out, "  "+printable(d))
		}
	}
}

func printPlan(out io.Writer, plan *service.Plan) error {
	for _, s := range plan.Steps {
		sayStep(out)(s)
	}
	if plan.Silent == nil {
		return nil
	}
	_, err := fmt.Fprintf(out, "\nno service manager of yours answers here (%s): the commands would be left to you\n", printable(plan.Silent.Error()))
	return err
}

// serviceNotes says what would surprise somebody who has installed a unit.
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
			note("%s is set here, and the unit does not know it; settings for all who start a proxy stand in holdfast.json", n)
		}
	}
	if _, err := supervisorPath(); err != nil {
		note("%s", printable(err.Error()))
	}
	for _, f := range a.diagnose(ctx) {
		if f.Check == "linger" && f.Fix != "" {
			note("%s; fix: %s", printable(f.Finding), f.Fix)
		}
	}
}

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
	if a.json {
		err = printJSON(cmd, st)
	} else {
		err = printService(cmd.OutOrStdout(), st)
	}
	if err == nil && !st.Running() {
		err = &exitError{exitUnavailable, ""}
	}
	return err
}

// servingPID is the proxy that answers, 0 for none. Where there is no socket
// nobody is asked, as dialing makes the directories.
func (a *app) servingPID(ctx context.Context) int {
	dirs, err := config.Resolve(a.dir, os.Getenv)
	if err != nil {
		return 0
	}
	if _, err := os.Lstat(dirs.Socket(config.APISocket(a.proxy))); err != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	pid, err := a.proxyPID(ctx)
	if err != nil {
		return 0
	}
	return pid
}

var fileTexts = map[service.File]string{
	service.FileNone:    "is not there; proxy service install writes it",
	service.FileOurs:    "is as install would write it",
	service.FileOther:   "is not as install would write it; proxy service install --dry-run says what differs",
	service.FileForeign: "was not written by proxy service install",

	service.FilePackaged: "came with a package; proxy service install writes one of your own, which goes before it",
}

func printService(out io.Writer, st *service.Status) error {
	state := "it is not known how it is: " + printable(strings.ReplaceAll(st.Manager, "\n", "; "))
	if st.Manager == "" {
		state = map[bool]string{true: "started at login", false: "not started at login"}[st.Enabled]
		if st.Active {
			state += fmt.Sprintf(", runs as pid %d", st.PID)
		} else {
			state += ", does not run"
		}
	}
	serving := "none answers"
	switch {
	case st.Serving == 0:
	case st.Active && st.Serving == st.PID:
		serving = fmt.Sprintf("pid %d, the unit's", st.Serving)
	default:
		serving = fmt.Sprintf("pid %d, not of the unit; starting the unit takes over from it", st.Serving)
	}
	_, err := fmt.Fprintf(out, "unit   %s: %s\nfile   %s %s\nproxy  %s\n", st.Name, state, printable(st.Path), fileTexts[st.File], serving)
	return err
}

// serviceError gives an exit code to what may go wrong.
func serviceError(err error) error {
	var left *service.LeftError
	var failed *service.FailedError
	switch {
	case errors.As(err, &left), errors.Is(err, protocol.ErrUnsupportedOS):
		return &exitError{exitUnavailable, err.Error()}
	case errors.As(err, &failed):
		return &exitError{exitOSError, err.Error()}
	case errors.Is(err, service.ErrForeign):
		return &exitError{exitCantCreate, err.Error() + "; look at it, move it away, or say --force"}
	case errors.Is(err, service.ErrEnds):
		return &exitError{exitTempFail, err.Error() + "; set it to process (systemctl --user edit), or leave the proxy running with --now=false"}
	}
	return err
}
