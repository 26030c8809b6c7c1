package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/front"
	"holdfast/shared/config"
	"holdfast/shared/plain"
	"holdfast/shared/sysexits"
)

// hostRedial is how long a command tries to reach a host again, for example while a laptop sleeps.
const hostRedial = time.Hour

// localDir returns the directory of the flag --dir, or "" if it is a directory of another host.
func (a *App) localDir() string {
	if a.Host != "" {
		return ""
	}
	return a.Dir
}

// fullName returns the name of a session that a later command understands.
func (a *App) fullName(id protocol.SessionID) string {
	if a.Host == "" {
		return string(id)
	}
	return a.Host + "/" + string(id)
}

// setHost sets the host that a name HOST/ID contains. It returns an error if the command has another
// host already.
func (a *App) setHost(host string) error {
	if a.Host != "" && host != "" && a.Host != host {
		return exitcode.WrongUsagef("the command is for host %s, and not for %s", plain.Text(a.Host), plain.Text(host))
	}
	a.Host += strings.TrimPrefix(host, a.Host)
	return nil
}

// dialHost connects to the proxy of another host: through the gate if one is set and the host has
// joined it, and by ssh otherwise.
func (a *App) dialHost(ctx context.Context, starts bool) (*client.Client, error) {
	cfg, err := a.Settings()
	if err != nil {
		return nil, err
	}
	if cfg.Gate != "" && gate.ValidHost(a.Host) {
		c, err := a.dialThroughGate(ctx, cfg, starts)
		if !errors.Is(err, client.ErrUnknownHost) {
			return c, err
		}
	}
	o := client.Options{
		SSH:  &client.SSHOptions{Host: a.Host, Command: cfg.SSHCommand, Dir: a.Dir, Proxy: a.Proxy, Start: starts},
		Name: remoteName(), Token: os.Getenv(tokenEnv), Redial: hostRedial, InputFull: a.tellFull,
	}
	c, err := client.Dial(ctx, o)
	if errors.Is(err, client.ErrNotInstalled) {
		err = fmt.Errorf("%w; %s", err, a.howToInstall(cfg.SSHCommand))
	}
	return c, err
}

// dialThroughGate connects to the proxy of a host that has joined the gate.
func (a *App) dialThroughGate(ctx context.Context, cfg config.Config, starts bool) (*client.Client, error) {
	o, err := gateOptions(cfg)
	if err != nil {
		return nil, err
	}
	if a.Dir != "" || a.Proxy != config.DefaultProxy {
		return nil, exitcode.WrongUsagef("--dir and --proxy cannot be used for a host of the gate: its agent serves one proxy")
	}
	o.Host, o.Start, o.Attaches = a.Host, starts, a.attaches
	stop := tellLate(o)
	defer stop()
	c, err := client.Dial(ctx, client.Options{Gate: &o, Name: remoteName(), Token: os.Getenv(tokenEnv), Redial: hostRedial, InputFull: a.tellFull})
	if errors.Is(err, client.ErrIO) && errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w; proxy --on %s doctor says more", err, a.Host)
	}
	return c, err
}

// gateSilence is how long a command waits for an answer of a gate until it says so. A gate gives a host that is away 10 s to arrive.
const gateSilence = 3 * time.Second

// tellLate says on stderr which gates have not answered, unless stop is called within gateSilence.
func tellLate(o client.GateOptions) (stop func() bool) {
	return time.AfterFunc(gateSilence, func() {
		late := "gate " + strings.Join(o.Addresses, ", ") + " has not answered yet"
		if o.Host != "" {
			late = "host " + o.Host + " is not reached yet: " + late
		}
		Note("%s", plain.Text(late))
	}).Stop
}

// remoteName returns the name of this client for the viewers on another host.
func remoteName() string {
	if name, err := os.Hostname(); err == nil {
		return "proxy " + name + ":" + clientName()
	}
	return "proxy " + clientName()
}

// howToInstall returns the command that copies the programs of this machine to the host. ssh is the setting ssh_command.
func (a *App) howToInstall(ssh []string) string {
	exe, err := a.proxyProgram()
	if err != nil {
		return "install a release of Holdfast there"
	}
	words := []string{"ssh"}
	if !slices.Equal(ssh, config.DefaultSSHCommand()) { // its options suit every command, but make this one longer
		words = slices.Clone(ssh)
	}
	for i, word := range words {
		words[i] = plain.ShellWord(word)
	}
	return fmt.Sprintf("if it runs the same system on the same kind of processor, this installs it: "+
		"tar -C %s -cf - proxy supervisor | %s %s 'mkdir -p .local/bin && tar -C .local/bin -xf -'", plain.ShellWord(filepath.Dir(exe)), strings.Join(words, " "), plain.ShellWord(a.Host))
}

// runBySSH runs a command on the host by ssh, and ends with its exit code.
func (a *App) runBySSH(ctx context.Context, cfg config.Config, argv []string) error {
	ssh := slices.Clone(cfg.SSHCommand)
	if front.IsTerminal(os.Stdout) {
		ssh = append(ssh, "-q", "-t")
	}
	ssh = append(ssh, "--", a.Host, client.HostCommand(append([]string{"proxy"}, argv...)))
	run := exec.CommandContext(ctx, ssh[0], ssh[1:]...)
	run.Stdin, run.Stdout, run.Stderr = os.Stdin, os.Stdout, os.Stderr
	run.Cancel, run.WaitDelay = func() error { return run.Process.Signal(syscall.SIGTERM) }, sshEnd // so that ssh restores the terminal
	err := run.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return orSignalled(ctx, ctx.Err())
	case !errors.As(err, &exit):
		return err
	case exit.ExitCode() == sshFailed:
		return exitcode.New(sysexits.Unavailable, "")
	case exit.ExitCode() == notFound:
		return exitcode.Newf(sysexits.Unavailable, "%s: the program proxy is not installed there; %s", a.Host, a.howToInstall(cfg.SSHCommand))
	}
	return exitcode.New(max(1, exit.ExitCode()), "")
}

// sshEnd is how long ssh may take to end after a signal.
const sshEnd = 2 * time.Second

// The exit codes of ssh and of a shell that tell that the command did not run.
const (
	sshFailed = 255 // ssh could not run the command, and has printed the reason
	notFound  = 127 // the shell has not found the program
)
