package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/internal/archive"
	"holdfast/proxy/internal/cli"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/fleet/member"
	"holdfast/proxy/internal/serve"
	"holdfast/shared/config"
	"holdfast/shared/plain"
	"holdfast/shared/sysexits"
)

// openRecordings returns the store of the setting recordings, and the keys if durable_key is set.
func (a *app) openRecordings(ctx context.Context) (archive.Store, *archive.Keys, error) {
	cfg, err := a.Settings()
	if err != nil {
		return nil, nil, err
	}
	if cfg.Recordings == "" {
		return nil, nil, exitcode.New(sysexits.Config, "no recordings are kept; set the setting recordings, or HOLDFAST_RECORDINGS, to the place where they are")
	}
	where := serve.ArchiveConfig(cfg)
	return where.Open(ctx)
}

// recordingHost returns the name of this host in the names of recordings: that at the gate, or the host name.
func recordingHost(dirs config.Dirs) string {
	if state, err := member.Load(filepath.Join(dirs.State, joinFile)); err == nil && state.Name != "" {
		return state.Name
	}
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return archive.HostName(name)
}

// failedIn gives the error of a store its exit code.
func failedIn(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return exitcode.New(sysexits.NoInput, "there is no such recording; proxy recordings lists them")
	case errors.Is(err, archive.ErrUnavailable):
		return exitcode.With(sysexits.Unavailable, err)
	case errors.Is(err, archive.ErrRefused):
		return exitcode.With(sysexits.NoPerm, err)
	case errors.Is(err, archive.ErrSetting):
		return exitcode.With(sysexits.Config, err)
	}
	return err
}

func (a *app) recordingsCommand() *cobra.Command {
	return a.JSONFlag(&cobra.Command{
		Use:     "recordings",
		Short:   "List the recordings of sessions",
		Long:    "List the recordings of the sessions of all hosts, at the place that the setting recordings names.",
		Example: "  proxy recordings\n  proxy recordings --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, _, err := a.openRecordings(cmd.Context())
			if err != nil {
				return err
			}
			list := []archive.Summary{}
			for r, err := range archive.Recordings(cmd.Context(), store) {
				if err != nil {
					return failedIn(err)
				}
				list = append(list, r)
			}
			return a.Print(cmd, list, func(out io.Writer) error { return printRecordings(out, list) })
		},
	})
}

func printRecordings(out io.Writer, list []archive.Summary) error {
	return cli.PrintTable(out, list, "no recordings", "RECORDING\tSTATE\tOUTPUT\tSTORED\tLAST\tPROGRAM", func(w io.Writer, r archive.Summary) {
		state, last := "open", "never"
		if r.IsComplete {
			state = "complete"
		}
		if !r.StoredAt.IsZero() {
			last = cli.Since(r.StoredAt)
		}
		fmt.Fprintf(w, "%s\t%s\t%d-%d\t%s\t%s\t%s\n", plain.Text(r.Recording), state, r.Start, r.End, cli.ByteSize(uint64(r.Bytes)), last, plain.Text(r.Program))
	})
}

