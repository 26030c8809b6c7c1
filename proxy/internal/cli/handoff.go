package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/protocol"
	"holdfast/proxy/internal/daemon"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/front"
	"holdfast/proxy/internal/handoff"
	"holdfast/proxy/internal/shadow"
	"holdfast/shared/config"
	"holdfast/shared/pipe"
	"holdfast/shared/plain"
	"holdfast/shared/socket"
	"holdfast/shared/sysexits"
	"holdfast/shared/version"
)

// handoffOptions are the flags of handoff and of --handoff.
type handoffOptions struct {
	foreground bool
	dryRun     bool
	json       bool
	fromDir    string
	timeout    time.Duration
	verify     Verify // sessions to compare before the takeover
	quiet      bool   // print nothing
	web        string // the web address of the successor; "" keeps that of the old proxy
}

func (a *App) handoffCommand() *cobra.Command {
	var o handoffOptions
	cmd := &cobra.Command{
		Use:   "handoff",
		Short: "Replace the running proxy by this program; no connection is lost",
		Long: "Start this program as the successor of the running proxy. The successor takes over the listening sockets and all\n" +
			"live connections. If it fails, the old proxy continues to serve. proxy --handoff does the same.",
		Example: "  proxy handoff --dry-run\n  proxy handoff",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.explainTimeout(cmd.Context(), a.handoff(cmd.Context(), &o))
		},
	}
	o.flags(cmd)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = strings.TrimPrefix(f.Usage, "with --handoff: ") })
	return cmd
}

func (o *handoffOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.foreground, "foreground", false, "with --handoff: serve in the foreground, in this process")
	f.BoolVar(&o.dryRun, "dry-run", false, "with --handoff: try everything that clients do not notice, and leave the old proxy serving")
	f.BoolVar(&o.json, "json", false, "with --handoff: print each step as a line of JSON")
	f.StringVar(&o.fromDir, "from-dir", "", "with --handoff: start the successor from the programs in a `directory`")
	SpanVar(f, &o.timeout, "timeout", handoff.Timeout, "with --handoff: how long the successor may take to prepare")
	VerifyVar(cmd, &o.verify, "with --handoff: ")
}

// Verify tells which sessions a successor compares before it takes over.
type Verify string

const (
	verifySample Verify = "sample"
	VerifyAll    Verify = "all"
)

// VerifyVar adds the flag --verify.
func VerifyVar(cmd *cobra.Command, p *Verify, usagePrefix string) {
	ChoiceVar(cmd, p, "verify", verifySample, fmt.Sprintf("%swhich sessions to compare before the takeover: a `sample` of at most %d, for at most %v, or all",
		usagePrefix, shadow.Sample.Sessions, shadow.Sample.Time), verifySample, VerifyAll)
}

// check reports invalid options.
func (o *handoffOptions) check() error {
	if o.timeout <= 0 || o.timeout > handoff.MaxTimeout {
		return exitcode.WrongUsagef("--timeout must be more than 0 and at most %v", handoff.MaxTimeout)
	}
	if o.foreground && (o.fromDir != "" || o.json) {
		return exitcode.WrongUsagef("--foreground serves in this process: it goes with neither --from-dir nor --json")
	}
	return nil
}

// HandOff replaces the running proxy by one that serves the page at the address web.
func (a *App) HandOff(ctx context.Context, web string) error {
	return a.handoff(ctx, &handoffOptions{timeout: handoff.Timeout, quiet: true, web: web})
}

// serveArgs returns the arguments of the successor. An older program refuses arguments that it does
// not know, so it cannot silently do something else.
func (o *handoffOptions) serveArgs() []string {
	args := []string{"--take-over"}
	if o.dryRun {
		args = append(args, "--dry-run")
	}
	if o.timeout != handoff.Timeout {
		args = append(args, "--timeout", o.timeout.String())
	}
	if o.verify == VerifyAll {
		args = append(args, "--verify=all")
	}
	if o.web != "" {
		args = append(args, "--web", o.web)
	}
	return args
}

// handoff starts a program as the successor of the running proxy, and reports its progress. The
// successor runs in the background, or as the next main process of the service if a service manager
// runs this command, or in this process with --foreground.
func (a *App) handoff(ctx context.Context, o *handoffOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	if pipe.Here {
		return exitcode.Unsupported("a handoff", "stop the proxy that runs, and start the new one")
	}
	if o.foreground {
		return a.takeOverHere(o)
	}
	exe, err := a.successor(o)
	if err != nil {
		return err
	}
	old, err := a.ProxyPID(ctx)
	if code := protocol.CodeOf(err); err != nil && !socket.IsAbsent(err) && code != protocol.CodeProtocolMismatch && code != protocol.CodePolicyUnavailable {
		return err // if the old proxy has another protocol for clients, or a policy that fails, the handoff may still succeed
	}
	if socket.IsAbsent(err) {
		if err := a.nothingHere(); err != nil {
			return err
		}
	}
	follow, err := a.newFollower(o)
	if err != nil {
		return err
	}
	defer follow.close()
	start := time.Now()
	p, err := a.startSuccessor(ctx, exe, o, follow.pipe.Name())
	if err != nil {
		return err
	}
	if err := a.waitServing(ctx, p, follow); err != nil {
		return err
	}
	follow.finish(old, p.PID, time.Since(start))
	return nil
}

