package cli_test

import (
	"slices"
	"testing"

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
