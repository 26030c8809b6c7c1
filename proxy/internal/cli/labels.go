package cli

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// labels is the value of a flag for labels. pflag's own type for such values reads them as a line of CSV, which changes
// values that contain quotes, commas or an equals sign, as commands do.
type labels map[string]string

// LabelsVar adds the flag --label, which may be repeated.
func LabelsVar(f *pflag.FlagSet, p *map[string]string, usage string) {
	f.Var((*labels)(p), "label", usage+"; may be repeated")
}

// String implements pflag.Value. It returns "" for no labels, so that the help names no default.
func (l *labels) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(*l)) {
		all = append(all, name+"="+(*l)[name])
	}
	return strings.Join(all, " ")
}

// Type implements pflag.Value.
func (*labels) Type() string { return "k=v" }

// Set implements pflag.Value.
func (l *labels) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return errors.New("it must be a label such as team=infra")
	}
	if *l == nil {
		*l = make(labels)
	}
	(*l)[name] = value
	return nil
}
