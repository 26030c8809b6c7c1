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

// pageDir is the directory of the web page.
var pageDir = filepath.Join("proxy", "internal", "web", "page")

// page builds the web page, which the programs embed. A release must have it. A snapshot omits it if
// the tools that build it are not installed.
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

// pageNotices adds the licences of the modules in the page; the build of the page lists them.
func (r *release) pageNotices(out *bytes.Buffer) error {
	text, err := os.ReadFile(filepath.Join(r.root, pageDir, "dist", "licenses.md"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the page was not built
	}
	fmt.Fprintf(out, "\nThe web page\n============\n\n%s", text)
	return err
}
