package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// checkRecipes looks into the files for package managers, and runs the steps of those that install by
// themselves with the archive of the release.
func checkRecipes(t *testing.T, release, unpacked string) {
	sum, _, _ := strings.Cut(output(t, release, "sha256sum", archived+".tar.gz"), " ")
	url := repository + "/releases/download/" + version + "/" + archived + ".tar.gz"
	t.Run("formula", func(t *testing.T) {
		text := read(t, release, "holdfast.rb")
		for _, want := range []string{`"` + sum + `"`, `"` + url + `"`, `homepage "` + repository + `"`} {
			if !strings.Contains(text, want) {
				t.Errorf("it lacks %s:\n%s", want, text)
			}
		}
	})
	if runtime.GOOS == "linux" {
		t.Run("PKGBUILD", func(t *testing.T) { checkPKGBUILD(t, filepath.Join(release, "PKGBUILD"), unpacked, url, sum) })
	}
	t.Run("flake", func(t *testing.T) { checkFlake(t, release, unpacked, url, sum) })
}

// checkPKGBUILD runs the function package as makepkg does.
func checkPKGBUILD(t *testing.T, name, unpacked, url, sum string) {
	output(t, "", "bash", "-n", name)
	pkg := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", `. "$0"; package; arch=${arch[*]} source=source_$arch sum=sha256sums_$arch; echo "$pkgname $pkgver ${!source} ${!sum}"`, name)
	cmd.Env = append(os.Environ(), "srcdir="+filepath.Dir(unpacked), "pkgdir="+pkg)
	out, err := cmd.CombinedOutput()
	if want := "holdfast-bin 9.8.7rc.1 " + url + " " + sum + "\n"; err != nil || string(out) != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
	checkPrograms(t, filepath.Join(pkg, "usr/bin"), "holdfast", "supervisor")
	checkInstalled(t, filepath.Join(pkg, "usr/bin"), filepath.Join(pkg, "usr/lib/holdfast/proxy"))
	for _, file := range []string{"usr/share/man/man1/holdfast.1", "usr/share/zsh/site-functions/_holdfast", "usr/share/licenses/holdfast-bin/NOTICES.txt", "usr/share/doc/holdfast/docs/operate.md"} {
		if !isThere(filepath.Join(pkg, file)) {
			t.Errorf("the package lacks %s", file)
		}
	}
	checkLinks(t, filepath.Join(pkg, "usr/share/doc/holdfast"))
	for _, file := range []string{"usr/bin/proxy", "usr/share/bash-completion/completions/proxy"} {
		if isThere(filepath.Join(pkg, file)) {
			t.Errorf("the package has %s, which another package may have", file)
		}
	}
}

// checkInstalled wants the command holdfast to find the other programs of its package.
func checkInstalled(t *testing.T, bin, proxy string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "holdfast"), "service", "install", "--print")
	cmd.Env = []string{"HOME=" + t.TempDir()}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "ExecStart="+proxy+" ") {
		t.Errorf("want a unit that runs %s: %v\n%s", proxy, err, out)
	}
}

// checkFlake evaluates the flake with functions in place of nixpkgs, which return their arguments, and
// runs the commands that install.
func checkFlake(t *testing.T, release, unpacked, url, sum string) {
	program(t, "nix-instantiate")
	flake := filepath.Join(unpack(t, filepath.Join(release, flakeName)), "holdfast-flake", "flake.nix")
	system := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + "-" + runtime.GOOS
	expr := `let
  pkgs = { fetchurl = a: a; stdenvNoCC.mkDerivation = a: a; lib.licenses.asl20 = "asl20"; };
  flake = (import ` + flake + `).outputs { self = null; nixpkgs.legacyPackages.` + system + ` = pkgs; };
in flake.packages.` + system + `.default`
	state := t.TempDir()
	env := []string{"HOME=" + state, "NIX_REMOTE=", "NIX_STORE_DIR=" + state + "/store", "NIX_STATE_DIR=" + state + "/var", "NIX_LOG_DIR=" + state + "/log"}
	out, err := command(t.Context(), "", env, "nix-instantiate", "--eval", "--strict", "--json", "--expr", expr)
	testkit.Must(t, err)
	var p struct {
		Version, InstallPhase string
		Src                   struct{ URL, Sha256 string }
		Meta                  struct{ Homepage, License string }
	}
	testkit.Must(t, json.Unmarshal(out, &p))
	if p.Version != strings.TrimPrefix(version, "v") || p.Src.URL != url || p.Src.Sha256 != sum || p.Meta.Homepage != repository || p.Meta.License != "asl20" {
		t.Errorf("got %+v", p)
	}
	to := filepath.Join(t.TempDir(), "out")
	build := exec.CommandContext(t.Context(), "bash", "-eu", "-c", p.InstallPhase)
	build.Dir, build.Env = unpacked, append(os.Environ(), "out="+to)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checkPrograms(t, filepath.Join(to, "bin"), "holdfast", "supervisor")
	checkInstalled(t, filepath.Join(to, "bin"), filepath.Join(to, "libexec/holdfast/proxy"))
	checkLinks(t, filepath.Join(to, "share/doc/holdfast"))
	if !isThere(filepath.Join(to, "share/man/man1/holdfast.1")) || isThere(filepath.Join(to, "bin/proxy")) {
		t.Error("the man pages are missing, or a program proxy is in bin")
	}
}
