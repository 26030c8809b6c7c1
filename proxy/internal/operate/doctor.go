package operate

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/proxy/internal/archive"
	"holdfast/proxy/internal/cli"
	"holdfast/proxy/internal/doctor"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/serve"
	"holdfast/shared/config"
	"holdfast/shared/pipe"
	"holdfast/shared/plain"
	"holdfast/shared/sysexits"
)

func (a *app) doctorCommand() *cobra.Command {
	return a.JSONFlag(&cobra.Command{
		Use:     "doctor",
		Short:   "Find causes of failure of terminals, and say how to remove them",
		Example: "  proxy doctor\n  proxy doctor --json",
		Long: "Find causes of failure of terminals, and say how to remove them: directories, sockets and their locks,\n" +
			"settings, limits on PTYs and files, logouts, whether both processes run, answer and fit together, and whether the\n" +
			"gate of the settings and the agent of a host that has joined a gate are connected.\n" +
			"doctor changes nothing and starts nothing, except the policy's program, which it ends again, and an object in the\n" +
			"bucket of recordings, which it deletes again.\n\n" +
			"Each finding is ok, a note, a warning or an error. Exit code: 0 if all findings are ok or notes,\n" +
			"1 if the worst one is a warning, 2 if it is an error.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pipe.Here {
				return exitcode.New(sysexits.Unavailable, "unsupported_os: there are no terminals on this system yet, so there is nothing to check")
			}
			found := a.diagnose(cmd.Context())
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			if err := a.Print(cmd, found, func(out io.Writer) error { return printFindings(out, found) }); err != nil {
				return err
			}
			if code := doctor.Worst(found).ExitCode(); code != 0 {
				return exitcode.New(code, "")
			}
			return nil
		},
	})
}

// printFindings prints each finding on one line, and its fix on a second one.
func printFindings(out io.Writer, all []doctor.Finding) error {
	for _, f := range all {
		// A finding may have several lines, for example a mistake in the settings.
		fmt.Fprintf(out, "%-8s %-12s %s\n", f.Severity, f.Check, plain.Text(strings.ReplaceAll(f.Finding, "\n", "; ")))
		if f.Fix == "" {
			continue
		}
		if _, err := fmt.Fprintf(out, "%-8s %-12s fix: %s\n", "", "", plain.Text(f.Fix)); err != nil {
			return err
		}
	}
	return nil
}

// diagnose collects the facts and evaluates them. In contrast to other commands, it creates no
// directory.
func (a *app) diagnose(ctx context.Context) []doctor.Finding {
	dirs, err := config.Resolve(a.Dir, os.Getenv)
	if err != nil {
		return []doctor.Finding{{Check: "directories", Severity: doctor.Error, Finding: err.Error(), Fix: "set HOME, --dir or HOLDFAST_DIR"}}
	}
	f, cfg := a.Facts(dirs)
	f.Agent = func(ctx context.Context) (*doctor.Agent, error) { return askAgent(ctx, dirs) }
	if bucket := cfg.RecordingsBucket(); f.Settings == nil && bucket != nil {
		f.Bucket = func(ctx context.Context) (failed string, err error) {
			return tryBucket(ctx, bucket, recordingHost(dirs))
		}
	}
	f.Policy = serve.TryPolicy(ctx, dirs, a.Proxy, cfg)
	f.Web = func(mustBeFree bool) error { return serve.TryWeb(a.Proxy, cfg, mustBeFree) }
	found := doctor.Run(ctx, f)
	for i := range found {
		found[i].Finding, found[i].Fix = cli.Named(found[i].Finding), cli.Named(found[i].Fix)
	}
	return found
}

// tryBucket stores, reads and deletes an object of this host in the bucket of recordings. failed is the kind of request
// that has failed.
func tryBucket(ctx context.Context, bucket *config.Bucket, host string) (failed string, err error) {
	store, err := archive.OpenS3(bucket)
	if err != nil {
		return "list", err
	}
	return store.Probe(ctx, host)
}
