// Package page contains the built files of the web page.
//
// scripts/web builds them from the sources in this directory and writes them to dist, which is
// not in the repository. If a program is built without dist, it serves no page and says how to
// build it.
//
// Not here: the clients that may load the files (package web).
package page

import (
	"embed"
	"io/fs"
)

// The pattern dist* also matches this file, because a pattern without a match does not compile
// if dist is missing.
//
//go:embed all:dist*
var files embed.FS

// Files returns the page's files, including index.html, or nil if the page was not built.
func Files() fs.FS {
	built, err := fs.Sub(files, "dist")
	if err != nil {
		return nil
	}
	if _, err := fs.Stat(built, "index.html"); err != nil {
		return nil
	}
	return built
}
