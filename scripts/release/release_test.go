package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

const (
	version    = "v9.8.7-rc.1"
	newer      = "v9.8.7"
	epoch      = "1790000000" // 2026-09-21
	repository = "https://example.org/ada/holdfast"
	deb        = "holdfast_9.8.7~rc.1-1_" + runtime.GOARCH + ".deb"
	archived   = "holdfast_9.8.7-rc.1_" + runtime.GOOS + "_" + runtime.GOARCH
)

// TestRelease makes a release for this system twice, from trees in different directories, and checks all its
// files.
func TestRelease(t *testing.T) {
	here := target{runtime.GOOS, runtime.GOARCH}
	if runtime.GOOS == "windows" || !slices.Contains(targets, here) {
		t.Skipf("no release can be made on %s", here)
	}
	t.Setenv("SOURCE_DATE_EPOCH", epoch)
	// The program runs without the race detector, because it has one goroutine, and compression would take
	// five times as long.
	exe := filepath.Join(t.TempDir(), "release")
	if _, err := command(t.Context(), "", plain, "go", "build", "-trimpath", "-buildvcs=false", "-o", exe, "."); err != nil {
		t.Fatal(err)
	}
	tree := copyTree(t)
	first, second := makeRelease(t, exe, tree, version), makeRelease(t, exe, copied(t, tree), version)

	t.Run("again", func(t *testing.T) {
		if a, b := read(t, first, sumsName), read(t, second, sumsName); a != b {
			t.Errorf("the same tree in another directory gives another release:\n%s\n%s", a, b)
		}
	})
	t.Run("sums", func(t *testing.T) {
		program(t, "sha256sum")
		output(t, first, "sha256sum", "--check", "--strict", sumsName)
	})
	unpacked := filepath.Join(unpack(t, filepath.Join(first, archived+".tar.gz")), archived)
	t.Run("archive", func(t *testing.T) { checkArchive(t, unpacked) })
	t.Run("links", func(t *testing.T) { checkLinks(t, unpacked) })
	t.Run("programs", func(t *testing.T) { checkPrograms(t, filepath.Join(unpacked, "bin"), programs...) })
	t.Run("pages", func(t *testing.T) { checkPages(t, filepath.Join(unpacked, "share/man/man1")) })
	t.Run("completions", func(t *testing.T) { checkCompletions(t, filepath.Join(unpacked, "share")) })
	t.Run("sbom", func(t *testing.T) {
		checkBOM(t, filepath.Join(first, archived+".cdx.json"), filepath.Join(unpacked, "bin"))
	})
	t.Run("recipes", func(t *testing.T) { checkRecipes(t, first, unpacked) })
	next := makeRelease(t, exe, tree, newer)
	t.Run("npm", func(t *testing.T) { checkNPM(t, first, next) })
	t.Run("wheels", func(t *testing.T) { checkWheels(t, first, next) })
	if runtime.GOOS == "linux" {
		t.Run("image", func(t *testing.T) { checkImage(t, unpacked) })
		t.Run("deb", func(t *testing.T) { checkDeb(t, filepath.Join(first, deb)) })
		t.Run("upgrade", func(t *testing.T) { checkUpgrade(t, filepath.Join(first, deb), next) })
	}
}

// makeRelease makes a release of a tree, and returns its directory.
func makeRelease(t *testing.T, exe, root, version string) string {
	t.Helper()
	out := t.TempDir()
	t.Log(output(t, "", exe, "--snapshot", "--version", version, "--root", root, "--out", out, "--maintainer", "Nobody <nobody@example.org>",
		"--repository", repository, "--target", runtime.GOOS+"/"+runtime.GOARCH))
	return out
}

// copied returns a copy of the tree with another path.
func copied(t *testing.T, tree string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "a longer path")
	testkit.Must(t, os.CopyFS(to, os.DirFS(tree)))
	return to
}