// takeOverHere executes the successor in this process. It returns only if that fails.
func (a *App) takeOverHere(o *handoffOptions) error {
	exe, err := a.proxyProgram()
	if err != nil {
		return err
	}
	args, err := a.DaemonArgs("serve", o.serveArgs()...)
	if err != nil {
		return err
	}
	name := exe
	if a.isProxy {
		name = os.Args[0] // it may be a link, which the unit of a service names
	}
	return Execute(exe, append([]string{name}, args...))
}

// successor returns the path of the successor's program: that of this release, or the proxy in --from-dir.
func (a *App) successor(o *handoffOptions) (string, error) {
	if o.fromDir == "" {
		return a.proxyProgram()
	}
	dir, err := filepath.Abs(o.fromDir)
	if err != nil {
		return "", err
	}
	exe := filepath.Join(dir, "proxy")
	if _, err := exec.LookPath(exe); err != nil {
		return "", exitcode.WrongUsagef("--from-dir: %v", err)
	}
	return exe, nil
}

// startSuccessor starts the successor, which writes its report to the pipe with the given path.
func (a *App) startSuccessor(ctx context.Context, exe string, o *handoffOptions, report string) (*daemon.Process, error) {
	args, err := a.DaemonArgs("serve", o.serveArgs()...)
	if err != nil {
		return nil, err
	}
	spec := daemon.Spec{Path: exe, Args: args, Env: append(config.DaemonEnv(os.Environ()), handoff.ReportEnv+"="+report)}
	if env := handoff.NotifyEnv(); env != "" {
		spec.Env = append(spec.Env, env)         // the successor notifies the service manager
		return daemon.StartHere(spec, os.Stderr) // the successor logs to the same place as this process
	}
	spec.Args = append(spec.Args, "--background")
	return daemon.Start(ctx, spec)
}

// Grace is the time that a successor may take in addition to its preparation: to start, and until
// the old proxy has refused and ended it.
const Grace = 3 * time.Second

// waitServing returns when the successor serves, or when a dry run has ended.
func (a *App) waitServing(ctx context.Context, p *daemon.Process, f *follower) error {
	late := time.NewTimer(f.o.timeout + Grace)
	defer late.Stop()
	for {
		f.read()
		if f.over() {
			return f.err()
		}
		select {
		case <-p.Exited:
			f.read()
			if f.over() {
				return f.err()
			}
			return fmt.Errorf("the successor failed, the old proxy continues to serve: %s", a.lastError())
		case <-late.C:
			if a.serves(ctx, p.PID, f) {
				return nil
			}
			f.read() // what the successor has done meanwhile
			if !f.early() {
				late.Reset(StartTimeout) // clients are being moved, which must not be interrupted
				continue
			}
			p.End()
			return exitcode.Newf(sysexits.TempFail, "the successor was not ready within %v and was ended, the old proxy continues to serve", f.o.timeout+Grace)
		case <-ctx.Done():
			return fmt.Errorf("the successor (pid %d) does not serve yet: %w", p.PID, ctx.Err())
		case <-time.After(StartPoll):
		}
	}
}

// serves asks which proxy serves, and reports whether it is the successor. The successor may be unable to write its
// report, and must not be ended if clients are connected to it.
func (a *App) serves(ctx context.Context, pid int, f *follower) bool {
	ctx, cancel := context.WithTimeout(ctx, Grace)
	defer cancel()
	c, err := a.dial(ctx, nil)
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	if c.ProxyPID() != pid {
		return false
	}
	p := handoff.Progress{Step: "serving", PID: pid}
	if s, err := c.Status(ctx); err == nil {
		p.Version = s.Proxy.Version
	}
	line, _ := json.Marshal(p) // cannot fail for numbers and strings
	f.note(p, append(line, '\n'))
	return true
}

// A follower reads the report that a successor writes, and shows its steps.
type follower struct {
	o      *handoffOptions
	pipe   *os.File
	unread []byte // the incomplete last line of the report
	seen   map[string]handoff.Progress
	tty    bool
}

// reportInfix stands between the name of the proxy and a random part in the name of the pipe of a report.
const reportInfix = ".handoff-"

// newFollower makes the pipe for the report, and removes the pipes of commands that were killed.
func (a *App) newFollower(o *handoffOptions) (*follower, error) {
	dirs, err := a.MakeDirs()
	if err != nil {
		return nil, err
	}
	removeReports(dirs.Runtime)
	pipe, err := makeReport(filepath.Join(dirs.Runtime, a.Proxy+reportInfix+protocol.NewToken(4)))
	if err != nil {
		return nil, err
	}
	return &follower{o: o, pipe: pipe, seen: map[string]handoff.Progress{}, tty: front.IsTerminal(os.Stderr)}, nil
}

