package cli_test

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/proxy/internal/cli"
	"holdfast/proxy/internal/operate"
)

// holdfast lists each command of package operate with its text.
func TestByProxy(t *testing.T) {
	listed, want := []string{}, []string{}
	for _, cmd := range cli.ByProxyCommands() {
		listed = append(listed, cmd.Name()+": "+cmd.Short)
	}
	for _, cmd := range operate.Commands(cli.NewTestApp()) {
		want = append(want, cmd.Name()+": "+cmd.Short)
	}
	slices.Sort(want)
	if !slices.Equal(listed, want) {
		t.Errorf("holdfast lists %q, want %q", listed, want)
	}
}

// Each flag for a time takes a plain number of seconds, whichever command has it.
func TestFlagsForTimes(t *testing.T) {
	flags := 0
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "duration" {
				flags++
				if err := f.Value.Set("5"); err != nil || f.Value.String() != "5s" {
					t.Errorf("%s --%s 5: the value is %s, %v", cmd.CommandPath(), f.Name, f.Value, err)
				}
			}
		})
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(cli.Root(operate.Commands))
	if flags == 0 {
		t.Error("no command has such a flag")
	}
}
