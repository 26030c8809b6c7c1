//go:build linux || darwin

package pty

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultPath is searched if the child's environment has no PATH, as execvp(3) does.
const defaultPath = "/usr/bin:/bin"

// lookPath returns the path of spec's program. It searches as the child would: by the child's
// PATH, from the child's directory. The search must come before the fork, because a failed
// start does not tell whether the program or the directory is missing.
func lookPath(spec Spec) (string, error) {
	if len(spec.Argv) == 0 || spec.Argv[0] == "" {
		return "", fmt.Errorf("pty: argv is empty or begins with an empty string: %w", unix.EINVAL)
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
		// "Permission denied" for one candidate is more useful to the caller than "not found" for
		// a later one.
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
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		err = failed.Err // without the directory, which the message names already
	}
	if err != nil {
		return fmt.Errorf("directory %s: %w", dir, err)
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
		// An empty element of PATH means the current directory.
		found = append(found, inDir(spec.Dir, filepath.Join(dir, name)))
	}
	return found
}

// inDir returns path as an absolute path within dir. If the working directory is unknown, it
// returns a path with a slash, so that no later step searches PATH again.
func inDir(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	if abs, err := filepath.Abs(filepath.Join(dir, path)); err == nil {
		return abs
	}
	return "./" + path
}

// childPath returns the PATH that getenv(3) will give to the child: the first one in env.
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
