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

// Program returns the path by which a unit should run this program. called is the name by which
// the program was called, exe is the path of its file. Links are not resolved, because a package
// manager lets a link lead to the newest version and removes the files of older versions.
func Program(called, exe string) (string, error) {
	path := called
	if !strings.ContainsRune(path, filepath.Separator) {
		if found, err := exec.LookPath(path); err == nil {
			path = found
		}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find the path of this program: %w", err)
	}
	if !isSameFile(path, exe) { // a caller may choose any name
		path = exe
	}
	for _, p := range []string{path, exe} {
		if isTemporary(p) {
			return "", protocol.Errorf(protocol.CodeInvalidArgument,
				"%s is what \"go run\" has built, which goes away; install the programs (go install ./proxy ./supervisor) and run the installed proxy", p)
		}
	}
	return path, nil
}

func isSameFile(a, b string) bool {
	fa, err := os.Stat(a)
	if err != nil {
		return false
	}
	fb, err := os.Stat(b)
	return err == nil && os.SameFile(fa, fb)
}

// isTemporary reports whether a path belongs to the temporary directory or the cache of the go
// command.
func isTemporary(path string) bool {
	return slices.ContainsFunc(strings.Split(filepath.ToSlash(path), "/"), func(dir string) bool {
		return strings.HasPrefix(dir, "go-build")
	})
}
