package cli

import (
	"maps"
	"testing"

	"github.com/spf13/pflag"
)

// A label has any value, because the value may be a command.
func TestLabels(t *testing.T) {
	var got map[string]string
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	LabelsVar(f, &got, "label `k=v`")
	if err := f.Parse([]string{"--label", `a=sh -c "echo x"`, "--label=b=run --set c=1,d=2", "--label", `e=["x","A=1"]`, "--label", "f="}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": `sh -c "echo x"`, "b": "run --set c=1,d=2", "e": `["x","A=1"]`, "f": ""}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := f.Parse([]string{"--label", "a"}); err == nil {
		t.Error("a label without a value was accepted")
	}
}