// copyTree returns a copy of all files that are in git or not ignored by it, without git's own files.
func copyTree(t *testing.T) string {
	t.Helper()
	program(t, "git")
	from, to := filepath.Join("..", ".."), t.TempDir()
	for name := range strings.SplitSeq(strings.TrimSuffix(output(t, from, "git", "ls-files", "-z", "-co", "--exclude-standard"), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed, but the removal is not committed
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), data, 0o644)
		}
		testkit.Must(t, err)
	}
	// scripts/check.sh has installed the tools that build the npm client.
	tools, err := filepath.Abs(filepath.Join(from, clientDir, "node_modules"))
	if err == nil && isThere(tools) {
		err = os.Symlink(tools, filepath.Join(to, clientDir, "node_modules"))
	}
	testkit.Must(t, err)
	return to
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// unpack unpacks an archive. All entries must belong to root, have the time of the release, and be sorted.
func unpack(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(name)
	testkit.Must(t, err)
	defer func() { _ = f.Close() }()
	zr, err := gzip.NewReader(f)
	testkit.Must(t, err)
	if zr.Name != "" || !zr.ModTime.IsZero() {
		t.Errorf("the gzip header has the name %q and the time %v", zr.Name, zr.ModTime)
	}
	tr := tar.NewReader(zr)
	var names []string
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		testkit.Must(t, err)
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "root" || h.ModTime.Unix() != 1790000000 {
			t.Errorf("%s has the owner %d/%d, %s, and the time %v", h.Name, h.Uid, h.Gid, h.Uname, h.ModTime)
		}
		to := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			testkit.Must(t, os.MkdirAll(to, 0o755))
			continue
		}
		names = append(names, h.Name)
		data, err := io.ReadAll(tr)
		if err == nil {
			err = os.WriteFile(to, data, h.FileInfo().Mode().Perm())
		}
		testkit.Must(t, err)
	}
	if !slices.IsSorted(names) {
		t.Errorf("the archive is not sorted: %q", names)
	}
	return dir
}

func checkArchive(t *testing.T, dir string) {
	var want []string
	for _, text := range texts {
		name, _ := shown(text, nil)
		want = append(want, name)
	}
	want = append(want, "NOTICES.txt", "bin/holdfast", "bin/proxy", "bin/supervisor",
		"share/man/man1/holdfast.1", "share/man/man1/holdfast-new.1", "share/man/man1/holdfast-gate.1", "share/man/man1/supervisor.1", "share/man/man1/supervisor-stop.1",
		"share/holdfast/dashboard.json", "share/holdfast/alerts.yaml",
		"share/bash-completion/completions/proxy", "share/bash-completion/completions/supervisor",
		"share/zsh/site-functions/_proxy", "share/zsh/site-functions/_supervisor",
		"share/fish/vendor_completions.d/proxy.fish", "share/fish/vendor_completions.d/supervisor.fish")
	for _, name := range want {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		mode := fs.FileMode(0o644)
		if path.Dir(name) == "bin" {
			mode = 0o755
		}
		if info.Size() == 0 || info.Mode().Perm() != mode {
			t.Errorf("%s has %d bytes and mode %v", name, info.Size(), info.Mode())
		}
	}
}

// checkLinks checks the links between the texts in the archive.
func checkLinks(t *testing.T, dir string) {
	link := regexp.MustCompile(`\]\(([a-zA-Z0-9./_-]+\.[a-z]+)[#)]`)
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".md" {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(read(t, "", name), -1) {
			if strings.Contains(m[1], ".github/") && !strings.Contains(m[1], ".github/docs/") {
				continue // these files are only in the repository
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), m[1])); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// checkPrograms runs the programs, and searches them for paths of the machine that built them.
func checkPrograms(t *testing.T, dir string, names ...string) {
	for _, name := range names {
		if got, want := output(t, "", filepath.Join(dir, name), "--version"), name+" version "+version+"\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if err := exec.CommandContext(t.Context(), filepath.Join(dir, name), "manual", t.TempDir()).Run(); err == nil {
			t.Errorf("%s has the command manual, so it was built with the tag manual", name)
		}
		text := read(t, dir, name)
		for _, place := range []string{os.TempDir() + "/Test", os.Getenv("HOME") + "/", strings.TrimSpace(output(t, "", "go", "env", "GOROOT"))} {
			if strings.Trim(place, "/") != "" && strings.Contains(text, place) {
				t.Errorf("%s contains %q", name, place)
			}
		}
	}
}

