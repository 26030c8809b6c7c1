package config

import (
	"fmt"
	"strings"
)

// prefix begins the name of each of Holdfast's variables.
const prefix = "HOLDFAST_"

// variables lists the variables of Holdfast that are not settings.
var variables = []string{"HOLDFAST_DIR", "HOLDFAST_SUPERVISOR", "HOLDFAST_TOKEN", "HOLDFAST_SESSION", "HOLDFAST_INSTANCE", "HOLDFAST_DELEGATED"}

// CheckEnviron returns an error if environ contains a misspelled setting. A variable counts
// as misspelled if its name begins with HOLDFAST_, is unknown, and differs by one or two
// letters from a known name.
//
// CheckEnviron accepts every other name that begins with HOLDFAST_. Apps give their sessions
// variables such as HOLDFAST_TASK_ID, and proxy commands must work in these sessions. A
// newer release may also have settings that this one does not know. UnknownVariables lists
// such names.
func CheckEnviron(environ []string) error {
	for _, name := range UnknownVariables(environ) {
		if like := nearest(name); like != "" {
			return fmt.Errorf("%w: there is no variable %s; did you mean %s?", ErrInvalid, name, like)
		}
	}
	return nil
}

// UnknownVariables returns the names in environ that begin with HOLDFAST_ and that this
// release does not know.
func UnknownVariables(environ []string) (names []string) {
	known := make(map[string]bool)
	for _, name := range knownVariables() {
		known[name] = true
	}
	for _, e := range environ {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, prefix) && !known[name] {
			names = append(names, name)
		}
	}
	return names
}

func knownVariables() []string {
	names := append([]string{}, variables...)
	for _, s := range settings {
		names = append(names, s.env())
	}
	return names
}

// nearest returns the known variable that a misspelled name probably means, or "". One
// letter may be wrong, missing, superfluous or swapped with the next. If the known name has
// more than six letters behind the prefix, two letters may be so.
func nearest(name string) string {
	for _, known := range knownVariables() {
		allowed := 1
		if len(known)-len(prefix) > 6 {
			allowed = 2
		}
		if distance(strings.ToUpper(name), known) <= allowed {
			return known
		}
	}
	return ""
}

// distance returns the least number of letters that must be changed, added, removed or
// swapped with the next letter to turn a into b.
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
