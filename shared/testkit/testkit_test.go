package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestMain(m *testing.M) { os.Exit(Run(m)) }

// A fakeT records failures instead of failing.
type fakeT struct {
	testing.TB
	said     string
	cleanups []func()
}

func (f *fakeT) Helper()                   {}
func (f *fakeT) Cleanup(c func())          { f.cleanups = append(f.cleanups, c) }
func (f *fakeT) Errorf(s string, a ...any) { f.said += fmt.Sprintf(s, a...) }
func (f *fakeT) Fatalf(s string, a ...any) { f.Errorf(s, a...) }

func has(t *testing.T, got, want, of string) {
	t.Helper()
	if !strings.Contains(got, want) {
		t.Errorf("%s: got %q, want it to contain %q", of, got, want)
	}
}

func TestGolden(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "testdata")
	bin, text := filepath.Join(dir, "b.hex"), filepath.Join(dir, "j.json")
	data := []byte(strings.Repeat("\x00\xff", 40))
	*update = true
	GoldenHex(t, bin, data)
	GoldenJSON(t, text, map[string]int{"a": 1})
	*update = false
	GoldenHex(t, bin, data)
	GoldenJSON(t, text, map[string]int{"a": 1})
	if got := ReadHex(t, bin); string(got) != string(data) {
		t.Errorf("read back %x", got)
	}
	if lines, _ := os.ReadFile(bin); strings.Count(string(lines), "\n") != 3 {
		t.Errorf("80 bytes are not written in lines of 32:\n%s", lines)
	}

	data[40] = 1
	fake := &fakeT{TB: t}
	GoldenHex(fake, bin, data)
	has(t, fake.said, "line 2:\ngot  00ff00ff00ff00ff01", "one byte differs")
	fake = &fakeT{TB: t}
	GoldenHex(fake, bin, append(data[:40], 0))
	has(t, fake.said, "differs", "it is shorter")
	fake = &fakeT{TB: t}
	GoldenJSON(fake, text, map[string]int{"a": 1, "b": 2})
	has(t, fake.said, `got    "a": 1,`, "one line more")
}

func TestCheckLeaks(t *testing.T) {
	// CheckLeaks reports a leak only after leakLimit, so the test calls leaked directly.
	before := openResources()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { defer close(stopped); <-stop }()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	left := fmt.Sprint(leaked(before, openResources()))
	has(t, left, "TestCheckLeaks.func", "a goroutine")
	if _, err := os.Stat("/proc/self/fd"); err == nil {
		has(t, left, "→ /dev/null", "a descriptor")
	}

	// A goroutine that ends a little later must not be reported.
	fake := &fakeT{TB: t}
	CheckLeaks(fake)
	late := make(chan struct{})
	go func() { time.AfterFunc(20*time.Millisecond, func() { close(late) }); <-late }()
	close(stop)
	<-stopped
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if fake.cleanups[0](); fake.said != "" {
		t.Error(fake.said)
	}
}

func TestEventually(t *testing.T) {
	n := 0
	Eventually(t, time.Minute, func() bool { n++; return n == 3 }, "counts to three")
	fake := &fakeT{TB: t}
	Eventually(fake, time.Millisecond, func() bool { return false }, "never")
	has(t, fake.said, "never", "the limit")
}

func TestDir(t *testing.T) {
	var dir string
	t.Run("it is there", func(t *testing.T) {
		dir = Dir(t)
		fi, err := os.Stat(dir)
		if err != nil || fi.Mode() != os.ModeDir|0o700 || len(dir) > 24 {
			t.Errorf("%s: %v, %v", dir, fi.Mode(), err)
		}
	})
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory exists after the test")
	}
}

// helloProgram is the package of a program that prints its version.
const helloProgram = "holdfast/shared/testkit/testdata/hello"

// TestBuildShared checks that all builders of the same HOLDFAST_BUILDS get one program, whichever comes
// first, and that none of them removes it.
func TestBuildShared(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(buildsEnv, dir)
	var wg sync.WaitGroup
	var dirs [3]string
	for i := range dirs {
		wg.Go(func() {
			var b builder
			defer b.remove()
			var err error
			if dirs[i], err = b.build(nil, []string{helloProgram}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if dirs[0] != dirs[1] || dirs[0] != dirs[2] || filepath.Dir(dirs[0]) != dir {
		t.Errorf("the programs are in %q, want one directory in %s", dirs, dir)
	}
	if out, err := exec.Command(filepath.Join(dirs[0], "hello")).CombinedOutput(); err != nil {
		t.Errorf("the program prints %q, %v", out, err)
	}
	if _, err := new(builder).build(nil, []string{"holdfast/shared/none"}); err == nil || !strings.Contains(err.Error(), "holdfast/shared/none") {
		t.Errorf("a package that does not exist: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "unfinished-*")); len(left) > 0 {
		t.Errorf("unfinished builds are left: %v", left)
	}
}

func TestBuild(t *testing.T) {
	t.Setenv(buildsEnv, "")
	const pkg = helloProgram
	dir := BuildVersion(t, "v1.2.3", pkg)
	out, err := exec.Command(filepath.Join(dir, "hello")).CombinedOutput()
	if err != nil || string(out) != "hello from v1.2.3\n" {
		t.Errorf("the program prints %q, %v", out, err)
	}
	if again := BuildVersion(t, "v1.2.3", pkg); again != dir {
		t.Error("the same version was built twice")
	}
	if other := Build(t, pkg); other == dir {
		t.Error("another version has the same directory")
	}
	if _, err := built.build(nil, []string{"holdfast/shared/none"}); err == nil || !strings.Contains(err.Error(), "holdfast/shared/none") {
		t.Errorf("build of a package that does not exist: %v", err)
	}
	root := built.root
	built.remove()
	if _, err := os.Stat(root); err == nil {
		t.Error("the builds exist after remove")
	}
}
