package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/protocol/gate"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/config"
	"holdfast/shared/plain"
	"holdfast/shared/sysexits"
)

func (a *App) hostsCommand() *cobra.Command {
	return a.JSONFlag(&cobra.Command{
		Use:     "hosts",
		Short:   "List the hosts that have joined the gate",
		Long:    "List the hosts that have joined the gate. The setting gate (HOLDFAST_GATE) has the text that proxy gate client-token prints.",
		Example: "  proxy hosts\n  proxy hosts --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, list, err := a.gateHosts(cmd.Context())
			if err != nil {
				return err
			}
			return a.Print(cmd, append([]gate.HostInfo{}, list...), func(out io.Writer) error { return printHosts(out, list) })
		},
	})
}

// gateHosts returns the gate of the settings, and the hosts that have joined it.
func (a *App) gateHosts(ctx context.Context) (o client.GateOptions, hosts []gate.HostInfo, err error) {
	if o, err = a.gateSettings(); err != nil {
		return o, nil, err
	}
	defer tellLate(o)()
	hosts, err = client.Hosts(ctx, o)
	return o, hosts, err
}

// gateSettings returns the gate of the settings.
func (a *App) gateSettings() (client.GateOptions, error) {
	cfg, err := a.Settings()
	if err != nil {
		return client.GateOptions{}, err
	}
	return gateOptions(cfg)
}

// gateOptions returns the gate of the setting gate.
func gateOptions(cfg config.Config) (client.GateOptions, error) {
	if cfg.Gate == "" {
		return client.GateOptions{}, exitcode.New(sysexits.Config, "no gate is set; set the setting gate, or HOLDFAST_GATE, to the text that proxy gate client-token prints on the gate")
	}
	o, err := client.ParseGate(cfg.Gate)
	if err != nil {
		err = exitcode.New(sysexits.Config, "the setting gate: "+err.Error())
	}
	o.UserToken = os.Getenv(tokenEnv)
	return o, err
}

func printHosts(out io.Writer, list []gate.HostInfo) error {
	const none = "no hosts; proxy gate token on the gate prints the text with which a host joins"
	return PrintTable(out, list, none, "HOST\tSTATE\tSESSIONS\tSEEN\tSYSTEM\tRELEASE\tLABELS", func(w io.Writer, h gate.HostInfo) {
		seen := "never"
		if !h.SeenAt.IsZero() {
			seen = Since(h.SeenAt)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", h.Name, h.State(), h.Sessions, seen, plain.Text(h.System), plain.Text(h.Release), plain.Text(labelText(h.Labels)))
	})
}

func labelText(labels map[string]string) string {
	var words []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, k+"="+labels[k])
	}
	return strings.Join(words, ",")
}

// lsAll lists the sessions of all hosts of the gate.
func (a *App) lsAll(cmd *cobra.Command, f client.GateFilter) error {
	if a.Host != "" {
		return exitcode.WrongUsagef("--all lists the sessions of all hosts; --host %s selects one of them", plain.ShellWord(a.Host))
	}
	o, err := a.gateSettings()
	if err != nil {
		return err
	}
	stop := tellLate(o)
	list, err := client.AllSessions(cmd.Context(), o, f)
	stop()
	if err != nil {
		return err
	}
	return a.Print(cmd, append([]gate.SessionRow{}, list...), func(out io.Writer) error { return printRows(out, list) })
}

func printRows(out io.Writer, list []gate.SessionRow) error {
	return PrintTable(out, list, "no sessions", "SESSION\tSTATE\tSIZE\tAGE\tCOMMAND", func(w io.Writer, s gate.SessionRow) {
		fmt.Fprintf(w, "%s\t%s\t%dx%d\t%s\t%s\n", plain.Text(s.Host+"/"+string(s.ID)), plain.Text(s.State), s.Cols, s.Rows, Since(s.CreatedAt), plain.Text(strings.TrimSpace(s.Title+" "+s.Command)))
	})
}
