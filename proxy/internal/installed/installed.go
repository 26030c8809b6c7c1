// Package installed finds the programs of the release to which the calling program belongs.
//
// The programs are in one directory, or holdfast is in bin and the others are in libexec/holdfast beside
// bin, as packages install them. There they are found first, because a program of another package may be
// named proxy and be in bin.
//
// Invariant: a program that is found on the PATH is never taken for the proxy.
//
// Not here: the start of a program (package daemon).
package installed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Proxy returns the path of the program proxy of this release.
func Proxy() (string, error) {
	path, err := find("proxy")
	if err == nil && path == "" {
		err = errors.New("the program proxy is neither beside this program nor in ../libexec/holdfast; install the whole release")
	}
	return path, err
}

// Supervisor returns the path of the supervisor's program: $HOLDFAST_SUPERVISOR, or that of this release, or
// the one on the PATH.
func Supervisor() (string, error) {
	if p := os.Getenv("HOLDFAST_SUPERVISOR"); p != "" {
		return p, nil
	}
	if path, err := find("supervisor"); err == nil && path != "" {
		return path, nil
	}
	p, err := exec.LookPath("supervisor")
	if err != nil {
		return "", fmt.Errorf("the supervisor program is neither beside the proxy nor on the PATH; $HOLDFAST_SUPERVISOR may name it: %w", err)
	}
	return p, nil
}

// find returns the path of a program of this release, or "" if there is none.
func find(name string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	dirs := []string{filepath.Dir(exe)}
	if file, err := filepath.EvalSymlinks(exe); err == nil && filepath.Dir(file) != dirs[0] { // on macOS exe may be a link
		dirs = append(dirs, filepath.Dir(file))
	}
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	for _, dir := range dirs {
		for _, path := range []string{filepath.Join(dir, "..", "libexec", "holdfast", name), filepath.Join(dir, name)} {
			if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
				return path, nil
			}
		}
	}
	return "", nil
}

// Name returns the name by which the user has called this program: holdfast, or proxy.
func Name() string {
	if strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") == "holdfast" {
		return "holdfast"
	}
	return "proxy"
}
