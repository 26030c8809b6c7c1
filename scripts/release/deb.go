package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// nfpm is the program that makes Debian packages. Versions from v2.46 on need modules that some
// mirrors lack.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2"

//go:embed debian
var debian embed.FS

// debVersion returns the version and the revision of the package. Debian sorts a version with ~
// before the same version without the suffix, so ~ replaces the hyphen of a prerelease.
func (r *release) debVersion() string { return strings.Replace(r.bare, "-", "~", 1) + "-1" }

// deb makes a Debian package. It has holdfast in usr/bin and the other programs in usr/libexec/holdfast. Its
// script postinst links usr/bin/proxy, unless another package has a program of that name; prerm removes the
// link, and prints which processes continue after a removal. An upgrade renames the new programs into the
// place of the old ones; it ends no process and starts none.
func (r *release) deb(ctx context.Context, t target, notices []byte) error {
	files, err := r.debLayout(t, notices)
	if err != nil {
		return err
	}
	config := filepath.Join(r.work, "nfpm-"+t.arch+".json") // JSON is YAML
	data, err := r.nfpmConfig(t, files)
	if err != nil {
		return err
	}
	if err := os.WriteFile(config, data, 0o644); err != nil {
		return err
	}
	out, err := filepath.Abs(r.path("holdfast_" + r.debVersion() + "_" + t.arch + ".deb"))
	if err != nil {
		return err
	}
	// The environment is that of the programs' build, so that both use the same compiled standard
	// library.
	_, err = command(ctx, r.work, plain, "go", "run", "-trimpath", nfpm, "package", "--packager", "deb", "--config", config, "--target", out)
	return err
}

// debLayout returns the files of the package.
func (r *release) debLayout(t target, notices []byte) ([]file, error) {
	files, err := r.layout(t, notices)
	if err != nil {
		return nil, err
	}
	const doc = "usr/share/doc/holdfast/"
	var all []file
	for _, f := range files {
		dir, name := path.Split(f.path)
		switch {
		case strings.HasPrefix(f.path, "share/man/"):
			if name == "supervisor.1" { // the page of another Debian package, supervisor, has that name
				name = "supervisor.1holdfast"
				f.data = bytes.Replace(f.data, []byte(`.TH "SUPERVISOR" 1 `), []byte(`.TH "SUPERVISOR" 1holdfast `), 1)
			}
			f.path = "usr/" + dir + name + ".gz"
			f.data, err = zipped(f.data)
		case strings.HasPrefix(f.path, "share/") && (name == "proxy" || name == "_proxy" || name == "proxy.fish"):
			continue // another package may have the command
		case f.path == "bin/proxy", f.path == "bin/supervisor":
			f.path = "usr/libexec/holdfast/" + name
		case strings.HasPrefix(f.path, "share/zsh/"):
			f.path = "usr/share/zsh/vendor-completions/" + name
		case strings.HasPrefix(f.path, "share/"), strings.HasPrefix(f.path, "bin/"):
			f.path = "usr/" + f.path
		case name == "LICENSE":
			continue // Debian has the licence in common-licenses
		case strings.HasSuffix(name, ".png"), strings.HasSuffix(name, ".svg"):
			f.path = doc + f.path
		case name == "CHANGELOG.md":
			f.path = doc + "changelog.gz"
			f.data, err = zipped(f.data)
		default:
			f.path = doc + f.path + ".gz"
			f.data, err = zipped(f.data)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	own, err := r.debOwn()
	return append(all, own...), err
}

// debOwn returns the files that only the Debian package has.
func (r *release) debOwn() ([]file, error) {
	unit, err := os.ReadFile(filepath.Join(r.work, "man", "holdfast.service"))
	if err != nil {
		return nil, err
	}
	all := []file{{"usr/lib/systemd/user/holdfast.service", unit, 0o644}}
	for name, to := range map[string]string{
		"copyright": "usr/share/doc/holdfast/copyright",
		"overrides": "usr/share/lintian/overrides/holdfast",
	} {
		data, err := debian.ReadFile("debian/" + name)
		if err != nil {
			return nil, err
		}
		all = append(all, file{to, data, 0o644})
	}
	log, err := zipped(fmt.Appendf(nil, "holdfast (%s) unstable; urgency=medium\n\n  * %s: changelog.gz says what is new.\n\n -- %s  %s\n",
		r.debVersion(), r.version, r.author, r.date.Format(time.RFC1123Z)))
	return append(all, file{"usr/share/doc/holdfast/changelog.Debian.gz", log, 0o644}), err
}

// nfpmConfig writes the files into the work directory, and returns nfpm's configuration, which has
// the place of each file in the package.
func (r *release) nfpmConfig(t target, files []file) ([]byte, error) {
	type info struct {
		Mode  int       `json:"mode"`
		Owner string    `json:"owner"`
		Group string    `json:"group"`
		MTime time.Time `json:"mtime"`
	}
	type content struct {
		Src  string `json:"src"`
		Dst  string `json:"dst"`
		Type string `json:"type,omitempty"`
		Info info   `json:"file_info"`
	}
	var list []content
	for _, f := range files {
		src := filepath.Join(r.work, "deb-"+t.arch, filepath.FromSlash(f.path))
		if err := os.MkdirAll(filepath.Dir(src), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(src, f.data, f.mode); err != nil {
			return nil, err
		}
		list = append(list, content{src, "/" + f.path, "", info{int(f.mode.Perm()), "root", "root", r.date}})
	}
	list = append(list, content{"../libexec/holdfast/supervisor", "/usr/bin/supervisor", "symlink", info{0o777, "root", "root", r.date}})
	scripts := map[string]string{}
	for kind, name := range map[string]string{"postinstall": "postinst", "preremove": "prerm"} {
		text, err := debian.ReadFile("debian/" + name)
		if err != nil {
			return nil, err
		}
		scripts[kind] = filepath.Join(r.work, name)
		if err := os.WriteFile(scripts[kind], text, 0o755); err != nil {
			return nil, err
		}
	}
	return json.Marshal(map[string]any{
		"scripts": scripts,
		"name":    "holdfast", "arch": t.arch, "platform": t.os,
		"version": r.debVersion(), "version_schema": "none",
		"section": "utils", "priority": "optional", "maintainer": r.author, "mtime": r.date,
		"description": "terminals that outlive everything around them\n" +
			"A supervisor holds the shells, a proxy speaks to apps, pages and people, and\n" +
			"the proxy is replaced whenever you like: no shell ends, no byte is lost or\n" +
			"doubled, and attached clients continue by themselves.",
		"contents": list,
		"deb":      map[string]string{"compression": "gzip:6"}, // for the reason that is given at writeTar
	})
}
