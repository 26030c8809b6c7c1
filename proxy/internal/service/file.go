package service

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrForeign is a file that we did not write.
var ErrForeign = errors.New("it was not written by proxy service install")

// read returns a unit's file, and nothing where there is none. One of somebody
// else's is ErrForeign; a link is, too, even if it leads to one of ours.
func read(path string) (text string, exists bool, err error) {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	if !fi.Mode().IsRegular() {
		return "", true, fmt.Errorf("%s: %w", path, ErrForeign)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", true, err
	}
	if !strings.Contains(string(b), mark) {
		err = fmt.Errorf("%s: %w", path, ErrForeign)
	}
	return string(b), true, err
}

// write replaces the file at once, so that nobody reads half of it. The manager
// does not take the temporary file for a unit: its name does not end as one.
func write(path, text string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil { // as the XDG specification wants it
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already if all went well
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// difference returns the lines that are gone and those that are new.
func difference(old, now string) (lines []string) {
	was, is := strings.Split(old, "\n"), strings.Split(now, "\n")
	for _, l := range was {
		if l != "" && !slices.Contains(is, l) {
			lines = append(lines, "- "+l)
		}
	}
	for _, l := range is {
		if l != "" && !slices.Contains(was, l) {
			lines = append(lines, "+ "+l)
		}
	}
	return lines
}
