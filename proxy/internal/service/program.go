package service

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/protocol"
)

// Program returns the path by which a unit should run this program, from how it
// was called and where it lies. Links are kept as they are: a package manager
// has them lead to its newest version, whose own path is gone with the next.
func Program(called, exe string) (string, error) {
	path := called
	if !strings.ContainsRune(path, filepath.Separator) {
		if found, err := exec.LookPath(path); err == nil {
			path = found
		}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("where this program lies: %w", err)
	}
	if !same(path, exe) { // a caller may call us anything
		path = exe
	}
	for _, p := range []string{path, exe} {
		if temporary(p) {
			return "", protocol.Errorf(protocol.CodeInvalidArgument,
				fmt.Sprintf("%s is what \"go run\" has built, which goes away; install the programs (go install ./proxy ./supervisor) and run the installed proxy", p))
		}
	}
	return path, nil
}

func same(a, b string) bool {
	fa, err := os.Stat(a)
	if err != nil {
		return false
	}
	fb, err := os.Stat(b)
	return err == nil && os.SameFile(fa, fb)
}

// temporary reports whether a path is one of the go command's own, of its
// temporary directory or its cache.
func temporary(path string) bool {
	return slices.ContainsFunc(strings.Split(filepath.ToSlash(path), "/"), func(dir string) bool {
		return strings.HasPrefix(dir, "go-build")
	})
}
