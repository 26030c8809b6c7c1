package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"holdfast/shared/testkit"
)

// --kind accepts each kind of event that the schema of the api lists.
func TestEventKinds(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "protocol", "api", "schema.json"))
	testkit.Must(t, err)
	var schema struct {
		Defs struct {
			Event struct {
				Properties struct {
					Event struct {
						Examples []string `json:"examples"`
					} `json:"event"`
				} `json:"properties"`
			} `json:"event"`
		} `json:"$defs"`
	}
	testkit.Must(t, json.Unmarshal(text, &schema))
	kinds := schema.Defs.Event.Properties.Event.Examples
	if len(kinds) == 0 {
		t.Fatal("the schema lists no kind of event")
	}
	for _, kind := range kinds {
		if !slices.Contains(eventKinds, kind) {
			t.Errorf("--kind does not know %s", kind)
		}
	}
}
