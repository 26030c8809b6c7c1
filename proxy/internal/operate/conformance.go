package operate

import (
	"bufio"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"holdfast/proxy/internal/cli"
	"holdfast/proxy/internal/conformance"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/plain"
)

func (a *app) conformanceCommand() *cobra.Command {
	var only, transport string
	var list bool
	cmd := &cobra.Command{
		Use:   "conformance [flags] -- HARNESS [ARGUMENT...]",
		Short: "Test a client in any language against the worst that a proxy does",
		Long: "Play a proxy that cuts connections, asks for input again, refuses for a while and loses output, and judge a client.\n" +
			"HARNESS is a program around that client: it reads commands from standard input, and writes events to standard output.\n" +
			"The guide write-client.md describes both. No session and no proxy of this host is used.\n\n" +
			"The exit code is 1 if the client makes a mistake.",
		Example: "  proxy conformance -- python3 harness.py\n  proxy conformance --only '^cut-' -- node harness.js\n  proxy conformance --list",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, harness []string) error {
			if list {
				return listScenarios(cmd)
			}
			if len(harness) == 0 {
				return exitcode.WrongUsagef("the program of the harness is missing")
			}
			o := conformance.Options{Start: conformance.Program(harness...)}
			var err error
			if o.Only, err = regexp.Compile(only); err != nil {
				return exitcode.WrongUsagef("--only: %v", err)
			}
			if transport != "" {
				o.Transports = []string{transport}
			}
			a.EndsSlowly()
			return judge(cmd, o)
		},
	}
	cmd.Flags().StringVar(&only, "only", "", "run only scenarios whose names match this `regexp`")
	cli.ChoiceVar(cmd, &transport, "transport", "", "run the scenarios only over this `transport`: unix or websocket", conformance.Unix, conformance.WebSocket)
	cmd.Flags().BoolVar(&list, "list", false, "list the scenarios, and run none")
	return cmd
}

func listScenarios(cmd *cobra.Command) error {
	w := plain.NewTable(cmd.OutOrStdout())
	for _, s := range conformance.Scenarios() {
		fmt.Fprintf(w, "%s\t%s\n", s.Name, s.About)
	}
	return w.Flush()
}

// judge runs the suite and prints the results, and then how many scenarios were skipped for each feature that the
// client lacks.
func judge(cmd *cobra.Command, o conformance.Options) error {
	out := bufio.NewWriter(cmd.OutOrStdout())
	passed, failed := 0, 0
	lacks := make(map[string]int)
	err := conformance.Run(cmd.Context(), o, func(r conformance.Result) {
		switch {
		case r.Lacks != "":
			lacks[r.Lacks]++
			return
		case len(r.Faults) > 0:
			failed++
		default:
			passed++
		}
		fmt.Fprintln(out, r) // Flush reports the error
		_ = out.Flush()
	})
	if err != nil {
		return err
	}
	for _, feature := range slices.Sorted(maps.Keys(lacks)) {
		fmt.Fprintf(out, "skipped %d, because the client lacks %s\n", lacks[feature], feature)
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", passed, failed)
	if err := out.Flush(); err != nil || failed == 0 {
		return err
	}
	return exitcode.New(1, "")
}
