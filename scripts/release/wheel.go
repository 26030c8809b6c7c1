package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// pythonDir is the directory of the Python client.
var pythonDir = filepath.Join("proxy", "client", "python")

// wheelTags are the targets that wheels exist for, with their tags. The programs are static, so they run with any libc
// of Linux. Go supports macOS 12 and later. There are no terminals on Windows yet, so there is no wheel for it.
var wheelTags = map[target]string{
	{"linux", "amd64"}:  "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
	{"linux", "arm64"}:  "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
	{"darwin", "amd64"}: "macosx_12_0_x86_64",
	{"darwin", "arm64"}: "macosx_12_0_arm64",
}

// wheelPrograms are the programs in a wheel. programs.py starts and replaces them.
var wheelPrograms = []string{"proxy", "supervisor"}

// wheelOf makes the wheel with the programs of a target.
func (r *release) wheelOf(t target, notices []byte) error {
	tags, isThere := wheelTags[t]
	if !isThere {
		return nil
	}
	l := fileList{files: []file{{"holdfast/bin/version", []byte(r.version + "\n"), 0o644}, {r.distInfo() + "/licenses/NOTICES.txt", notices, 0o644}}}
	for _, name := range wheelPrograms {
		l.read("holdfast/bin/"+name, r.program(t, name), 0o755)
	}
	return r.wheel(tags, l)
}

// wheel writes a wheel of the client: a zip of its modules, of further files, and of their description.
func (r *release) wheel(tags string, l fileList) error {
	modules, err := filepath.Glob(filepath.Join(r.root, pythonDir, "holdfast", "*.py"))
	if err != nil {
		return err
	}
	info := r.distInfo()
	l.read(info+"/licenses/LICENSE", filepath.Join(r.root, "LICENSE"), 0o644)
	for _, module := range append(modules, "py.typed") {
		l.read("holdfast/"+filepath.Base(module), filepath.Join(r.root, pythonDir, "holdfast", filepath.Base(module)), 0o644)
	}
	readme, err := os.ReadFile(filepath.Join(r.root, pythonDir, "README.md"))
	if err := errors.Join(l.err, err); err != nil {
		return err
	}
	files := append(l.files, file{info + "/METADATA", append([]byte(r.wheelMetadata()), readme...), 0o644}, file{info + "/WHEEL", wheelDescription(tags), 0o644})
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	files = append(files, file{info + "/RECORD", wheelRecord(files, info), 0o644})
	return r.pack("holdfast-"+pythonVersion(r.bare)+"-py3-none-"+tags+".whl", writeZip, "", files)
}

// distInfo returns the directory of a wheel's description.
func (r *release) distInfo() string { return "holdfast-" + pythonVersion(r.bare) + ".dist-info" }

func (r *release) wheelMetadata() string {
	return "Metadata-Version: 2.1\nName: holdfast\nVersion: " + pythonVersion(r.bare) + `
Summary: A client of Holdfast, a keeper of terminals, with its programs
License: Apache-2.0
Requires-Python: >=3.9
Classifier: Framework :: AsyncIO
Classifier: Operating System :: MacOS
Classifier: Operating System :: POSIX :: Linux
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

`
}

// wheelDescription returns the file WHEEL.
func wheelDescription(tags string) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "Wheel-Version: 1.0\nGenerator: holdfast\nRoot-Is-Purelib: %t\n", tags == "any")
	for tag := range strings.SplitSeq(tags, ".") {
		fmt.Fprintf(&out, "Tag: py3-none-%s\n", tag)
	}
	return out.Bytes()
}

// wheelRecord returns the file RECORD: the hash and the size of each other file.
func wheelRecord(files []file, info string) []byte {
	var out bytes.Buffer
	for _, f := range files {
		sum := sha256.Sum256(f.data)
		fmt.Fprintf(&out, "%s,sha256=%s,%d\n", f.path, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.data))
	}
	fmt.Fprintf(&out, "%s/RECORD,,\n", info)
	return out.Bytes()
}

// early matches a version before a release in the forms that Python has as well.
var early = regexp.MustCompile(`^(alpha|beta|rc)\.?(\d*)$`)

// pythonVersion returns a version in the form that Python demands (PEP 440). The words alpha, beta and rc keep their
// order; any other word before a release becomes a development version of it.
func pythonVersion(version string) string {
	version, local, _ := strings.Cut(version, "+")
	version, before, isEarly := strings.Cut(version, "-")
	if m := early.FindStringSubmatch(before); m != nil {
		version += map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}[m[1]] + "0"[min(len(m[2]), 1):] + m[2]
	} else if isEarly {
		version += ".dev0"
		local = strings.Trim(before+"."+local, ".")
	}
	if local != "" {
		version += "+" + strings.ToLower(local)
	}
	return version
}
