// Package tidy checks the code against ARCHITECTURE.md: which package may import which, where an outside
// module may be used, and that each package has a comment.
//
// Invariant: the document contains the only copy of the rules. The tests read its two tables, so that the
// rules cannot be out of date.
//
// Not here: checks of gofmt, vet and staticcheck.
package tidy

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// rules are the rules of ARCHITECTURE.md. A pattern is the path of a package in the module; with "/..." after
// it, it covers the package and all packages below it.
type rules struct {
	layers map[string][]string // by package pattern: the packages of this module that it may import
	homes  map[string][]string // by outside module: the patterns of packages that may import it
}

// parse reads the two tables, which it recognises by the first cells of their head rows: "package" and
// "module". Names are in backquotes. Other words in a cell are comments, except for a lone "nothing".
func parse(document string) (rules, error) {
	r := rules{map[string][]string{}, map[string][]string{}}
	var table map[string][]string
	var errs []error
	for i, line := range strings.Split(document, "\n") {
		cells := split(line)
		switch {
		case cells == nil: // the table ends with its rows
			table = nil
		case cells[0] == "package":
			table = r.layers
		case cells[0] == "module":
			table = r.homes
		case table == nil || strings.HasPrefix(cells[0], "--"):
		default:
			if err := addRow(table, cells); err != nil {
				errs = append(errs, fmt.Errorf("line %d: %w", i+1, err))
			}
		}
	}
	if len(r.layers) == 0 || len(r.homes) == 0 {
		errs = append(errs, errors.New("it lacks the table of packages or that of modules"))
	}
	return r, errors.Join(errs...)
}

func addRow(table map[string][]string, cells []string) error {
	names, allowed := quoted(cells[0]), quoted(cells[1])
	if len(names) == 0 {
		return fmt.Errorf("%q names nothing in backquotes", cells[0])
	}
	if len(allowed) == 0 && !strings.HasPrefix(cells[1], "nothing") {
		return fmt.Errorf("%q names nothing in backquotes, and does not say \"nothing\"", cells[1])
	}
	for _, n := range names {
		if _, twice := table[n]; twice {
			return fmt.Errorf("a second row for %s", n)
		}
		table[n] = allowed
	}
	return nil
}

// split returns the cells of a table's row, at least two, or nil if the line is not a row.
func split(line string) []string {
	line, ok := strings.CutPrefix(strings.TrimSpace(line), "|")
	if !ok {
		return nil
	}
	cells := strings.Split(strings.TrimSuffix(line, "|"), "|")
	if len(cells) < 2 {
		return nil
	}
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

var backquoted = regexp.MustCompile("`([^`]+)`")

func quoted(cell string) (names []string) {
	for _, m := range backquoted.FindAllStringSubmatch(cell, -1) {
		names = append(names, m[1])
	}
	return names
}

// matches reports whether a pattern covers a path.
func matches(pattern, path string) bool {
	base, subtree := strings.CutSuffix(pattern, "/...")
	return path == base || subtree && strings.HasPrefix(path, base+"/")
}

func anyMatches(patterns []string, path string) bool {
	for _, p := range patterns {
		if matches(p, path) {
			return true
		}
	}
	return false
}

// row returns the row of a package, or the row of the nearest subtree that contains it.
func (r rules) row(path string) (allowed []string, ok bool) {
	best := -1
	for pattern, a := range r.layers {
		if pattern == path {
			return a, true
		}
		if matches(pattern, path) && len(pattern) > best {
			allowed, ok, best = a, true, len(pattern)
		}
	}
	return allowed, ok
}

// module returns the outside module of a package: the longest module path that is a prefix of the package's
// path.
func module(modules []string, path string) string {
	best := ""
	for _, m := range modules {
		if matches(m+"/...", path) && len(m) > len(best) {
			best = m
		}
	}
	return best
}
