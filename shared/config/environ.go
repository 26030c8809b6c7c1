package config

import (
	"fmt"
	"strings"
)

// prefix begins the name of every variable of ours.
const prefix = "HOLDFAST_"

// variables are those of ours that are no settings.
var variables = []string{"HOLDFAST_DIR", "HOLDFAST_SUPERVISOR", "HOLDFAST_TOKEN", "HOLDFAST_SESSION", "HOLDFAST_DELEGATED"}

// CheckEnviron returns an error for each variable in environ that can only be a
// mistyped setting: its name is not ours, but is one or two letters from a name that is.
//
// Any other name that begins with HOLDFAST_ is let be. Apps give their sessions variables
// such as HOLDFAST_TASK_ID, in which proxy commands have to work, and a newer release has
// settings that this one does not know. UnknownVariables lists them.
func CheckEnviron(environ []string) error {
	for _, name := range UnknownVariables(environ) {
		if like := nearest(name); like != "" {
			return fmt.Errorf("%w: there is no variable %s; did you mean %s?", ErrInvalid, name, like)
		}
	}
	return nil
}

// UnknownVariables returns the names in environ that begin with HOLDFAST_ and mean
// nothing to this release.
func UnknownVariables(environ []string) (names []string) {
	known := make(map[string]bool)
	for _, name := range ourVariables() {
		known[name] = true
	}
	for _, e := range environ {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, prefix) && !known[name] {
			names = append(names, name)
		}
	}
	return names
}

func ourVariables() []string {
	names := append([]string{}, variables...)
	for _, s := range settings {
		names = append(names, s.env())
	}
	return names
}

// nearest returns the variable of ours that a name was probably meant to be, or "". One
// letter may be wrong, missing, too many or swapped with the next; two in a name of more
// than six letters behind the prefix.
func nearest(name string) string {
	for _, ours := range ourVariables() {
		allowed := 1
		if len(ours)-len(prefix) > 6 {
			allowed = 2
		}
		if distance(strings.ToUpper(name), ours) <= allowed {
			return ours
		}
	}
	return ""
}

// distance is how many letters have to be changed, added, removed or swapped with the
// next to make b of a.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
