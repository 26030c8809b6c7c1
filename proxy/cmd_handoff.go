package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	"holdfast/proxy/internal/handoff"
	"holdfast/shared/config"
	"holdfast/shared/pipe"
	"holdfast/shared/plain"
	"holdfast/shared/version"
)

// handoffOptions are what --handoff takes.
type handoffOptions struct {
	foreground bool
	dryRun     bool
	json       bool
	fromDir    string
	timeout    time.Duration
	quiet      bool   // nothing is printed
	web        string // where the successor is to serve the page, "" where that is not told
}

func (a *app) handoffCommand() *cobra.Command {
	var o handoffOptions
	cmd := &cobra.Command{
		Use:   "handoff",
		Short: "Replace the running proxy by this program; no connection is lost",
		Long: "Start this program as the successor of the running proxy. It takes over the listening sockets and all live connections;\n" +
			"if it fails, the old proxy serves on. proxy --handoff is the same.",
		Example: "  proxy handoff --dry-run\n  proxy handoff",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.handoff(cmd.Context(), &o) },
	}
	o.flags(cmd)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = strings.TrimPrefix(f.Usage, "with --handoff: ") })
	return cmd
}

func (o *handoffOptions) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.foreground, "foreground", false, "with --handoff: serve in the foreground, in this process")
	f.BoolVar(&o.dryRun, "dry-run", false, "with --handoff: do everything up to where clients would notice, and leave the old proxy serving")
	f.BoolVar(&o.json, "json", false, "with --handoff: print each step as a line of JSON")
	f.StringVar(&o.fromDir, "from-dir", "", "with --handoff: start the successor from the programs in a `directory`")
	f.DurationVar(&o.timeout, "timeout", handoff.Timeout, "with --handoff: how long the successor may take to prepare")
}

func (o *handoffOptions) check() error {
	if o.timeout <= 0 || o.timeout > handoff.MaxTimeout {
		return usage(fmt.Errorf("--timeout: more than 0, at most %v", handoff.MaxTimeout))
	}
	if o.foreground && (o.fromDir != "" || o.json) {
		return usage(errors.New("--foreground serves in this process: it starts no other and prints no steps"))
	}
	return nil
}

// serveArgs are those of the successor. An older program refuses what it does
// not know, and so is never taken to do what it does not.
func (o *handoffOptions) serveArgs() []string {
	args := []string{"--take-over"}
	if o.dryRun {
		args = append(args, "--dry-run")
	}
	if o.timeout != handoff.Timeout {
		args = append(args, "--timeout", o.timeout.String())
	}
	if o.web != "" {
		args = append(args, "--web", o.web)
	}
	return args
}

// handoff starts a program as the successor of the running proxy, and tells here
// how it gets on: in the background; as a service's next main process where a
// service manager runs us; or as this process.
func (a *app) handoff(ctx context.Context, o *handoffOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	if pipe.Here {
		return notHere("a handoff", "stop the proxy that runs, and start the new one")
	}
	if o.foreground {
		return a.serve(ctx, &serveOptions{takeOver: true, dryRun: o.dryRun, timeout: o.timeout})
	}
	exe, err := o.program()
	if err != nil {
		return err
	}
	old, err := a.proxyPID(ctx)
	if err != nil && !nobodyListens(err) && protocol.CodeOf(err) != protocol.CodeProtocolMismatch {
		return err // a proxy of another protocol's clients gives them up to whom it understands
	}
	if nobodyListens(err) {
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
	p, err := a.startSuccessor(ctx, exe, o, follow.path)
	if err != nil {
		return err
	}
	if err := a.waitServing(ctx, p, follow); err != nil {
		return err
	}
	follow.finish(old, p.PID, time.Since(start))
	return nil
}

// program is what is started: ours, or the one of another directory.
func (o *handoffOptions) program() (string, error) {
	if o.fromDir == "" {
		return os.Executable()
	}
	dir, err := filepath.Abs(o.fromDir)
	if err != nil {
		return "", err
	}
	exe := filepath.Join(dir, "proxy")
	if _, err := exec.LookPath(exe); err != nil {
		return "", usage(fmt.Errorf("--from-dir: %w", err))
	}
	return exe, nil
}

func (a *app) startSuccessor(ctx context.Context, exe string, o *handoffOptions, report string) (*daemon.Process, error) {
	args, err := a.daemonArgs("serve", o.serveArgs()...)
	if err != nil {
		return nil, err
	}
	spec := daemon.Spec{Path: exe, Args: args, Env: append(config.DaemonEnv(os.Environ()), reportEnv+"="+report)}
	if managed() {
		spec.Env = append(spec.Env, notifySocket+"="+os.Getenv(notifySocket)) // the successor tells the manager
		return daemon.StartHere(spec, os.Stderr)                              // its log goes where ours does
	}
	spec.Args = append(spec.Args, "--background")
	return daemon.Start(ctx, spec)
}

// proxyPID asks the proxy who it is.
func (a *app) proxyPID(ctx context.Context) (int, error) {
	c, err := a.dial(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	return c.ProxyPID(), nil
}

// grace is how long a successor may take in addition to preparing: to start, and
// for the old proxy to refuse it and to end it.
const grace = 3 * time.Second

// waitServing returns when the successor serves, or has seen enough.
func (a *app) waitServing(ctx context.Context, p *daemon.Process, f *follower) error {
	late := time.NewTimer(f.o.timeout + grace)
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
			return fmt.Errorf("the successor gave up, the old proxy serves on: %s", a.lastError())
		case <-late.C:
			if !f.early() {
				late.Reset(startTimeout) // clients are being moved: that goes on
				continue
			}
			p.End()
			return &exitError{exitTempFail, fmt.Sprintf("the successor did not get ready within %v and was ended, the old proxy serves on", f.o.timeout+grace)}
		case <-ctx.Done():
			return fmt.Errorf("the successor (pid %d) does not serve yet: %w", p.PID, ctx.Err())
		case <-time.After(startPoll):
		}
		if f.silent() { // a program that tells nothing
			if pid, err := a.proxyPID(ctx); err != nil || pid != p.PID {
				continue
			}
			if f.read(); f.silent() { // else it has told meanwhile
				return nil
			}
		}
	}
}

