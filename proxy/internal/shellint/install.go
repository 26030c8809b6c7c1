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

// files are what is written, and what of.
var files = []struct{ path, script string }{
	{"bash", "bash"},
	{"bash-rc", "bash-rc"},
	{"bash-login", "bash-login"},
	{"fish", "fish"},
	{"zsh/.zshenv", "zshenv"},
	{"zsh/integration", "zsh"},
}

const dirPrefix = "shell-"

// install returns the directory of the scripts, having written those that are missing
// or differ. It is named by their content: an upgrade writes beside what shells that are
// about to start, and sessions that are started again, look for. A shell that runs reads
// none of it any more.
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

// write makes a file of that content, whole at any moment.
func write(path string, content []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*") // of mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // which is gone when all went well
	_, err = f.Write(content)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}
