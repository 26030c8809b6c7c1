package operate

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	wire "holdfast/protocol/gate"
	"holdfast/proxy/internal/cli"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/fleet/bus"
	"holdfast/proxy/internal/fleet/credential"
	"holdfast/proxy/internal/fleet/gate"
	"holdfast/proxy/internal/handoff"
	"holdfast/proxy/internal/serve"
	"holdfast/proxy/internal/web/page"
	"holdfast/shared/config"
	"holdfast/shared/logging"
	"holdfast/shared/socket"
	"holdfast/shared/sysexits"
)

// gateFlags are the flags of gate.
type gateFlags struct {
	listen, address, peer string
	nats                  bus.ClusterOptions
	settings              map[string]string // by the names of the settings
	handoff               bool
	timeout               time.Duration
}

func (a *app) gateCommand() *cobra.Command {
	o := &gateFlags{}
	cmd := &cobra.Command{
		Use:   "gate",
		Short: "Serve as a gate in the foreground: clients enter here the hosts that have joined",
		Long: "Serve as a gate in the foreground. Hosts join the gate (proxy join), and clients enter them through it.\n" +
			"The first start makes a certificate and the token of clients; hosts and clients know the gate by the\n" +
			"fingerprint of the certificate. All that the gate keeps is in the directory gate of the state directory.\n" +
			"Several gates serve the same hosts: a new gate starts once with --peer and the text that\n" +
			"proxy gate token --for-gate prints on a gate that runs.\n" +
			"With --nats, gates exchange their messages over a NATS cluster of yours, encrypted, instead of connecting with\n" +
			"each other. All gates of the same hosts must use the same cluster.\n" +
			"With a policy, the gate also accepts clients that the policy knows by their token, and shows each client\n" +
			"its workspace. The policy is remembered until it is none. The hosts of the gate must have a policy, too.\n\n" +
			"With --handoff this program takes over from the gate that runs here. The old gate first finds that the new\n" +
			"one reaches all hosts; otherwise it continues to serve. Clients move to the new gate within seconds.",
		Example: "  proxy gate --listen :7684 --address gate.example:7684\n" +
			"  proxy gate --nats tls://nats.example:4222 --nats-credentials gate.creds\n" +
			"  proxy gate --policy ~/bin/team --policy-config ~/team.json\n" +
			"  proxy gate --address gate2.example:7684 --peer TEXT   # of proxy gate token --for-gate on the first gate\n" +
			"  proxy gate --handoff",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.handoff {
				return a.takeOverGate(cmd, o)
			}
			return a.gate(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.listen, "listen", ":7684", "`address` for clients and hosts")
	cmd.Flags().StringVar(&o.address, "address", "", "`address` under which clients, hosts and other gates reach the gate (default that of --listen, with the name of this host)")
	cmd.Flags().StringVar(&o.peer, "peer", "", "`text` with which a new gate becomes one of several, once; it is ignored if the gate is one of them")
	cmd.Flags().StringVar(&o.nats.URL, "nats", "", "`URL` of a NATS cluster that connects the gates, such as tls://nats.example:4222; several are separated by commas")
	cmd.Flags().StringVar(&o.nats.Credentials, "nats-credentials", "", "credentials `file` for --nats")
	cmd.Flags().StringVar(&o.nats.CA, "nats-ca", "", "`file` with the authorities of the servers of --nats (default those of the system)")
	settings := flag.NewFlagSet("", flag.ContinueOnError)
	o.settings = config.Flags(settings, "policy", "policy_config", "policy_sha256")
	cmd.Flags().AddGoFlagSet(settings)
	cmd.Flags().BoolVar(&o.handoff, "handoff", false, "take over from the gate that runs here, with its sockets and its address; its clients and hosts do not notice")
	cli.SpanVar(cmd.Flags(), &o.timeout, "timeout", handoff.Timeout, "with --handoff: how long this gate may take until the old one has found that it works")
	cmd.AddCommand(a.gateStatusCommand(), a.gateTokenCommand(), a.gateClientCommand(), a.gateWebCommand(), a.gateRevokeCommand(), a.gateForgetCommand())
	return cmd
}

// gateDir is the directory of a gate in the state directory.
const gateDir = "gate"

// gate serves as a gate until ctx is done.
func (a *app) gate(ctx context.Context, o *gateFlags) error {
	if o.address != "" && !wire.ValidAddress(o.address) {
		return exitcode.WrongUsagef("--address: %.80q is no address of the form HOST:PORT", o.address)
	}
	a.Serves()
	dirs, err := a.MakeDirs()
	if err != nil {
		return err
	}
	cfg, err := config.Load(dirs, os.Getenv, o.settings)
	if err != nil {
		return err
	}
	log, closer, err := logging.New(logging.Options{Level: cfg.LogLevel, Process: "gate"})
	if err != nil {
		return err
	}
	defer func() { _ = closer.Close() }()
	control, err := socket.Listen(dirs.Socket(gate.ControlSocket), socket.Options{}) // its lock makes this the only gate here
	if err != nil {
		return err
	}
	defer func() { _ = control.Close() }()
	offers, err := socket.Listen(dirs.Socket(gate.HandoffSocket), socket.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = offers.Close() }()
	if o.peer != "" {
		if err := enlist(ctx, filepath.Join(dirs.State, gateDir), o.peer); err != nil {
			return err
		}
	}
	store, err := credential.Open(filepath.Join(dirs.State, gateDir))
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", o.listen)
	if err != nil {
		return exitcode.New(sysexits.Unavailable, err.Error())
	}
	defer func() { _ = ln.Close() }()
	if err := store.SetAddress(cmp.Or(o.address, reachable(ln.Addr())), time.Now()); err != nil {
		return fmt.Errorf("address of the gate: %w", err)
	}
	options, remember, end, err := a.gateOptions(ctx, dirs, cfg, log)
	if err != nil {
		return err
	}
	defer end()
	if err := remember(); err != nil {
		return err
	}
	options.NATS = o.nats
	return gate.Run(ctx, store, gate.Sockets{Listener: ln, Control: control, Handoff: offers}, log, options)
}

// gateOptions starts the policy of the gate, if there is one. The caller must call remember when the gate serves, as
// for StartPolicy, and end when the gate has ended.
func (a *app) gateOptions(ctx context.Context, dirs config.Dirs, cfg config.Config, log zerolog.Logger) (o gate.Options, remember func() error, end func(), err error) {
	host, remember, err := serve.StartPolicy(ctx, dirs, filepath.Join(dirs.State, gateDir, "policy"), cfg, log)
	if err != nil || host == nil { // a nil *Host in the interface would not be nil
		return o, remember, func() {}, err
	}
	return gate.Options{Policy: host}, remember, func() { _ = host.Close() }, nil // the host logs its errors
}

// takeOverGate takes over from the gate that runs here, and serves until the context of cmd is done.
func (a *app) takeOverGate(cmd *cobra.Command, o *gateFlags) error {
	for _, name := range []string{"listen", "address", "peer", "nats", "nats-credentials", "nats-ca"} {
		if cmd.Flags().Changed(name) {
			return exitcode.WrongUsagef("--%s goes not with --handoff: the new gate has the sockets and the address of the old one; to change them, end the gate and start it again", name)
		}
	}
	if o.timeout <= 0 || o.timeout > handoff.MaxTimeout {
		return exitcode.WrongUsagef("--timeout must be more than 0 and at most %v", handoff.MaxTimeout)
	}
	dirs, store, err := a.gateStore()
	if err != nil {
		return err
	}
	cfg, err := config.Load(dirs, os.Getenv, o.settings)
	if err != nil {
		return err
	}
	log, closer, err := logging.New(logging.Options{Level: cfg.LogLevel, Process: "gate"})
	if err != nil {
		return err
	}
	defer func() { _ = closer.Close() }()
	options, remember, end, err := a.gateOptions(cmd.Context(), dirs, cfg, log)
	if err != nil {
		return err
	}
	defer end()
	a.Serves()
	err = gate.Takeover{
		ControlPath: dirs.Socket(gate.ControlSocket), HandoffPath: dirs.Socket(gate.HandoffSocket), Timeout: o.timeout,
		Serving: func(pid int) {
			if err := remember(); err != nil {
				log.Error().Err(err).Msg("policy not saved; after its end the gate starts with the one that was saved before")
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "this gate serves as pid %d; pid %d ends when its clients have left it\n", os.Getpid(), pid)
		},
	}.Run(cmd.Context(), store, log, options)
	if socket.IsAbsent(err) {
		err = exitcode.New(sysexits.Unavailable, "no gate runs here; start one without --handoff")
	}
	return err
}

// enlist makes the directory of a new gate one with the identity of the gate that has made text. It does
// nothing if the directory has that identity.
func enlist(ctx context.Context, dir, text string) error {
	e, err := wire.ParseEntry(wire.ForGates, text)
	if err != nil {
		return exitcode.WrongUsage(err)
	}
	hasIdentity, err := credential.HasIdentity(dir)
	if err != nil {
		return err
	}
	if hasIdentity {
		store, err := credential.Open(dir)
		if err == nil && store.Fingerprint() != e.Fingerprint {
			err = exitcode.WrongUsagef("this gate has another certificate than the gate of --peer, because it has run alone; delete the directory %s, and its hosts can join again", dir)
		}
		return err
	}
	return gate.Enlist(ctx, dir, e)
}

// reachable returns an address of a listener that other hosts can use, if they can resolve the name of
// this host.
func reachable(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	name, err := os.Hostname()
	if err != nil {
		name = "localhost"
	}
	return net.JoinHostPort(name, fmt.Sprint(tcp.Port))
}

// gateStore opens the directory of the gate.
func (a *app) gateStore() (config.Dirs, *credential.Store, error) {
	dirs, err := a.MakeDirs()
	if err != nil {
		return dirs, nil, err
	}
	store, err := credential.Open(filepath.Join(dirs.State, gateDir))
	return dirs, store, err
}

func (a *app) gateTokenCommand() *cobra.Command {
	var ttl time.Duration
	var forGate bool
	cmd := &cobra.Command{
		Use:     "token",
		Short:   "Print a text with which one host can join, once",
		Long:    "Print a text with which one host can join, once, at this gate; or, with --for-gate, one with which a new\ngate receives the certificate and the tokens of this one (proxy gate --peer TEXT).",
		Example: "  proxy gate token --ttl 1h\n  proxy gate token --for-gate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, store, err := a.gateStore()
			if err != nil {
				return err
			}
			kind := wire.ForHosts
			if forGate {
				kind = wire.ForGates
			}
			e, err := store.NewJoinEntry(kind, ttl, time.Now())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), e)
			return err
		},
	}
	cli.SpanVar(cmd.Flags(), &ttl, "ttl", 10*time.Minute, "`time` for which the text is valid")
	cmd.Flags().BoolVar(&forGate, "for-gate", false, "print a text for a new gate instead of a host")
	return cmd
}

