package shellint

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed scripts
var scripts embed.FS

// files lists the files to write, and the embedded script of each.
var files = []struct{ path, script string }{
	{"bash", "bash"},
	{"bash-rc", "bash-rc"},
	{"bash-login", "bash-login"},
	{"fish", "fish"},
	{"zsh/.zshenv", "zshenv"},
	{"zsh/integration", "zsh"},
}

const dirPrefix = "shell-"

// install writes the scripts that are missing or differ, and returns their directory. The
// directory's name contains a checksum of the scripts, so that an upgrade does not change the
// files that a starting shell or a reopened session needs. A running shell does not read them any
// more.
func (s Scripts) install() (string, error) {
	sum := sha256.New()
	content := make([][]byte, len(files))
	for i, f := range files {
		var err error
		if content[i], err = scripts.ReadFile("scripts/" + f.script); err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n", f.path, len(content[i]))
		sum.Write(content[i])
	}
	dir := filepath.Join(s.Runtime, dirPrefix+hex.EncodeToString(sum.Sum(nil)[:4]))
	for i, f := range files {
		if err := write(filepath.Join(dir, filepath.FromSlash(f.path)), content[i]); err != nil {
			return "", fmt.Errorf("shell integration: %w", err)
		}
	}
	return dir, nil
}

// write replaces a file in one step, so that a shell never reads half of it.
func write(path string, content []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // fails if the rename has succeeded
	_, err = f.Write(content)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}