func checkPages(t *testing.T, dir string) {
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		text := read(t, dir, filepath.Base(page))
		for _, want := range []string{"2026-09-21", version[:2], ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH OPTIONS", ".SH EXIT STATUS", ".SH SEE ALSO"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", page, want)
			}
		}
		for _, bold := range regexp.MustCompile(`\\fB([a-z\\-]+)\\fR\(1\)`).FindAllStringSubmatch(text, -1) {
			other := strings.ReplaceAll(bold[1], `\-`, "-") + ".1"
			if _, err := os.Stat(filepath.Join(dir, other)); err != nil {
				t.Errorf("%s refers to %s, which does not exist", page, other)
			}
		}
	}
	for _, linter := range [][]string{
		{"mandoc", "-T", "lint", "-W", "all"}, {"groff", "-man", "-ww", "-Tutf8", "-z"}, {"man", "--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l"},
	} {
		t.Run(linter[0], func(t *testing.T) {
			program(t, linter[0])
			for _, page := range pages {
				cmd := exec.CommandContext(t.Context(), linter[0], append(linter[1:], page)...)
				var said bytes.Buffer
				cmd.Stderr = &said
				out, err := cmd.Output()
				if linter[0] == "man" {
					out = nil // the formatted page
				}
				if err != nil || len(out)+said.Len() > 0 {
					t.Errorf("%s: %v\n%s%s", page, err, out, &said)
				}
			}
		})
	}
}

// checkCompletions makes each shell parse its scripts.
func checkCompletions(t *testing.T, share string) {
	for _, tt := range []struct{ shell, file string }{
		{"bash", "bash-completion/completions/"}, {"zsh", "zsh/site-functions/_"}, {"fish", "fish/vendor_completions.d/"},
	} {
		t.Run(tt.shell, func(t *testing.T) {
			program(t, tt.shell)
			for _, name := range programs {
				if tt.shell == "fish" {
					name += ".fish"
				}
				output(t, "", tt.shell, "-n", filepath.Join(share, tt.file+name))
			}
		})
	}
}