func (a *app) gateClientCommand() *cobra.Command {
	renew, omit := false, false
	cmd := &cobra.Command{
		Use:   "client-token",
		Short: "Print the text that clients need, for the setting gate",
		Long: "Print the text that clients need, for the setting gate or HOLDFAST_GATE. Who has it can do everything with the\nsessions of all hosts of the gate.\n\n" +
			"With --new the text has a new token. The gate refuses the one before from then on, and closes the connections\nthat came with it.\n\n" +
			"With --without-token the text has no token. It is for clients that the policy of the gate knows by their HOLDFAST_TOKEN,\nand is no secret.",
		Example: "  HOLDFAST_GATE=$(proxy gate client-token) proxy hosts",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dirs, store, err := a.gateStore()
			if err != nil {
				return err
			}
			if renew {
				if err := gate.RenewClientToken(cmd.Context(), store, dirs.Socket(gate.ControlSocket)); err != nil {
					return err
				}
				if _, store, err = a.gateStore(); err != nil { // the gate has written the token
					return err
				}
			}
			e, err := store.ClientEntry()
			if err != nil {
				return err
			}
			if omit {
				e.Secret = ""
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), e)
			return err
		},
	}
	cmd.Flags().BoolVar(&omit, "without-token", false, "print the text without the token")
	cmd.Flags().BoolVar(&renew, "new", false, "make a new token; the one before is refused from then on")
	cmd.MarkFlagsMutuallyExclusive("new", "without-token")
	return cmd
}

