package main

import (
	_ "embed"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
)

//go:embed holdfast.rb.tmpl
var formulaText string

// formula writes a Homebrew formula that installs from this release's archives.
func (r *release) formula() error {
	type system struct{ On, URL, Sum string }
	data := struct {
		Version      string
		MacOS, Linux []system
	}{Version: r.bare}
	for _, t := range r.targets {
		name := r.name(t) + ".tar.gz"
		s := system{On: map[string]string{"amd64": "on_intel", "arm64": "on_arm"}[t.arch], URL: strings.TrimSuffix(r.url, "/") + "/" + name}
		var err error
		switch t.os {
		case "darwin":
			s.Sum, err = sumFile(r.path(name))
			data.MacOS = append(data.MacOS, s)
		case "linux":
			s.Sum, err = sumFile(r.path(name))
			data.Linux = append(data.Linux, s)
		}
		if err != nil {
			return err
		}
	}
	for _, list := range [][]system{data.MacOS, data.Linux} { // brew style requires this order
		slices.SortFunc(list, func(a, b system) int { return strings.Compare(a.On, b.On) })
	}
	f, err := os.Create(filepath.Join(r.out, "holdfast.rb"))
	if err != nil {
		return err
	}
	err = template.Must(template.New("").Parse(formulaText)).Execute(f, data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
