package main

import (
	"bytes"
	_ "embed"
	"os"
	"slices"
	"strings"
	"text/template"
)

var (
	//go:embed holdfast.rb.tmpl
	formulaText string
	//go:embed PKGBUILD.tmpl
	pkgbuildText string
	//go:embed flake.nix.tmpl
	flakeText string
)

// flakeName is the name of the archive with the flake. It has no version, so that a URL of the latest
// release leads to it.
const flakeName = "holdfast-flake.tar.gz"

// recipe has the fields of the templates.
type recipe struct {
	Version      string
	Author       string
	Homepage     string // "" if the release has no repository
	MacOS, Linux []packed
}

// A packed is an archive of a system, from which a package manager installs.
type packed struct {
	URL, Sum string
	Dir      string // the directory in the archive
	On       string // block of Homebrew
	Arch     string // name of the architecture at Arch Linux
	Nix      string // name of the system at Nix
}

// recipes writes the files with which other package managers install from this release's archives: a
// Homebrew formula, a PKGBUILD for Arch Linux, and a flake for Nix.
func (r *release) recipes() error {
	data := recipe{Version: r.bare, Author: r.author, Homepage: r.repository}
	for _, t := range r.targets {
		cpu := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[t.arch]
		p := packed{
			URL: strings.TrimSuffix(r.url, "/") + "/" + r.name(t) + ".tar.gz", Dir: r.name(t), Arch: cpu, Nix: cpu + "-" + t.os,
			On: map[string]string{"amd64": "on_intel", "arm64": "on_arm"}[t.arch],
		}
		list := map[string]*[]packed{"darwin": &data.MacOS, "linux": &data.Linux}[t.os]
		if list == nil {
			continue
		}
		var err error
		if p.Sum, err = sumFile(r.path(r.name(t) + ".tar.gz")); err != nil {
			return err
		}
		*list = append(*list, p)
	}
	for _, list := range [][]packed{data.MacOS, data.Linux} { // brew style requires this order
		slices.SortFunc(list, func(a, b packed) int { return strings.Compare(a.On, b.On) })
	}
	recipes := map[string]string{"holdfast.rb": formulaText}
	if len(data.Linux) > 0 {
		recipes["PKGBUILD"] = pkgbuildText
	}
	for name, text := range recipes {
		recipe, err := filled(text, data)
		if err != nil {
			return err
		}
		if err := os.WriteFile(r.path(name), recipe, 0o644); err != nil {
			return err
		}
	}
	flake, err := filled(flakeText, data)
	if err != nil {
		return err
	}
	return r.pack(flakeName, writeTar, "holdfast-flake", []file{{"flake.nix", flake, 0o644}})
}

// Pkgver returns the version for Arch Linux, which permits no hyphen. Its pacman sorts 1.2.3rc.1, but not
// 1.2.3.rc.1, before 1.2.3.
func (d recipe) Pkgver() string { return strings.ReplaceAll(d.Version, "-", "") }

// filled returns the text of a template with the fields of data.
func filled(text string, data recipe) ([]byte, error) {
	var buf bytes.Buffer
	err := template.Must(template.New("").Parse(text)).Execute(&buf, data)
	return buf.Bytes(), err
}
