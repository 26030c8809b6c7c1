package cli

import (
	"slices"
	"testing"

	"holdfast/protocol"
)

// A variable that is named as secret is passed to the session, although others like it are not.
func TestSecretEnv(t *testing.T) {
	t.Setenv("MY_TOKEN", "from the environment")
	t.Setenv("OTHER_TOKEN", "not meant")
	t.Setenv("GIVEN_TOKEN", "old")
	for _, clear := range []bool{false, true} {
		o := &newOptions{secretEnv: []string{"MY_TOKEN", "GIVEN_TOKEN", "UNSET_TOKEN", "*_TOKEN"}, env: []string{"GIVEN_TOKEN=new"}, clearEnv: clear, limits: &protocol.Limits{}}
		r, err := o.request([]string{"sh"})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range []string{"MY_TOKEN", "OTHER_TOKEN", "GIVEN_TOKEN", "UNSET_TOKEN"} {
			for _, kv := range r.Env {
				if len(kv) > len(name) && kv[:len(name)+1] == name+"=" {
					got = append(got, kv)
				}
			}
		}
		if want := []string{"MY_TOKEN=from the environment", "GIVEN_TOKEN=new"}; !slices.Equal(got, want) || !slices.Equal(r.SecretEnv, o.secretEnv) {
			t.Errorf("the session gets %q, want %q", got, want)
		}
	}
}

// --durable chooses how much of the session is stored.
func TestDurableFlag(t *testing.T) {
	for _, durable := range []protocol.Durable{"", protocol.DurableOff, protocol.DurableFull} {
		o := &newOptions{durable: string(durable), limits: &protocol.Limits{}}
		if r, err := o.request([]string{"sh"}); err != nil || r.Durable != durable {
			t.Errorf("--durable=%s requests %q, %v", durable, r.Durable, err)
		}
	}
}