// checkBOM checks the list against the rules of CycloneDX 1.5, and against the modules that the go command
// finds in the programs.
func checkBOM(t *testing.T, name, bin string) {
	var b bom
	dec := json.NewDecoder(strings.NewReader(read(t, filepath.Dir(name), filepath.Base(name))))
	dec.DisallowUnknownFields()
	testkit.Must(t, dec.Decode(&b))
	if b.Format != "CycloneDX" || b.SpecVersion != "1.5" || b.Version != 1 || b.Metadata.Timestamp != "2026-09-21T14:13:20Z" ||
		!regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`).MatchString(b.Serial) {
		t.Errorf("the header of the list is %q %q %d %q %q", b.Format, b.SpecVersion, b.Version, b.Metadata.Timestamp, b.Serial)
	}
	refs := map[string]bool{}
	for _, c := range slices.Concat(b.Components, []bomComponent{b.Metadata.Component}, b.Metadata.Component.Components) {
		if c.Type != "library" && c.Type != "application" || c.Name == "" || c.Version == "" || c.Ref == "" || refs[c.Ref] {
			t.Errorf("a component lacks its type, name, version or a unique reference: %+v", c)
		}
		refs[c.Ref] = true
		if c.Type == "library" && (!regexp.MustCompile(`^pkg:golang/[a-z0-9./_-]+@[A-Za-z0-9.%_-]+$`).MatchString(c.PURL) || len(c.Licences) != 1) {
			t.Errorf("%s has the package URL %q and the licences %v", c.Ref, c.PURL, c.Licences)
		}
	}
	needs := map[string][]string{}
	for _, d := range b.Dependencies {
		if _, twice := needs[d.Ref]; twice || !refs[d.Ref] {
			t.Errorf("%s is not a component, or its dependencies are listed twice", d.Ref)
		}
		for _, on := range d.DependsOn {
			if !refs[on] {
				t.Errorf("%s depends on %s, which is not a component", d.Ref, on)
			}
		}
		needs[d.Ref] = d.DependsOn
	}
	linked := []string{"std"}
	for _, name := range programs {
		mods := append([]string{"std"}, linkedModules(t, filepath.Join(bin, name))...)
		if got := needs[programRef(name)]; !slices.Equal(got, mods) {
			t.Errorf("%s: the dependencies in the list are %q, but go version -m prints %q", name, got, mods)
		}
		linked = append(linked, mods...)
	}
	var listed []string
	for _, c := range b.Components {
		listed = append(listed, c.Ref)
	}
	slices.Sort(listed)
	slices.Sort(linked)
	if linked = slices.Compact(linked); !slices.Equal(listed, linked) {
		t.Errorf("the listed components are %q, the linked ones %q", listed, linked)
	}
	for _, c := range b.Metadata.Component.Components {
		if sum, err := sumFile(filepath.Join(bin, c.Name)); err != nil || len(c.Hashes) != 1 || c.Hashes[0].Content != sum {
			t.Errorf("%s has the hash %v, want %s, %v", c.Name, c.Hashes, sum, err)
		}
	}
}

func linkedModules(t *testing.T, exe string) (mods []string) {
	t.Helper()
	for line := range strings.Lines(output(t, "", "go", "version", "-m", exe)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "dep" {
			mods = append(mods, f[1]+"@"+f[2])
		}
	}
	if len(mods) == 0 {
		t.Fatalf("go version -m prints no modules of %s", exe)
	}
	return mods
}

func checkDeb(t *testing.T, name string) {
	program(t, "dpkg-deb")
	dir := unpackDeb(t, name)
	checkPrograms(t, filepath.Join(dir, "usr/bin"), "holdfast", "supervisor")
	checkPrograms(t, filepath.Join(dir, "usr/libexec/holdfast"), "proxy", "supervisor")
	for field, want := range map[string]string{
		"Package": "holdfast", "Version": "9.8.7~rc.1-1", "Architecture": runtime.GOARCH, "Conflicts": "", "Depends": "",
	} {
		if got := strings.TrimSpace(output(t, "", "dpkg-deb", "-f", name, field)); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	control := t.TempDir()
	output(t, "", "dpkg-deb", "-e", name, control)
	if files, err := os.ReadDir(control); err != nil || len(files) != 4 { // control, md5sums, postinst and prerm
		t.Errorf("the control archive of the package contains %v, %v", files, err)
	}
	output(t, dir, "md5sum", "--check", "--strict", filepath.Join(control, "md5sums"))
	for _, f := range []string{
		"usr/lib/systemd/user/holdfast.service", "usr/share/doc/holdfast/copyright", "usr/share/doc/holdfast/changelog.Debian.gz",
		"usr/share/man/man1/holdfast.1.gz", "usr/share/man/man1/supervisor.1holdfast.gz", "usr/share/bash-completion/completions/holdfast",
	} {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			t.Error(err)
		}
		if strings.HasSuffix(f, ".gz") {
			output(t, dir, "gzip", "--test", f)
		}
	}
	if wants, _ := filepath.Glob(filepath.Join(dir, "*/systemd/user/*.wants")); wants != nil {
		t.Errorf("the package enables the unit: %q", wants)
	}
	t.Run("unit", func(t *testing.T) { checkUnit(t, dir) })
	t.Run("lintian", func(t *testing.T) {
		if os.Getenv("HOLDFAST_LONG") != "1" {
			t.Skip("lintian needs 15 s of CPU; set HOLDFAST_LONG=1")
		}
		program(t, "lintian")
		cmd := exec.CommandContext(t.Context(), "lintian", "--fail-on", "error,warning", "--allow-root", name)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

func unpackDeb(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	output(t, "", "dpkg-deb", "-x", name, dir)
	return dir
}

// checkUpgrade installs the package, starts a shell, installs a newer package over it, and purges it. The
// shell must continue, and after a handoff the proxy must be the newer one.
func checkUpgrade(t *testing.T, old, newRelease string) {
	program(t, "dpkg")
	if os.Getuid() != 0 {
		t.Skip("only root can install a package")
	}
	next := filepath.Join(newRelease, "holdfast_9.8.7-1_"+runtime.GOARCH+".deb")
	root, dir := t.TempDir(), testkit.Dir(t)
	testkit.Must(t, errors.Join(os.MkdirAll(filepath.Join(root, "var/lib/dpkg/updates"), 0o755), os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644)))
	dpkg := func(args ...string) {
		output(t, "", "dpkg", append([]string{"--root", root, "--force-script-chrootless"}, args...)...)
	}
	t.Setenv("HOLDFAST_DIR", dir)
	proxy := func(args ...string) string { return output(t, "", filepath.Join(root, "usr/bin/proxy"), args...) }

	dpkg("--install", old)
	proxy("new", "--detach", "--id", "s", "--", "sh", "-c", `while read line; do echo "it was $line"; done`)
	bin := filepath.Join(unpackDeb(t, next), "usr/libexec/holdfast") // these programs exist whatever step fails
	t.Cleanup(func() {
		for _, stop := range [][]string{{"proxy", "stop"}, {"supervisor", "stop", "--sessions=end"}} {
			if out, err := exec.Command(filepath.Join(bin, stop[0]), stop[1:]...).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}
	})
	says := func(word string) {
		t.Helper()
		proxy("send", "s", "--enter", word)
		testkit.Eventually(t, 30*time.Second, func() bool { return strings.Contains(proxy("screen", "s"), "it was "+word) }, "the shell answers "+word)
	}
	says("installed")
	dpkg("--install", next)
	says("upgraded")
	if out := proxy("--handoff"); !strings.Contains(out, "took over") {
		t.Errorf("the handoff prints %q", out)
	}
	says("handed-off")
	if status := proxy("status"); !strings.Contains(status, newer+" ") && !strings.Contains(status, newer+"\n") || !strings.Contains(status, version) {
		t.Errorf("want a proxy %s and a supervisor %s:\n%s", newer, version, status)
	}
	other := filepath.Join(root, "usr/bin/proxy") // as if it belonged to another package
	testkit.Must(t, errors.Join(os.Remove(other), os.WriteFile(other, []byte("#!/bin/sh\necho other\n"), 0o755)))
	dpkg("--install", next)
	if got := output(t, "", other); got != "other\n" {
		t.Errorf("the program of another package prints %q", got)
	}
	if status := output(t, "", filepath.Join(root, "usr/bin/holdfast"), "status"); !strings.Contains(status, newer) {
		t.Errorf("holdfast status, beside a program proxy of another package, prints\n%s", status)
	}
	testkit.Must(t, os.Remove(other))
	dpkg("--purge", "holdfast")
	if _, err := os.Stat(filepath.Join(root, "usr/bin")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("/usr/bin still exists after the purge: %v", err)
	}
	dpkg("--install", next)
	says("installed-again")
}

// checkUnit checks that the unit is the one that proxy service install writes, and that systemd accepts it
// with the unpacked programs.
func checkUnit(t *testing.T, dir string) {
	text := strings.ReplaceAll(read(t, dir, "usr/lib/systemd/user/holdfast.service"), "/usr/libexec/", dir+"/usr/libexec/")
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "usr/bin/holdfast"), "service", "install", "--print")
	cmd.Env = []string{"HOME=" + t.TempDir()}
	written, err := cmd.Output()
	if mark, rest, _ := strings.Cut(string(written), "\n"); err != nil || !strings.HasPrefix(mark, "# Written by") || text != rest {
		t.Errorf("the unit is\n%s\nbut proxy service install, %v, writes\n%s", text, err, written)
	}
	program(t, "systemd-analyze")
	unit := filepath.Join(t.TempDir(), "holdfast.service")
	testkit.Must(t, os.WriteFile(unit, []byte(text), 0o644))
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	output(t, "", "systemd-analyze", "verify", "--man=no", "--user", unit)
}

// program skips the test if a program is missing.
func program(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed", name)
	}
}

func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, err := command(t.Context(), dir, nil, name, args...)
	testkit.Must(t, err)
	return string(out)
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	testkit.Must(t, err)
	return string(data)
}
