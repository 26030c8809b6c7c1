package service

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/shared/machine"
)

// ErrForeign means that "proxy service install" did not write a file.
var ErrForeign = errors.New("it was not written by proxy service install")

// read returns the text of a unit's file; exists is false if there is none. If another program
// has written the file, or if it is a link, the error is ErrForeign.
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

// write replaces the file in one step, so that a reader never sees half of it. The manager
// ignores the temporary file, because the file's name does not end as a unit's name.
func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil { // the mode that the XDG specification demands
		return err
	}
	return machine.ReplaceFile(path, strings.NewReader(text), 0o644)
}

// difference returns the removed lines, each with "- ", and the added lines, each with "+ ".
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
