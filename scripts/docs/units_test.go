package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

var unitBlock = regexp.MustCompile("(?ms)^```ini\n(.*?)^```")

// systemd accepts each unit that a guide shows, with the programs of this tree.
func TestUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip(err)
	}
	programs := testkit.Build(t, "holdfast/proxy", "holdfast/supervisor")
	count := 0
	for _, page := range pages(t) {
		for _, block := range unitBlock.FindAllStringSubmatch(read(t, page), -1) {
			count++
			path := filepath.Join(t.TempDir(), "holdfast-guide.service")
			unit := strings.ReplaceAll(block[1], "/usr/local/bin/", programs+"/")
			if err := os.WriteFile(path, []byte(unit), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", path).CombinedOutput()
			if err != nil { // an older systemd warns about keys that it does not know, and accepts the unit
				t.Errorf("%s: %v\n%s\n%s", page, err, out, unit)
			}
		}
	}
	if count < 3 {
		t.Errorf("the guides show %d units", count)
	}
}
