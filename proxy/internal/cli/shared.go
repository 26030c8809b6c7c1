package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/daemon"
	"holdfast/proxy/internal/doctor"
	"holdfast/shared/config"
	"holdfast/shared/machine"
)

// An App is this command line, for the commands of package operate. Each method does the same as the function
// with its name in small letters.
type App struct{ a *app }

// Dir returns the flag --dir.
func (p *App) Dir() string { return p.a.dir }

// Proxy returns the flag --proxy: the name of the proxy.
func (p *App) Proxy() string { return p.a.proxy }

// JSON reports whether the flag --json is set.
func (p *App) JSON() bool { return p.a.json }

// Host returns the flag --on.
func (p *App) Host() string { return p.a.host }

// JSONFlag adds the flag --json to a command.
func (p *App) JSONFlag(cmd *cobra.Command) *cobra.Command { return p.a.jsonFlag(cmd) }

// Dirs returns the directories of this command.
func (p *App) Dirs() (config.Dirs, error) { return p.a.dirs() }

// MakeDirs returns the directories and creates those that are missing.
func (p *App) MakeDirs() (config.Dirs, error) { return p.a.makeDirs() }

// Settings loads the settings that hold for commands.
func (p *App) Settings() (config.Config, error) { return p.a.settings() }

// Connect returns a client of the running proxy. If no proxy runs, it starts one.
func (p *App) Connect(ctx context.Context, starts bool) (*client.Client, error) {
	return p.a.connect(ctx, starts)
}

// ConnectAgain returns a client like Connect, but does not start a proxy that a user has stopped if again is set.
func (p *App) ConnectAgain(ctx context.Context, starts, again bool) (*client.Client, error) {
	return p.a.connectAgain(ctx, starts, again)
}

// WithStarted runs f with a client, and starts the proxy and the supervisor if they are missing.
func (p *App) WithStarted(ctx context.Context, f func(*client.Client) error) error {
	return p.a.withStarted(ctx, f)
}

// ServeStream connects a client's frames with the proxy until one side ends.
func (p *App) ServeStream(ctx context.Context, in io.Reader, out io.Writer, vouch *api.Vouch) error {
	return p.a.serveStream(ctx, in, out, vouch)
}

// StartDaemon starts a command of the program proxy in the background.
func (p *App) StartDaemon(ctx context.Context, cmd string, args ...string) (*daemon.Process, error) {
	return p.a.startDaemon(ctx, cmd, args...)
}

// DaemonArgs returns the arguments of a command for the same proxy and directory.
func (p *App) DaemonArgs(cmd string, args ...string) ([]string, error) {
	return p.a.daemonArgs(cmd, args...)
}

// ProxyPID asks the running proxy for its pid.
func (p *App) ProxyPID(ctx context.Context) (int, error) { return p.a.proxyPID(ctx) }

// LeftInOrder reports whether the proxy removed its socket when it ended.
func (p *App) LeftInOrder() bool { return p.a.leftInOrder() }

// Facts returns the facts for the doctor, without those about the policy and the agent.
func (p *App) Facts(dirs config.Dirs) (doctor.Facts, config.Config) { return p.a.facts(dirs) }

// HandOff replaces the running proxy by one that serves the page at the address web.
func (p *App) HandOff(ctx context.Context, timeout time.Duration, web string) error {
	return p.a.handoff(ctx, &handoffOptions{timeout: timeout, quiet: true, web: web})
}

// HandOffAgent lets this program take over from the agent of this host, and returns a text that tells so.
func (p *App) HandOffAgent(ctx context.Context, dirs config.Dirs) (text string, err error) {
	return p.a.handOffAgent(ctx, dirs)
}

// EndsSlowly lets this command take any time to end after a signal, because it serves clients or ends processes of its
// own. Other commands are ended if they take too long.
func (p *App) EndsSlowly() { p.a.ending.needs(always) }

// Serves is EndsSlowly for a command that must continue to serve clients also if nobody reads its log any more.
func (p *App) Serves() {
	p.EndsSlowly()
	machine.SurviveBrokenPipe()
}

// Execute executes a program in this process, with argv[0] as its name. It returns only if that fails.
func Execute(path string, argv []string) error { return execute(path, argv) }

// Limits of the wait for a process that was started.
const (
	StartTimeout = startTimeout // how long a command waits for it
	StartPoll    = startPoll    // how often a command checks whether it serves
	Grace        = grace        // how much longer than its timeout a handoff may take
)

// IsNothingHere reports whether err tells that neither a supervisor nor a stored session is on this host.
func IsNothingHere(err error) bool { return errors.Is(err, errNothingHere) }

// VerifyFlag adds the flag --verify. all is set if the flag demands that all sessions are compared.
func VerifyFlag(f *pflag.FlagSet, usagePrefix string) (all *bool) {
	v := &verify{}
	v.flag(f, usagePrefix)
	return &v.all
}

// SpanVar adds a flag for a time.
func SpanVar(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	spanVar(f, p, name, value, usage)
}

// MomentFlag adds a flag for a moment.
func MomentFlag(f *pflag.FlagSet, p **protocol.Moment, name, usage string) {
	momentVar(f, p, name, usage)
}

// ScreenFormat returns the format in which a command asks for a screen.
func ScreenFormat(ansi, cells bool) protocol.ScreenFormat {
	o := &screenOptions{ansi: ansi}
	_ = o.check(cells, false) // only other options can be wrong
	return o.Format
}

// PrintScreen prints a screen that ScreenFormat has the format of, and not as cells.
func PrintScreen(out io.Writer, ansi bool, id protocol.SessionID, content *protocol.ScreenContent) error {
	return (&screenOptions{ansi: ansi}).print(out, id, content)
}

// WorkingDirectory returns the working directory of this command.
func WorkingDirectory() (string, error) { return workingDirectory() }

// Raw returns a writer that does not escape, for the output of a session.
func Raw(cmd *cobra.Command) io.Writer { return raw(cmd) }

// JSONTo returns a JSON encoder with output that does not act on a terminal.
func JSONTo(w io.Writer) *json.Encoder { return jsonTo(w) }

// PrintJSON prints v as indented JSON.
func PrintJSON(cmd *cobra.Command, v any) error { return printJSON(cmd, v) }

// Note prints a text for the user.
func Note(format string, args ...any) { note(format, args...) }

// Warn prints a warning.
func Warn(err error) { warn(err) }

// Since describes how long ago t was.
func Since(t time.Time) string { return since(t) }

// ByteSize describes a number of bytes.
func ByteSize(n uint64) string { return byteSize(n) }
