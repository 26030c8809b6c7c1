package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/fleet/rollout"
	"holdfast/shared/machine"
	"holdfast/shared/plain"
	"holdfast/shared/sysexits"
)

// rolloutFlags are the flags of upgrade for hosts of the gate.
type rolloutFlags struct {
	hosts    string
	labels   map[string]string
	to       string
	sha256   string // of the archive, if to is a URL
	waves    string
	parallel int
	limit    time.Duration
	maxStall time.Duration
}

// rolloutNames are the flags that need --hosts.
var rolloutNames = []string{"label", "to", "sha256", "waves", "parallel", "limit", "max-stall"}

func (o *rolloutFlags) define(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.hosts, "hosts", "", "upgrade the hosts of the gate with these `names`, which may contain * and ?, separated by commas")
	LabelsVar(f, &o.labels, "with --hosts: only hosts with this label, `k=v`")
	f.StringVar(&o.to, "to", "", "with --hosts: absolute path of the `directory` with the new programs, on every host, or the https URL of a release archive")
	f.StringVar(&o.sha256, "sha256", "", "with --hosts and a URL: the `sum` of the archive")
	f.StringVar(&o.waves, "waves", "1,10%", "with --hosts: `sizes` of the first waves, as numbers or percentages; the remaining hosts are the last wave")
	f.IntVar(&o.parallel, "parallel", 32, "with --hosts: upgrade at most this `number` of hosts at a time")
	SpanVar(f, &o.limit, "limit", time.Minute, "with --hosts: `time` until the new programs of a host must serve, and for which a host may be unreachable meanwhile")
	SpanVar(f, &o.maxStall, "max-stall", 2*time.Second, "with --hosts: longest `pause` of a client; 0 means any")
	_ = cmd.RegisterFlagCompletionFunc("hosts", func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return (&App{}).hostNames(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
	})
	_ = cmd.MarkFlagDirname("to")
}

// setWithoutHosts returns the name of a flag that needs --hosts and is set, or "".
func (o *rolloutFlags) setWithoutHosts(cmd *cobra.Command) string {
	for _, name := range rolloutNames {
		if cmd.Flags().Changed(name) {
			return name
		}
	}
	return ""
}

// hostNames completes the name of a host of the gate.
func (a *App) hostNames(ctx context.Context) (names []cobra.Completion) {
	o, err := a.gateSettings()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completeLimit)
	defer cancel()
	list, _ := client.Hosts(ctx, o) // no names if the gate does not answer
	for _, h := range list[:min(len(list), maxGateNames)] {
		names = append(names, cobra.CompletionWithDesc(h.Name, string(h.State())))
	}
	return names
}

// check returns the sizes of the waves, or an error if a flag is not valid.
func (o *rolloutFlags) check() ([]rollout.Size, error) {
	switch {
	case strings.Contains(o.to, "://"):
		if err := gate.CheckArchive(o.to, o.sha256); err != nil {
			return nil, fmt.Errorf("--to and --sha256: %w", err)
		}
	case !filepath.IsAbs(o.to):
		return nil, errors.New("--to must be the absolute path of a directory that exists on every host, or the https URL of a release archive")
	case o.sha256 != "":
		return nil, errors.New("--sha256 is for a URL, and not for a directory")
	default:
		o.to = filepath.Clean(o.to)
	}
	switch {
	case o.parallel < 1:
		return nil, errors.New("--parallel must be at least 1")
	case o.limit < time.Second || o.limit > gate.MaxUpgradeLimit:
		return nil, fmt.Errorf("--limit must be at least 1 s and at most %v", gate.MaxUpgradeLimit)
	case o.maxStall < 0:
		return nil, errors.New("--max-stall must not be negative")
	}
	sizes, err := rollout.ParseSizes(o.waves)
	if err != nil {
		return nil, fmt.Errorf("--waves: %w", err)
	}
	return sizes, nil
}