func (a *app) gateStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Print how many hosts, sessions, clients and other gates the gate here has",
		Long:    "Print how many hosts, sessions, clients and other gates the gate here has. If no gate runs here, or it does not\nanswer, the exit code is not 0.",
		Example: "  proxy gate status",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dirs, err := a.Dirs()
			if err != nil {
				return err
			}
			m, err := gate.Status(cmd.Context(), dirs.Socket(gate.ControlSocket))
			if err != nil {
				return orNoGate(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "hosts     %d ready, %d idle, %d unreachable\nsessions  %d\nclients   %d entered a host\ngates     %d of %d others connected\n",
				m.Hosts[string(wire.HostReady)], m.Hosts[string(wire.HostIdle)], m.Hosts[string(wire.HostUnreachable)], m.Sessions, m.Splices, m.ConnectedPeers, m.Peers)
			return err
		},
	}
}

// orNoGate returns the error of a command that needs the gate of this directory: if no gate runs here, it says so.
func orNoGate(err error) error {
	if socket.IsAbsent(err) {
		return exitcode.New(sysexits.Unavailable, "no gate runs here; start it with proxy gate")
	}
	return err
}

func (a *app) gateWebCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "web",
		Short: "Print a link with which a browser opens the page of the gate, once",
		Long: "Print a link with which a browser opens the page of the gate that runs here. The link is valid once, for\n" +
			"30 seconds; the browser stays signed in for a week after its last visit. The page shows all hosts, and can do\n" +
			"everything with their sessions. The browser warns of the certificate, because no authority has signed it:\n" +
			"compare the fingerprint that this command prints with the one that the browser shows.",
		Example: "  proxy gate web",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if page.Files() == nil {
				return errNotBuilt
			}
			dirs, store, err := a.gateStore()
			if err != nil {
				return err
			}
			address, err := store.Address()
			if err != nil {
				return err
			}
			certificate, err := store.WebCertificate(address, time.Now())
			if err != nil {
				return err
			}
			ticket, err := gate.Ticket(cmd.Context(), dirs.Socket(gate.ControlSocket))
			if err != nil {
				return orNoGate(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "https://%s/?ticket=%s\nSHA-256 fingerprint of the certificate: %s\n", address, ticket, wire.Fingerprint(certificate.Certificate[0]))
			return err
		},
	}
}

func (a *app) gateRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke HOST",
		Short:   "Remove a host from all gates, and close its connections",
		Example: "  proxy gate revoke build-host",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dirs, store, err := a.gateStore()
			if err != nil {
				return err
			}
			hadJoined, err := gate.Revoke(cmd.Context(), store, dirs.Socket(gate.ControlSocket), args[0])
			if err == nil && !hadJoined {
				err = exitcode.Newf(sysexits.NoInput, "no host %.80q has joined the gate", args[0])
			}
			return err
		},
	}
}

func (a *app) gateForgetCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "forget HOST:PORT",
		Short:   "Remove the address of a gate that is gone from all gates",
		Long:    "Remove the address of a gate that is gone from all gates and hosts. The gate still knows the certificate and\nthe tokens; if it starts again, its address is added again.",
		Example: "  proxy gate forget gate2.example:7684",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dirs, store, err := a.gateStore()
			if err != nil {
				return err
			}
			wasThere, err := gate.Forget(cmd.Context(), store, dirs.Socket(gate.ControlSocket), args[0])
			if err == nil && !wasThere {
				err = exitcode.Newf(sysexits.NoInput, "%.80q is not the address of a gate", args[0])
			}
			return err
		},
	}
}
