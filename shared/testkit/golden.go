package testkit

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write golden files instead of comparing with them")

// WritesGolden reports whether the flag -update is set. Tests whose golden files Golden cannot write
// write them then.
func WritesGolden() bool { return *update }

// hexWidth is the number of bytes in a line of a hex golden file.
const hexWidth = 32

// Golden compares got with the file at path. With the flag -update it writes the file instead.
// A change of a golden file must be reviewed like code.
func Golden(t testing.TB, path string, got []byte) {
	t.Helper()
	if *update {
		Must(t, writeFile(path, got))
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (to write the file, run: go test -run '%s' -update)", err, t.Name())
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs, %s", path, firstDifference(string(got), string(want)))
	}
}

// GoldenHex compares bytes that are not text with a golden file that contains them in hex.
func GoldenHex(t testing.TB, path string, got []byte) {
	t.Helper()
	Golden(t, path, toHex(got))
}

// GoldenJSON compares a value with a golden file that contains it as indented JSON.
func GoldenJSON(t testing.TB, path string, got any) {
	t.Helper()
	data, err := json.MarshalIndent(got, "", "  ")
	Must(t, err)
	Golden(t, path, append(data, '\n'))
}

// ReadHex returns the bytes of a hex golden file. It ignores white space. Tests use it to read
// data that an older version has written.
func ReadHex(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	Must(t, err)
	data, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return data
}

func toHex(data []byte) []byte {
	var out bytes.Buffer
	for len(data) > 0 {
		n := min(hexWidth, len(data))
		fmt.Fprintf(&out, "%x\n", data[:n])
		data = data[n:]
	}
	return out.Bytes()
}

func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// firstDifference describes the first line in which got differs from want.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := 0; ; i++ {
		switch {
		case i == len(g):
			return fmt.Sprintf("it ends at line %d, but expected there was:\n%s", i+1, w[i])
		case i == len(w):
			return fmt.Sprintf("it continues at line %d:\n%s", i+1, g[i])
		case g[i] != w[i]:
			return fmt.Sprintf("line %d:\ngot  %s\nwant %s", i+1, g[i], w[i])
		}
	}
}