// A follower reads what a successor tells of itself.
type follower struct {
	o    *handoffOptions
	path string
	at   int // read up to here
	seen map[string]progress
	tty  bool
}

// newFollower makes the file for the report.
func (a *app) newFollower(o *handoffOptions) (*follower, error) {
	dirs, err := a.makeDirs()
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(dirs.State, a.proxy+".handoff-")
	if err != nil {
		return nil, err
	}
	return &follower{o: o, path: file.Name(), seen: map[string]progress{}, tty: isTerminal(os.Stderr)}, file.Close()
}

func (f *follower) close() { _ = os.Remove(f.path) }

// read takes what is new, a whole line at a time.
func (f *follower) read() {
	b, err := os.ReadFile(f.path)
	if err != nil || len(b) <= f.at {
		return
	}
	for line := range bytes.Lines(b[f.at:]) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			return
		}
		f.at += len(line)
		var p progress
		if json.Unmarshal(line, &p) != nil {
			continue
		}
		f.seen[p.Step] = p
		f.show(p, line)
	}
}

func (f *follower) show(p progress, line []byte) {
	if f.o.quiet {
		return
	}
	if f.o.json {
		_, _ = plain.JSON(stdout).Write(line)
	} else if text := p.text(); f.tty && text != "" {
		fmt.Fprintf(stderr, "%7.1f ms  %s\n", p.AtMS, text)
	}
}

// text is a step for people.
func (p progress) text() string {
	switch p.Step {
	case "linked":
		return fmt.Sprintf("linked to the supervisor, pid %d", p.PID)
	case "offered":
		return fmt.Sprintf("proxy %s, pid %d, offers what it holds", cmp.Or(p.Version, "dev"), p.PID)
	case "compared":
		text := fmt.Sprintf("both see %s alike", count(p.Sessions, "session"))
		if p.Unseen > 0 {
			text += fmt.Sprintf(", %d could not be compared", p.Unseen)
		}
		return text
	case "moved":
		return p.moved()
	}
	return ""
}

func (p progress) moved() string {
	text := count(p.Connections, "connection") + " moved"
	if p.Connections > 0 {
		text += fmt.Sprintf(", which stood still for %.1f ms (median), %.1f ms at most", p.StallMedianMS, p.StallMaxMS)
	}
	if p.Closed > 0 {
		text += fmt.Sprintf("; %d told to come again", p.Closed)
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (f *follower) silent() bool { return len(f.seen) == 0 }

// early reports whether the old proxy has given nothing yet, so that a successor
// that hangs can be ended.
func (f *follower) early() bool {
	_, compared := f.seen["compared"]
	return !compared && !f.over()
}

func (f *follower) over() bool {
	for _, step := range []string{"serving", "looked", "failed"} {
		if _, ok := f.seen[step]; ok {
			return true
		}
	}
	return false
}

// err is why the successor gave up, if it did.
func (f *follower) err() error {
	p, ok := f.seen["failed"]
	if !ok {
		return nil
	}
	code := exitCodes[p.Code]
	return &exitError{cmp.Or(code, 1), "the successor gave up, the old proxy serves on: " + p.Error}
}

// finish says how it went.
func (f *follower) finish(old, pid int, took time.Duration) {
	if f.o.json || f.o.quiet {
		return // each step has said it, or nothing shall
	}
	took = took.Round(time.Millisecond)
	old = cmp.Or(old, f.seen["offered"].PID) // of one that our requests are not understood by
	if _, tried := f.seen["looked"]; tried {
		fmt.Fprintf(stdout, "proxy %s could take over from pid %d, which serves on, after %v\n", cmp.Or(version.String(), "dev"), old, took)
		return
	}
	from := "no proxy ran before"
	if old != 0 {
		from = fmt.Sprintf("took over from pid %d", old)
	}
	build := "" // a program that tells nothing is another version
	if p, ok := f.seen["serving"]; ok {
		build = " " + cmp.Or(p.Version, "dev")
	}
	fmt.Fprintf(stdout, "proxy%s serves as pid %d, %s, in %v\n", build, pid, from, took)
	if p, ok := f.seen["moved"]; ok && p.Connections+p.Closed > 0 && !f.tty {
		fmt.Fprintln(stdout, p.moved())
	}
}
