package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/protocol/gate"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/config"
	"holdfast/shared/plain"
)

// A place is where a command runs if --on names a host.
type place int

const (
	// asClient is a command that runs here, as a client of the proxy on the host. It works through the gate
	// and by ssh.
	asClient place = iota + 1
	// onHost is a command about the programs and files of the host. It runs on the host: the agent of a
	// host of the gate starts it there, and ssh otherwise.
	onHost
	// onlyHere is a command that refuses a host.
	onlyHere
)

// places has the place of each command, by its first word. The guide many-hosts.md has the same table.
var places = map[string]place{
	"attach": asClient, "away": asClient, "changes": asClient, "clear": asClient, "detach": asClient, "events": asClient,
	"export": asClient, "forget": asClient, "freeze": asClient, "history": asClient, "info": asClient, "kill": asClient,
	"limit": asClient, "ls": asClient, "mark": asClient, "mcp": asClient, "new": asClient, "play": asClient, "record": asClient, "rename": asClient,
	"reopen": asClient, "resize": asClient, "revive": asClient, "run": asClient, "screen": asClient, "search": asClient,
	"send": asClient, "share": asClient, "start": asClient, "thaw": asClient, "wait": asClient, "why": asClient,

	"doctor": onHost, "handoff": onHost, "service": onHost, "status": onHost, "stop": onHost, "upgrade": onHost,
	"proxy": onHost, // proxy --handoff

	"acp": onlyHere, "chaos": onlyHere, "completion": onlyHere, "conformance": onlyHere, "env": onlyHere, "gate": onlyHere, "hosts": onlyHere, "join": onlyHere, "leave": onlyHere,
	"recordings": onlyHere, "replay": onlyHere, "serve": onlyHere, "stdio": onlyHere, "verify": onlyHere, "web": onlyHere,
}

// whyOnlyHere tells why a command refuses a host.
var whyOnlyHere = map[string]string{
	"acp":         "it starts the agent on this host; ssh HOST proxy acp starts one there",
	"chaos":       "it kills processes of this host",
	"completion":  "it prints text for the shell of this host",
	"conformance": "it plays a proxy for a client of this host",
	"env":         "it prints the environment of a viewer of this host",
	"gate":        "it acts on the gate of this host",
	"hosts":       "it lists all hosts of the gate",
	"join":        "a host that has not joined cannot be reached through the gate",
	"leave":       "the host could not answer any more; proxy gate revoke, on the gate, removes a host",
	"recordings":  "it reads the directory of recordings of this host",
	"replay":      "it reads the directory of recordings of this host",
	"verify":      "it reads the directory of recordings of this host",
	"serve":       "it is the process of the proxy; proxy start starts one on the host",
	"stdio":       "it is what ssh runs on the host",
	"web":         "it opens a browser on this host; proxy share prints a link that the host serves",
}

// codeOnlyHere begins the error of a command that refuses a host, for programs.
const codeOnlyHere = "only_this_host"

// commandName returns the first word of a command, or "proxy" for the command without words.
func commandName(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return "proxy"
	}
	return strings.Fields(cmd.CommandPath())[1]
}

// checkPlace returns an error if a command cannot be for another host, or if the name of the host or of the directory is
// empty: a script whose variable is not set must not end other sessions of this host.
func (a *App) checkPlace(cmd *cobra.Command) error {
	switch {
	case a.Host == "" && cmd.Flags().Changed("on"):
		return exitcode.WrongUsagef("--on needs the name of a host, but it is empty")
	case a.Dir == "" && cmd.Flags().Changed("dir"):
		return exitcode.WrongUsagef("--dir needs a directory, but it is empty")
	}
	name := commandName(cmd)
	if a.Host == "" || places[name] != onlyHere {
		return nil
	}
	return exitcode.WrongUsagef("%s: %s is only for this host: %s; ssh %s proxy %s runs it there",
		codeOnlyHere, name, whyOnlyHere[name], plain.ShellWord(a.Host), name)
}

// runsOnHost lets the commands with the place onHost run on the host that --on names, with the same flags
// and arguments.
func (a *App) runsOnHost(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		a.runsOnHost(sub)
	}
	run := cmd.RunE
	if run == nil || places[commandName(cmd)] != onHost {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if a.Host == "" {
			return run(cmd, args)
		}
		return a.runOnHost(cmd, args)
	}
}

// runOnHost runs a command on the host, and ends with its exit code: through the gate if one is set and the
// host has joined it, and by ssh otherwise.
func (a *App) runOnHost(cmd *cobra.Command, args []string) error {
	cfg, err := a.Settings()
	if err != nil {
		return err
	}
	argv := strings.Fields(cmd.CommandPath())[1:]
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "on" {
			argv = append(argv, "--"+f.Name+"="+f.Value.String())
		}
	})
	argv = append(argv, args...)
	if cfg.Gate != "" && gate.ValidHost(a.Host) {
		if err := a.runThroughGate(cmd, cfg, argv); !errors.Is(err, client.ErrUnknownHost) {
			return err
		}
	}
	return a.runBySSH(cmd.Context(), cfg, argv)
}

// runThroughGate lets the agent of a host of the gate run a command.
func (a *App) runThroughGate(cmd *cobra.Command, cfg config.Config, argv []string) error {
	o, err := gateOptions(cfg)
	if err != nil {
		return err
	}
	o.Host = a.Host
	if !cmd.HasParent() { // proxy --handoff, whose flags are those of proxy handoff
		if cmd.Flags().Lookup("handoff").Value.String() != "true" {
			return cmd.Help()
		}
		argv = append([]string{"handoff"}, slices.DeleteFunc(argv, func(arg string) bool { return strings.HasPrefix(arg, "--handoff=") })...)
	}
	code, err := client.RunOnHost(cmd.Context(), o, argv, cmd.OutOrStdout(), cmd.ErrOrStderr())
	if err != nil || code == 0 {
		return err
	}
	return exitcode.New(code, "")
}