func (a *app) replayCommand() *cobra.Command {
	var at *protocol.Moment
	var ansi, output bool
	cmd := a.JSONFlag(&cobra.Command{
		Use:   "replay HOST/ID@INSTANCE",
		Short: "Print the screen that a recording had at a moment",
		Long: "Print the screen that a recording had at a moment; without --at the last one that is recorded. It reads\n" +
			"the place that the setting recordings names, and asks no host. proxy recordings lists the recordings.\n\n" +
			"The screen is exact, unless the size of the terminal has changed in the seconds before: until the next\n" +
			"keyframe, lines may then be laid out in another way.\n\n" +
			"A MOMENT is an offset of the output (81920), a time (14:30, 2026-01-31 14:30:05, RFC 3339), or a time\n" +
			"before now (-5m, -2d).",
		Example: "  proxy replay build-host/make@Uyy4pxPyz2XgPVVkEUxo\n  proxy replay build-host/make@Uyy4pxPyz2XgPVVkEUxo --at -5m --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := archive.ParseName(args[0])
			if err != nil {
				return exitcode.WrongUsage(err)
			}
			if at != nil && at.Command != 0 {
				return exitcode.WrongUsagef("a recording does not know the commands of the shell; give an offset or a time")
			}
			store, keys, err := a.openRecordings(cmd.Context())
			if err != nil {
				return err
			}
			if output {
				missing, err := archive.Output(cmd.Context(), store, keys, name, at, cli.Raw(cmd))
				if missing > 0 {
					cli.Note("%d bytes of the output are not recorded", missing)
				}
				return failedIn(err)
			}
			spec := protocol.ScreenSpec{SessionID: name.ID, Format: cli.ScreenFormat(ansi, a.JSON)}
			content, err := archive.Show(cmd.Context(), store, keys, name, at, spec)
			if err != nil {
				return failedIn(err)
			}
			if a.JSON {
				return cli.JSONTo(cmd.OutOrStdout()).Encode(content)
			}
			return cli.PrintScreen(cli.Raw(cmd), ansi, name.ID, &content)
		},
	})
	cli.MomentVar(cmd.Flags(), &at, "at", "print the screen as it was at this `MOMENT`")
	cmd.Flags().BoolVar(&ansi, "ansi", false, "text with colours, for a terminal")
	cmd.Flags().BoolVar(&output, "output", false, "print the recorded output up to that moment, and not the screen")
	cmd.MarkFlagsMutuallyExclusive("ansi", "json", "output")
	return cmd
}

func (a *app) verifyCommand() *cobra.Command {
	return a.JSONFlag(&cobra.Command{
		Use:   "verify [HOST/ID@INSTANCE]",
		Short: "Check that recordings are whole",
		Long: "Check a recording, or all, that the setting recordings names: each part must have its checksum and continue the\n" +
			"part before. It names output that could not be recorded, parts that are not there, torn and foreign objects,\n" +
			"and a missing end. The exit code is 1 if there is any of these.\n\n" +
			"A recording is open until the session has ended and its last output is stored. It stays open if its host\n" +
			"dies; then at most the last 5 seconds of output are missing.",
		Example: "  proxy verify\n  proxy verify build-host/make@Uyy4pxPyz2XgPVVkEUxo --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var only *archive.Name
			if len(args) > 0 {
				name, err := archive.ParseName(args[0])
				if err != nil {
					return exitcode.WrongUsage(err)
				}
				only = &name
			}
			store, keys, err := a.openRecordings(cmd.Context())
			if err != nil {
				return err
			}
			hasProblems := false
			for r, err := range archive.Verify(cmd.Context(), store, keys, only) {
				if err != nil {
					return failedIn(err)
				}
				hasProblems = hasProblems || len(r.Problems) > 0
				if a.JSON {
					err = cli.JSONTo(cmd.OutOrStdout()).Encode(r) // one line for each recording, because there may be many
				} else {
					err = printReport(cmd.OutOrStdout(), r)
				}
				if err != nil {
					return err
				}
			}
			if hasProblems {
				return exitcode.New(1, "")
			}
			return nil
		},
	})
}

// printReport prints a line for a recording, and a line for each problem.
func printReport(out io.Writer, r *archive.Report) error {
	var b strings.Builder
	switch {
	case r.Recording == "":
		b.WriteString("objects outside of recordings\n")
	case r.IsComplete:
		fmt.Fprintf(&b, "%s: complete, output %d-%d\n", plain.Text(r.Recording), r.Start, r.End)
	default:
		fmt.Fprintf(&b, "%s: open, output %d-%d", plain.Text(r.Recording), r.Start, r.End)
		if !r.PrintedAt.IsZero() {
			fmt.Fprintf(&b, ", the last of it printed at %s", r.PrintedAt.Local().Format(time.DateTime))
		}
		b.WriteByte('\n')
	}
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "  %s", p.Kind)
		if p.To > p.From {
			fmt.Fprintf(&b, " %d-%d", p.From, p.To)
		}
		if p.Key != "" {
			fmt.Fprintf(&b, " %s", plain.Text(p.Key))
		}
		fmt.Fprintf(&b, ": %s\n", plain.Text(p.Text))
	}
	if r.MoreProblems {
		b.WriteString("  and more\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}
