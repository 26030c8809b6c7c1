package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// systemd must accept each unit in a guide, with the programs of this tree.
func TestUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip(err)
	}
	programs := testkit.Build(t, testkit.Programs...)
	count := 0
	for _, page := range pages(t) {
		for _, b := range blocks(t, page) {
			if b.lang != "ini" {
				continue
			}
			count++
			path := filepath.Join(t.TempDir(), "holdfast-guide.service")
			unit := strings.ReplaceAll(b.text, "/usr/local/bin/", programs+"/")
			testkit.Must(t, os.WriteFile(path, []byte(unit), 0o600))
			out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", path).CombinedOutput()
			if err != nil { // an older systemd warns about unknown keys, and accepts the unit
				t.Errorf("%s:%d: %v\n%s\n%s", page, b.line, err, out, unit)
			}
		}
	}
	if count < 3 {
		t.Errorf("the guides show %d units", count)
	}
}
