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

// hexWidth is how many bytes stand in a line of a hex golden file.
const hexWidth = 32

// Golden compares got with the file at path, or writes it with -update. What
// changes is reviewed like code.
func Golden(t testing.TB, path string, got []byte) {
	t.Helper()
	if *update {
		if err := writeFile(path, got); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (make it with: go test -run '%s' -update)", err, t.Name())
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs, %s", path, firstDifference(string(got), string(want)))
	}
}

// GoldenHex is Golden for bytes that are no text; the file has them in hex.
func GoldenHex(t testing.TB, path string, got []byte) {
	t.Helper()
	Golden(t, path, toHex(got))
}

// GoldenJSON is Golden for a value as indented JSON.
func GoldenJSON(t testing.TB, path string, got any) {
	t.Helper()
	data, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	Golden(t, path, append(data, '\n'))
}

// ReadHex returns the bytes of a hex golden file, for a test that reads what
// an older version wrote. White space does not count.
func ReadHex(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
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

// firstDifference names the first line that is another one.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := 0; ; i++ {
		switch {
		case i == len(g):
			return fmt.Sprintf("it ends at line %d, expected there:\n%s", i+1, w[i])
		case i == len(w):
			return fmt.Sprintf("it goes on at line %d:\n%s", i+1, g[i])
		case g[i] != w[i]:
			return fmt.Sprintf("line %d:\ngot  %s\nwant %s", i+1, g[i], w[i])
		}
	}
}
