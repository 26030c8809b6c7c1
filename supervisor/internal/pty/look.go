//go:build linux || darwin

package pty

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultPath is searched where the child's environment has no PATH, as by
// execvp(3).
const defaultPath = "/usr/bin:/bin"

// lookPath finds the program the way the child itself would: by its PATH, from
// its directory. Looking it up here, before the fork, tells a missing program
// from a missing directory, which a failed start cannot.
func lookPath(spec Spec) (string, error) {
	if len(spec.Argv) == 0 || spec.Argv[0] == "" {
		return "", fmt.Errorf("pty: no program given: %w", unix.EINVAL)
	}
	if err := checkDir(spec.Dir); err != nil {
		return "", err
	}
	name, failed := spec.Argv[0], error(unix.ENOENT)
	for _, path := range candidates(spec) {
		err := executable(path)
		if err == nil {
			return path, nil
		}
		// Found but not allowed says more than not found further on.
		if errors.Is(err, unix.EACCES) {
			failed = err
		}
	}
	return "", fmt.Errorf("program %q: %w", name, failed)
}

func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = unix.ENOTDIR
	}
	if err == nil {
		err = unix.Faccessat(unix.AT_FDCWD, dir, unix.X_OK, unix.AT_EACCESS)
	}
	if err != nil {
		return fmt.Errorf("pty: directory %s: %w", dir, err)
	}
	return nil
}

func candidates(spec Spec) []string {
	name := spec.Argv[0]
	if strings.Contains(name, "/") {
		return []string{inDir(spec.Dir, name)}
	}
	var found []string
	for _, dir := range filepath.SplitList(childPath(spec.Env)) {
		// An empty element is the current directory.
		found = append(found, inDir(spec.Dir, filepath.Join(dir, name)))
	}
	return found
}

// inDir makes path absolute or, where dir is ours, at least contain a slash, so
// that nothing below searches for it again.
func inDir(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	if abs, err := filepath.Abs(filepath.Join(dir, path)); err == nil {
		return abs
	}
	return "./" + path
}

// childPath is what getenv(3) will give the child: the first of several.
func childPath(env []string) string {
	for _, kv := range env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			return path
		}
	}
	return defaultPath
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return unix.EACCES
	}
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
}