// close removes the pipe of the report.
func (f *follower) close() {
	_ = os.Remove(f.pipe.Name())
	_ = f.pipe.Close() // it was only read
}

// read reads the new complete lines of the report, and shows them.
func (f *follower) read() {
	report := append(f.unread, readReport(f.pipe)...)
	f.unread = nil
	for line := range bytes.Lines(report) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			f.unread = line
			return
		}
		var p handoff.Progress
		if json.Unmarshal(line, &p) == nil {
			f.note(p, line)
		}
	}
}

// note stores and shows a step.
func (f *follower) note(p handoff.Progress, line []byte) {
	f.seen[p.Step] = p
	f.show(p, line)
}

// show prints a step: as JSON with --json, and as text on a terminal.
func (f *follower) show(p handoff.Progress, line []byte) {
	if f.o.quiet {
		return
	}
	if f.o.json {
		_, _ = plain.JSON(plain.Stdout).Write(line)
	} else if text := stepText(p); f.tty && text != "" {
		fmt.Fprintf(plain.Stderr, "%7.1f ms  %s\n", p.AtMS, text)
	}
}

// stepText describes a step of a handoff for people.
func stepText(p handoff.Progress) string {
	switch p.Step {
	case "linked":
		return fmt.Sprintf("linked to the supervisor, pid %d", p.PID)
	case "offered":
		return fmt.Sprintf("proxy %s, pid %d, offers its listeners and connections", cmp.Or(p.Version, "dev"), p.PID)
	case "compared":
		text := fmt.Sprintf("both proxies see the same output of %s", plain.Count(p.Sessions, "session"))
		if p.Skipped > 0 {
			text += fmt.Sprintf(" of %d", p.Sessions+p.Unseen+p.Skipped)
		}
		if p.Unseen > 0 {
			text += fmt.Sprintf(", %d could not be compared", p.Unseen)
		}
		return text
	case "moved":
		return movedText(p)
	}
	return ""
}

// movedText describes the step in which connections were moved.
func movedText(p handoff.Progress) string {
	text := plain.Count(p.Connections, "connection") + " moved"
	if p.Connections > 0 {
		text += fmt.Sprintf(", with a pause of %.1f ms (median), %.1f ms at most", p.StallMedianMS, p.StallMaxMS)
	}
	if p.Closed > 0 {
		text += fmt.Sprintf("; %d asked to reconnect", p.Closed)
	}
	return text
}

// early reports whether the old proxy has not passed anything on yet, so that a successor that
// hangs may be ended.
func (f *follower) early() bool {
	_, compared := f.seen["compared"]
	return !compared && !f.over()
}

// over reports whether the successor serves, has completed a dry run, or has failed.
func (f *follower) over() bool {
	for _, step := range []string{"serving", "looked", "failed"} {
		if _, ok := f.seen[step]; ok {
			return true
		}
	}
	return false
}

// err returns the reason why the successor failed, or nil if it did not.
func (f *follower) err() error {
	p, ok := f.seen["failed"]
	if !ok {
		return nil
	}
	code := cmp.Or(p.ExitCode, exitcode.ByCode(p.Code), sysexits.Software) // an older successor does not report the first one
	return exitcode.New(code, "the successor failed, the old proxy continues to serve: "+p.Error)
}

// replaced returns the pid of the proxy that the successor has replaced, or 0 if none ran. answered is the pid of the proxy
// that answered before, which may have been replaced or stopped meanwhile; it counts only if there is no report.
func (f *follower) replaced(answered int) int {
	if _, isReported := f.seen["linked"]; isReported {
		return f.seen["offered"].PID
	}
	return answered
}

// finish prints the result of the handoff.
func (f *follower) finish(old, pid int, took time.Duration) {
	if f.o.json || f.o.quiet {
		return // the steps have been printed, or nothing is to be printed
	}
	took = took.Round(time.Millisecond)
	old = f.replaced(old)
	if _, tried := f.seen["looked"]; tried {
		fmt.Fprintf(plain.Stdout, "proxy %s could take over from pid %d, which continues to serve, after %v\n", cmp.Or(version.String(), "dev"), old, took)
		return
	}
	from := "no proxy ran before"
	if old != 0 {
		from = fmt.Sprintf("took over from pid %d", old)
	}
	fmt.Fprintf(plain.Stdout, "proxy %s serves as pid %d, %s, in %v\n", build(f.seen["serving"].Version), pid, from, took)
	if p, ok := f.seen["moved"]; ok && p.Connections+p.Closed > 0 && !f.tty {
		fmt.Fprintln(plain.Stdout, movedText(p))
	}
}
