package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestOtherSystems builds both programs for each system, with the flags of a release. On Windows, which
// has no terminals to serve yet, the programs must report that. All systems but Windows are built in the
// long mode only: the other tests build the programs for this system, and go vet compiles their packages
// for macOS.
// demand: M14, S12
func TestOtherSystems(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ os, arch, suffix string }{
		{"windows", "amd64", ".exe"}, {"darwin", "arm64", ""}, {"linux", "amd64", ""},
	} {
		if tt.os != "windows" && !isLong {
			continue
		}
		dir := t.TempDir()
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", dir+string(filepath.Separator), "holdfast/proxy", "holdfast/supervisor")
		cmd.Env = append(os.Environ(), "GOOS="+tt.os, "GOARCH="+tt.arch, "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s/%s: %v\n%s", tt.os, tt.arch, err, out)
			continue
		}
		for _, name := range []string{"proxy", "supervisor"} {
			program, err := os.ReadFile(filepath.Join(dir, name+tt.suffix))
			if err != nil {
				t.Error(err)
			}
			if tt.os == "windows" && !bytes.Contains(program, []byte("unsupported_os")) {
				t.Errorf("%s does not say that it is unsupported on %s", name, tt.os)
			}
		}
	}
}
