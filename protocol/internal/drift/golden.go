package drift

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"holdfast/protocol"
)

var update = flag.Bool("update", false, "rewrite schemas and golden files")

// Golden compares got with the file at path. With the flag -update it writes the file first.
func Golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	g, w := bytes.Split(got, []byte("\n")), bytes.Split(want, []byte("\n"))
	i := 0
	for i < min(len(g), len(w))-1 && bytes.Equal(g[i], w[i]) {
		i++
	}
	t.Fatalf("%s:%d: got %s, want %s; if the change is intended, run the test with -update", path, i+1, g[i], w[i])
}

// CheckWire compares a registry with schema.json and with the golden messages in the current
// directory. protocolDir is the directory of package protocol.
func CheckWire(t *testing.T, name string, reg *protocol.Registry, protocolDir string) {
	consts, err := Constants(protocolDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("schema", func(t *testing.T) {
		comments, err := Comments(protocolDir)
		if err != nil {
			t.Fatal(err)
		}
		own, err := Comments(".")
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(comments, own)
		schema, err := Schema(Describe(name, reg), consts, comments)
		if err != nil {
			t.Fatal(err)
		}
		Golden(t, "schema.json", schema)
	})
	t.Run("golden", func(t *testing.T) {
		var all []byte
		for _, typ := range reg.Types() {
			b, err := protocol.Encode(Example(reg, typ, consts))
			if err != nil {
				t.Fatal(err)
			}
			all = append(append(all, b...), '\n')
		}
		Golden(t, fmt.Sprintf("testdata/messages-v%d.jsonl", protocol.Version), all)
	})
	t.Run("decode", func(t *testing.T) {
		for v := protocol.VersionMin; v <= protocol.Version; v++ {
			for _, line := range GoldenMessages(t, ".", v) {
				m, env, err := reg.Decode(line)
				if err != nil {
					t.Errorf("version %d: %v: %.60s", v, err, line)
					continue
				}
				if want := Example(reg, env.Type, consts); v == protocol.Version && !reflect.DeepEqual(m, want) {
					t.Errorf("%s: got %+v, want %+v", env.Type, m, want)
				}
			}
		}
	})
}

// GoldenMessages returns the golden messages of a version from the testdata of the wire's package in
// dir. Each line of the file is one message.
func GoldenMessages(t testing.TB, dir string, version int) [][]byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("testdata/messages-v%d.jsonl", version)))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSpace(b), []byte("\n"))
}
