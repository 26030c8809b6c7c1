package cli

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"holdfast/protocol/gate"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/sysexits"
	"holdfast/shared/testkit"
)

// Each command has a place, which tells where it runs if --on names a host, and the guide agrees.
func TestPlaces(t *testing.T) {
	root := newApp(nil).command("")
	root.InitDefaultHelpCmd()
	inTree := []string{"proxy"}
	for _, cmd := range root.Commands() {
		if name := cmd.Name(); name != "help" { // help does nothing, so it needs no place
			inTree = append(inTree, name)
		}
	}
	rows := map[place][]string{}
	for name, p := range places {
		if !slices.Contains(inTree, name) {
			t.Errorf("places has %s, which is not a command", name)
		}
		if (whyOnlyHere[name] != "") != (p == onlyHere) {
			t.Errorf("%s has the place %d and the reason %q", name, p, whyOnlyHere[name])
		}
		if name != "proxy" {
			rows[p] = append(rows[p], "`"+name+"`")
		}
	}
	for _, name := range inTree {
		if places[name] == 0 {
			t.Errorf("the command %s is not in places", name)
		}
	}
	guide, err := os.ReadFile("../../../.github/docs/many-hosts.md")
	testkit.Must(t, err)
	for p, names := range rows {
		slices.Sort(names)
		if row := "\n| " + strings.Join(names, " ") + " |"; !strings.Contains(string(guide), row) {
			t.Errorf("many-hosts.md has no row %q for the place %d", row, p)
		}
	}
}

// The commands whose place is the host are those that an agent executes for clients of a gate.
func TestHostCommands(t *testing.T) {
	for name, p := range places {
		if isThere := slices.Contains(gate.HostCommands(), name); name != "proxy" && isThere != (p == onHost) {
			t.Errorf("%s has the place %d, and an agent runs it: %v", name, p, isThere)
		}
	}
}

// A command that runs only on this host fails with a code and a reason if --on names another.
func TestOnlyHere(t *testing.T) {
	for name, why := range whyOnlyHere {
		root := newApp(notRun).command(name)
		root.SetArgs([]string{name, "--on", "away"})
		if argument := map[string]string{"completion": "bash", "env": "s", "replay": "h/s@1"}[name]; argument != "" {
			root.SetArgs([]string{name, argument, "--on", "away"})
		}
		err := root.Execute()
		if exitcode.Of(err) != sysexits.Usage || !strings.HasPrefix(err.Error(), codeOnlyHere+": "+name) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A command with an empty name of a host or a directory, which a script has if a variable is not set, does not run in the user's own
// directories on this host.
func TestEmptyPlace(t *testing.T) {
	for _, args := range [][]string{{"kill", "s", "--on", ""}, {"stop", "--all", "--on="}, {"ls", "--on", ""}} {
		root := newApp(notRun).command(args[0])
		root.SetArgs(append(args, "--dir", testkit.Dir(t)))
		if err := root.Execute(); exitcode.Of(err) != sysexits.Usage || !strings.Contains(err.Error(), "--on") {
			t.Errorf("%q: %v", args, err)
		}
	}
	root := newApp(notRun).command("stop")
	root.SetArgs([]string{"stop", "--all", "--dir", ""})
	if err := root.Execute(); exitcode.Of(err) != sysexits.Usage || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("an empty directory: %v", err)
	}
	if host, id := splitName("/s"); host != "" || id.Validate() == nil {
		t.Errorf("/s names the session %q of host %q", id, host)
	}
}

// notRun returns commands in the place of those of package operate. The tests do not run them.
func notRun(*App) (all []*cobra.Command) {
	for _, c := range byProxy {
		all = append(all, &cobra.Command{Use: c.name, RunE: func(*cobra.Command, []string) error { return nil }})
	}
	return all
}