// rollOut upgrades hosts of the gate in waves.
func (a *App) rollOut(cmd *cobra.Command, f *rolloutFlags, isTrial bool) error {
	if a.Host != "" {
		return exitcode.WrongUsagef("--hosts upgrades hosts of the gate from here, and cannot be used with --on")
	}
	sizes, err := f.check()
	if err != nil {
		return exitcode.WrongUsage(err)
	}
	a.ending.needs(always)      // hosts that have begun end their work
	machine.SurviveBrokenPipe() // nor must the rollout end with the reader of its output
	o, list, err := a.gateHosts(cmd.Context())
	if err != nil {
		return err
	}
	hosts, err := selectHosts(list, f.hosts, f.labels)
	if err != nil {
		return exitcode.WrongUsage(err)
	}
	if len(hosts) == 0 {
		return exitcode.New(sysexits.Unavailable, "no host of the gate matches; see proxy hosts")
	}
	tell := func(e rollout.Event) { tellEvent(cmd.OutOrStdout(), e) }
	if a.JSON {
		tell = func(e rollout.Event) { _ = JSONTo(cmd.OutOrStdout()).Encode(e) } // the rollout must not end with its reader
	}
	ask := func(ctx context.Context, host string, m gate.Upgrade, step func(gate.UpgradeStep)) (gate.Upgraded, error) {
		o := o
		o.Host = host
		return client.UpgradeHost(ctx, o, m, step)
	}
	result := rollout.Run(cmd.Context(), hosts, ask, rollout.Options{
		ID: protocol.NewToken(16), From: f.to, SHA256: f.sha256, Waves: sizes, Parallel: f.parallel, Limit: f.limit, MaxStall: f.maxStall, IsTrial: isTrial, Tell: tell,
	})
	return rolloutError(cmd.Context(), result)
}

// selectHosts returns the hosts with one of the names, which are patterns separated by commas, and with all
// labels. A name without a wildcard must be that of a host.
func selectHosts(list []gate.HostInfo, names string, labels map[string]string) (hosts []rollout.Host, err error) {
	patterns := strings.Split(names, ",")
	isUsed := make([]bool, len(patterns))
	for _, h := range list {
		isNamed := false
		for i, p := range patterns {
			match, err := path.Match(strings.TrimSpace(p), h.Name)
			if err != nil {
				return nil, fmt.Errorf("--hosts: %.80q is no pattern of names: %w", p, err)
			}
			isNamed, isUsed[i] = isNamed || match, isUsed[i] || match
		}
		if isNamed && protocol.HasLabels(h.Labels, labels) {
			hosts = append(hosts, rollout.Host{Name: h.Name, System: h.System, IsReachable: h.IsReachable})
		}
	}
	for i, p := range patterns {
		if !isUsed[i] && !strings.ContainsAny(p, `*?[\`) {
			return nil, fmt.Errorf("--hosts: no host %.80q has joined the gate", p)
		}
	}
	return hosts, nil
}

// rolloutError returns the error of a command for the result of a rollout.
func rolloutError(ctx context.Context, r rollout.Result) error {
	switch r.Outcome {
	case rollout.Interrupted:
		return fmt.Errorf("interrupted: %w", ctx.Err())
	case rollout.NotBegun:
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, h := range r.Hosts {
			if h.State == rollout.Refused {
				return exitcode.New(sysexits.NoPerm, r.Error)
			}
		}
		return exitcode.New(sysexits.Software, r.Error)
	case rollout.Returned:
		return exitcode.New(sysexits.Software, "all hosts run the programs from before: "+r.Error)
	case rollout.Failed:
		return exitcode.New(sysexits.Software, "not all hosts run the programs from before: "+r.Error)
	}
	for _, h := range r.Hosts {
		if h.State == rollout.Unreachable {
			return exitcode.New(sysexits.TempFail, h.Host+" was not reached; run the command again to upgrade it")
		}
	}
	return nil
}

// tellEvent prints an event for people.
func tellEvent(out io.Writer, e rollout.Event) {
	switch e.Kind {
	case "plan":
		total := 0
		for _, wave := range e.Waves {
			total += len(wave)
		}
		fmt.Fprintf(out, "%s to upgrade, in %s\n", plain.Count(total, "host"), plain.Count(len(e.Waves), "wave"))
	case "wave":
		fmt.Fprintf(out, "wave %d: %s\n", e.Wave, strings.Join(e.Waves[0], ", "))
	case "return":
		fmt.Fprintf(out, "returning: %s\n", strings.Join(e.Waves[0], ", "))
	case "step":
		fmt.Fprintf(out, "  %s: %s\n", e.Host, plain.Text(e.Text))
	case "host":
		if e.State.State == rollout.State(gate.UpgradeDone) {
			fmt.Fprintf(out, "  %s: upgraded to %s with %s, %s moved, longest pause %.1f ms\n", e.State.Host, plain.Text(build(e.State.Proxy)),
				plain.Count(e.State.Sessions, "session"), plain.Count(e.State.Clients, "connection"), e.State.StallMS)
		}
	case "end":
		w := plain.NewTable(out)
		fmt.Fprintln(w, "HOST\tSTATE\tSUPERVISOR\tPROXY\tWHY")
		for _, h := range e.Result.Hosts {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", h.Host, h.State, plain.Text(cmp.Or(h.Supervisor, "-")), plain.Text(cmp.Or(h.Proxy, "-")), plain.Text(h.Error))
		}
		_ = w.Flush()
	}
}
