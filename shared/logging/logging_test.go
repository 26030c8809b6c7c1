package logging

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

const crashEnv = "LOGGING_TEST_CRASH"

// TestMain crashes on purpose in a child of TestCrashOutput.
func TestMain(m *testing.M) {
	if path := os.Getenv(crashEnv); path != "" {
		if err := CrashOutput(path); err != nil {
			fmt.Println(err)
			os.Exit(0)
		}
		panic("crashed on purpose")
	}
	os.Exit(m.Run())
}

func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.log")
	log, closer, err := New(Options{Path: path, Process: "proxy", Level: "info"})
	testkit.Must(t, err)
	log.Debug().Msg("not at this level")
	narrow := log.With().Str(Session, "s1").Logger()
	narrow.Info().Uint64(Offset, 7).Dur(Took, 1500*time.Microsecond).Msg("resumed")
	testkit.Must(t, closer.Close())
	data, err := os.ReadFile(path)
	testkit.Must(t, err)
	var line map[string]any
	if err := json.Unmarshal(data, &line); err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	at, err := time.Parse(time.RFC3339, line["time"].(string))
	if err != nil || time.Since(at) > time.Minute {
		t.Errorf("time %v, %v", at, err)
	}
	delete(line, "time")
	want := map[string]any{"level": "info", "process": "proxy", "session": "s1", "offset": 7.0, "took_ms": 1.5, "message": "resumed"}
	if fmt.Sprint(line) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", line, want)
	}
}

func TestNewMistakes(t *testing.T) {
	if _, _, err := New(Options{Level: "loud"}); err == nil {
		t.Error("New accepts an unknown level")
	}
	if _, _, err := New(Options{Path: filepath.Join(t.TempDir(), "none", "p.log")}); err == nil {
		t.Error("New accepts a path in a missing directory")
	}
	log, closer, err := New(Options{Level: "error"})
	testkit.Must(t, err)
	log.Info().Msg("not at this level")
	if err := closer.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stderr.Stat(); err != nil {
		t.Error("Close has closed standard error")
	}
}

func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.log")
	testkit.Must(t, os.WriteFile(path, []byte("old\n"), 0o644))
	r, err := openRotated(path, 10, 2)
	testkit.Must(t, err)
	defer r.Close()
	for _, line := range []string{"12345\n", "a\n", "b\n", "longer than a whole file\n", "c\n", "d\n"} {
		if n, err := r.Write([]byte(line)); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	// "old
	// 12345
	// " is exactly full. "a
	// b
	// " was rotated because the long line did not fit.
	for name, want := range map[string]string{path: "c\nd\n", path + ".1": "longer than a whole file\n", path + ".2": "a\nb\n"} {
		data, _ := os.ReadFile(name)
		fi, err := os.Stat(name)
		if string(data) != want || err != nil || fi.Mode() != 0o600 {
			t.Errorf("%s: %q, mode %v, %v; want %q", name, data, fi.Mode(), err, want)
		}
	}
	if _, err := os.Stat(path + ".3"); err == nil {
		t.Error("one rotated file too many is kept")
	}
}

// If two processes write one file, and one has rotated it, the other must not rotate it again.
func TestRotationByTwo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.log")
	var two [2]*rotated
	for i := range two {
		r, err := openRotated(path, 8, 3)
		testkit.Must(t, err)
		defer r.Close()
		two[i] = r
	}
	for _, w := range []struct {
		who  int
		line string
	}{{0, "0-1\n"}, {1, "1-1\n"}, {0, "0-2\n"}, {0, "0-3\n"}, {1, "1-2\n"}, {1, "1-3\n"}} {
		if _, err := two[w.who].Write([]byte(w.line)); err != nil {
			t.Fatal(err)
		}
	}
	all := ""
	for i := 3; i >= 0; i-- {
		data, err := os.ReadFile(two[0].name(i))
		if err == nil {
			all += string(data)
		}
	}
	for _, line := range []string{"0-1", "0-2", "0-3", "1-1", "1-2", "1-3"} {
		if strings.Count(all, line) != 1 {
			t.Errorf("%s is %d times in\n%s", line, strings.Count(all, line), all)
		}
	}
	if !two[1].isCurrent() {
		t.Error("one process still writes to a rotated file")
	}
}

// A process that writes rarely follows the renaming of the file by another one.
func TestRotationByAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	r, err := openRotated(path, 1000, 1)
	testkit.Must(t, err)
	defer r.Close()
	for _, line := range []string{"first\n", "second\n"} {
		if _, err := r.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != line {
			t.Errorf("the file has %q, %v, want %q", got, err, line)
		}
		testkit.Must(t, os.Rename(path, path+".1"))
		r.asked = r.asked.Add(-askEvery) // the next line comes later
	}
}

// If the file cannot be rotated, no line may be lost.
func TestRotationFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.log")
	testkit.Must(t, os.MkdirAll(filepath.Join(path+".1", "in the way"), 0o700))
	r, err := openRotated(path, 4, 1)
	testkit.Must(t, err)
	defer r.Close()
	for i, line := range []string{"abc\n", "def\n"} {
		if n, err := r.Write([]byte(line)); n != 4 || (err != nil) != (i == 1) {
			t.Errorf("%q: %d, %v", line, n, err)
		}
	}
	if data, _ := os.ReadFile(path); string(data) != "abc\ndef\n" {
		t.Errorf("got %q", data)
	}
}

func TestConcurrentWrites(t *testing.T) {
	const writers, lines = 8, maxLines / 8 // so that all lines have room while a pause of the machine lasts
	path := filepath.Join(t.TempDir(), "p.log")
	log, closer, err := New(Options{Path: path, MaxBytes: 8 << 10, Keep: 100})
	testkit.Must(t, err)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range lines {
				log.Info().Int("conn", w).Int(Count, i).Msg("line")
			}
		})
	}
	wg.Wait()
	testkit.Must(t, closer.Close())
	var files []string
	testkit.Eventually(t, 10*time.Second, func() bool { // Close does not wait for a line for longer than lineTime
		files, err = filepath.Glob(path + "*")
		count := 0
		for _, name := range files {
			data, _ := os.ReadFile(name) // an error is found below
			count += bytes.Count(data, []byte("\n"))
		}
		return count == writers*lines
	}, "all lines are written")
	seen := map[[2]int]bool{}
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil || len(data) > 8<<10 {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
		for sc := bufio.NewScanner(bytes.NewReader(data)); sc.Scan(); {
			var line struct{ Conn, Count int }
			if err := json.Unmarshal(sc.Bytes(), &line); err != nil {
				t.Fatalf("%q: %v", sc.Text(), err)
			}
			seen[[2]int{line.Conn, line.Count}] = true
		}
	}
	if len(seen) != writers*lines {
		t.Errorf("%d lines of %d", len(seen), writers*lines)
	}
}

func TestCrashOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "crash")
	for range 2 { // the second crash is appended to the first
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashEnv+"="+path)
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Fatalf("the child did not crash: %s", out)
		}
	}
	data, _ := os.ReadFile(path)
	fi, err := os.Stat(path)
	if n := strings.Count(string(data), "crashed on purpose"); n != 2 || err != nil || fi.Mode() != fs.FileMode(0o600) {
		t.Errorf("%d crashes, mode %v, %v:\n%s", n, fi.Mode(), err, data)
	}

	testkit.Must(t, os.Truncate(path, maxCrash+1))
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+path)
	_ = cmd.Run() // crashes
	if fi, err := os.Stat(path); err != nil || fi.Size() > 1<<20 {
		t.Errorf("a full crash file was not rotated: %v, %v", fi.Size(), err)
	}
}
