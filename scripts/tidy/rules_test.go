// Package tidy holds the code to ARCHITECTURE.md: who may import whom, where
// an outside module may be used, and that each package says what it is.
//
// Invariant: the document is the only copy of the rules. What it says is read
// from its two tables, so that it cannot be out of date.
//
// Not here: what gofmt, vet and staticcheck see.
package tidy

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// rules are what ARCHITECTURE.md says. A pattern is a package's path in the
// module, or with "/..." behind it that package and all below it.
type rules struct {
	layers map[string][]string // package pattern: what it may import of ours
	homes  map[string][]string // outside module: package patterns that may import it
}

// parse reads the two tables, which are known by the first cell of their head
// rows: "package" and "module". Names are in backquotes; other words in a cell
// are for people, but for a lone "nothing".
func parse(document string) (rules, error) {
	r := rules{map[string][]string{}, map[string][]string{}}
	var table map[string][]string
	var errs []error
	for i, line := range strings.Split(document, "\n") {
		cells := split(line)
		switch {
		case cells == nil: // a table ends where its rows do
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

// split returns a table row's cells, two at least, or nil for another line.
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

// row returns the row of a package: its own, else that of the nearest subtree.
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

// module returns the outside module that a package belongs to: the longest
// that is its beginning.
func module(modules []string, path string) string {
	best := ""
	for _, m := range modules {
		if matches(m+"/...", path) && len(m) > len(best) {
			best = m
		}
	}
	return best
}
