// Package page has the files of the web page, as they were built.
//
// scripts/web makes them of the sources beside this file into dist, which is not in
// the repository. A program that was built without them serves no page,
// and says how to make it.
//
// Not here: who is given them (package web).
package page

import (
	"embed"
	"io/fs"
)

// The pattern names this file, too: it is there where dist is not, and a pattern
// that matches nothing would not compile.
//
//go:embed all:dist*
var files embed.FS

// Files returns the page's files, index.html among them; nil where it was not
// built.
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
