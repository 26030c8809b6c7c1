package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// pageDir is where the web page is.
var pageDir = filepath.Join("proxy", "internal", "web", "page")

// page makes the web page, which the programs are then built with. A release has to
// have it; a snapshot does without where what builds it is not installed.
func (r *release) page(ctx context.Context) error {
	if r.snapshot {
		_, err := os.Stat(filepath.Join(r.root, pageDir, "node_modules", "vite"))
		if errors.Is(err, fs.ErrNotExist) {
			fmt.Println("without the web page, which scripts/web builds")
			return nil
		}
	}
	_, err := command(ctx, r.root, nil, "bash", filepath.Join("scripts", "web"))
	return err
}

// pageNotices adds the licences of what is in the page, as its build tells them.
func (r *release) pageNotices(out *bytes.Buffer) error {
	text, err := os.ReadFile(filepath.Join(r.root, pageDir, "dist", "licenses.md"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nor is the page there
	}
	fmt.Fprintf(out, "\nThe web page\n============\n\n%s", text)
	return err
}
