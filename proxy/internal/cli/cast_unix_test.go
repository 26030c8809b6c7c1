//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// A recording must not be changed by another recorder while the first one writes it.
func TestOpenCastTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.cast")
	w, _, done, err := openCast(path, nil, false, false)
	testkit.Must(t, err)
	for _, text := range []string{"", "{\"version\": 2}\n"} {
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		for _, flags := range [][2]bool{{false, false}, {true, false}, {false, true}} {
			if _, _, _, err := openCast(path, nil, flags[0], flags[1]); err == nil || !strings.Contains(err.Error(), "another recorder") {
				t.Errorf("overwrite %v, append %v: %v", flags[0], flags[1], err)
			}
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != text {
			t.Errorf("the file has %q, %v, want %q", now, err, text)
		}
	}
	testkit.Must(t, done())
	if _, _, done, err = openCast(path, nil, false, true); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, done())
}
