package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestOtherSystems builds programs for other systems, with the flags of a release. On Windows, which has no terminals
// to serve yet, the programs must report that. Only the supervisor for Windows is built outside the long mode:
// scripts/check.sh checks the types of all packages for Windows and macOS, and the other tests build the programs
// for this system.
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
		names := []string{"supervisor"}
		if isLong {
			names = append(names, "proxy")
		}
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", dir+string(filepath.Separator))
		for _, name := range names {
			cmd.Args = append(cmd.Args, "holdfast/"+name)
		}
		cmd.Env = append(os.Environ(), "GOOS="+tt.os, "GOARCH="+tt.arch, "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s/%s: %v\n%s", tt.os, tt.arch, err, out)
			continue
		}
		for _, name := range names {
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
