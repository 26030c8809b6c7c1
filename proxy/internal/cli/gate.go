package cli

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/fleet/credential"
	"holdfast/proxy/internal/fleet/gate"
	"holdfast/shared/config"
	"holdfast/shared/logging"
	"holdfast/shared/socket"
	"holdfast/shared/sysexits"
)

// gateFlags are the flags of gate.
type gateFlags struct{ listen, address string }

func (a *app) gateCommand() *cobra.Command {
	o := &gateFlags{}
	cmd := &cobra.Command{
		Use:   "gate",
		Short: "Serve as a gate in the foreground: clients enter here the hosts that have joined",
		Long: "Serve as a gate in the foreground. Hosts join the gate (proxy join), and clients enter them through it.\n" +
			"The first start makes a certificate and the token of clients; hosts and clients know the gate by the\n" +
			"fingerprint of the certificate. All that the gate keeps is in the directory gate of the state directory.",
		Example: "  proxy gate --listen :7684 --address gate.example:7684",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.gate(cmd.Context(), o) },
	}
	cmd.Flags().StringVar(&o.listen, "listen", ":7684", "`address` for clients and hosts")
	cmd.Flags().StringVar(&o.address, "address", "", "`address` under which clients and hosts reach the gate (default that of --listen, with the name of this host)")
	cmd.AddCommand(a.gateTokenCommand(), a.gateClientCommand(), a.gateRevokeCommand())
	return cmd
}

// gateDir is the directory of a gate in the state directory.
const gateDir = "gate"

// gate serves as a gate until ctx is done.
func (a *app) gate(ctx context.Context, o *gateFlags) error {
	dirs, err := a.makeDirs()
	if err != nil {
		return err
	}
	cfg, err := config.Load(dirs, os.Getenv, nil)
	if err != nil {
		return err
	}
	log, closer, err := logging.New(logging.Options{Level: cfg.LogLevel, Process: "gate"})
	if err != nil {
		return err
	}
	defer func() { _ = closer.Close() }()
	store, err := credential.Open(filepath.Join(dirs.State, gateDir))
	if err != nil {
		return err
	}
	control, err := socket.Listen(dirs.Socket(gate.ControlSocket), socket.Options{}) // its lock makes this the only gate here
	if err != nil {
		return err
	}
	defer func() { _ = control.Close() }()
	ln, err := net.Listen("tcp", o.listen)
	if err != nil {
		return exitcode.New(sysexits.Unavailable, err.Error())
	}
	defer func() { _ = ln.Close() }()
	if err := store.SetAddress(cmp.Or(o.address, reachable(ln.Addr()))); err != nil {
		return fmt.Errorf("address of the gate: %w", err)
	}
	return gate.Run(ctx, store, ln, control, log)
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
	dirs, err := a.makeDirs()
	if err != nil {
		return dirs, nil, err
	}
	store, err := credential.Open(filepath.Join(dirs.State, gateDir))
	return dirs, store, err
}

func (a *app) gateTokenCommand() *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:     "token",
		Short:   "Print a text with which one host can join, once",
		Example: "  proxy gate token --ttl 1h",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, store, err := a.gateStore()
			if err != nil {
				return err
			}
			e, err := store.NewJoinEntry(ttl, time.Now())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), e)
			return err
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", 10*time.Minute, "`time` for which the text is valid")
	return cmd
}

func (a *app) gateClientCommand() *cobra.Command {
	renew := false
	cmd := &cobra.Command{
		Use:   "client-token",
		Short: "Print the text that clients need, for the setting gate",
		Long: "Print the text that clients need, for the setting gate or HOLDFAST_GATE. Who has it can do everything with the\nsessions of all hosts of the gate.\n\n" +
			"With --new the text has a new token. The gate refuses the one before from then on, and closes the connections\nthat came with it.",
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
			_, err = fmt.Fprintln(cmd.OutOrStdout(), e)
			return err
		},
	}
	cmd.Flags().BoolVar(&renew, "new", false, "make a new token; the one before is refused from then on")
	return cmd
}

func (a *app) gateRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke HOST",
		Short:   "Remove a host from the gate, and close its connections",
		Example: "  proxy gate revoke build-host",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dirs, store, err := a.gateStore()
			if err != nil {
				return err
			}
			hadJoined, err := gate.Revoke(cmd.Context(), store, dirs.Socket(gate.ControlSocket), args[0])
			if err == nil && !hadJoined {
				err = exitcode.New(sysexits.NoInput, fmt.Sprintf("no host %.80q has joined the gate", args[0]))
			}
			return err
		},
	}
}
