// Command release makes the files of a release: an archive for each system, Debian packages, npm packages, Python
// wheels, lists of the modules in the programs (SBOM), and the sums of all files.
//
//	go run ./scripts/release                          releases the tag at HEAD into dist/
//	go run ./scripts/release --snapshot               releases the tree as it is, with or without a tag
//	go run ./scripts/release --url https://HOST/DIR   adds a Homebrew formula, a PKGBUILD and a Nix flake
//	                                                  that fetch the archives from this address
//
// Invariant: the same commit and the same Go must give the same bytes, on every machine and at any
// time. File times are those of the commit, or $SOURCE_DATE_EPOCH.
//
// Not here: tagging; signing and publishing, which .github/workflows/release.yml does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// targets are the systems of a release.
var targets = []target{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}}

type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

type options struct {
	tag        string // vX.Y.Z
	out        string
	root       string // directory of the tree
	repository string // address of the repository
	url        string // address of the archives
	maintainer string // for the Debian packages
	snapshot   bool
	targets    []target
}

func parse(args []string) (options, error) {
	o := options{targets: targets}
	f := flag.NewFlagSet("release", flag.ContinueOnError)
	f.StringVar(&o.tag, "version", "", "`vX.Y.Z` (default the tag at HEAD)")
	f.StringVar(&o.out, "out", "dist", "`directory` to make it all in")
	f.StringVar(&o.root, "root", ".", "`directory` of the tree")
	f.StringVar(&o.repository, "repository", "", "`URL` of the repository, which npm compares with the attestation of a package")
	f.StringVar(&o.url, "url", "", "`URL` of the directory where the archives will lie, for formula, PKGBUILD and flake (default that of a GitHub release of the repository; without both, none is made)")
	f.StringVar(&o.maintainer, "maintainer", "", "`\"Name <address>\"` in the Debian packages (default the author of HEAD)")
	f.BoolVar(&o.snapshot, "snapshot", false, "of a tree without a tag, or with changes that are not committed")
	f.Func("target", "only for `OS/ARCH,...` (default all)", func(s string) (err error) {
		o.targets, err = parseTargets(s)
		return err
	})
	f.SetOutput(io.Discard) // main prints the error
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Println("usage: go run ./scripts/release [flags]")
		f.SetOutput(os.Stdout)
		f.PrintDefaults()
	}
	if err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%q is no flag, see --help", f.Arg(0))
	}
	return o, nil
}

func parseTargets(list string) (chosen []target, err error) {
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(targets, func(t target) bool { return t.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no target %q, only %v", name, targets)
		}
		chosen = append(chosen, targets[i])
	}
	return chosen, nil
}

// A release has the options, the source and the temporary files from which each part of a release
// is made.
type release struct {
	options
	source
	work string // directory of temporary files
	bare string // version without the v, for file names
}

func run(ctx context.Context, o options) error {
	began := time.Now()
	src, err := look(ctx, o)
	if err != nil {
		return err
	}
	if err := emptyDir(o.out); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	r := &release{options: o, source: src, work: work, bare: strings.TrimPrefix(src.version, "v")}
	if r.url == "" && r.repository != "" {
		r.url = strings.TrimSuffix(r.repository, "/") + "/releases/download/" + r.version
	}
	fmt.Printf("%s of %s\n", r.version, r.date.Format(time.RFC3339))
	if err := r.page(ctx); err != nil {
		return fmt.Errorf("the web page: %w", err)
	}
	if err := r.document(ctx); err != nil {
		return err
	}
	for _, t := range o.targets {
		if err := r.make(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
		fmt.Printf("%s after %d s\n", t, int(time.Since(began).Seconds()))
	}
	if err := r.npm(ctx); err != nil {
		return fmt.Errorf("the npm packages: %w", err)
	}
	if err := r.wheel("any", fileList{}); err != nil { // for systems without programs; pip prefers the wheel for its system
		return fmt.Errorf("the wheel: %w", err)
	}
	if r.url != "" {
		if err := r.recipes(); err != nil {
			return err
		}
	}
	return writeSums(o.out)
}

// make makes the files for one target.
func (r *release) make(ctx context.Context, t target) error {
	if err := r.build(ctx, t, r.binDir(t)); err != nil {
		return err
	}
	mods, err := r.modules(ctx, t)
	if err != nil {
		return err
	}
	notices, err := r.notices(mods)
	if err != nil {
		return err
	}
	if err := r.sbom(t, mods); err != nil {
		return err
	}
	files, err := r.layout(t, notices)
	if err != nil {
		return err
	}
	if err := r.archive(t, files); err != nil {
		return err
	}
	if err := errors.Join(r.npmPrograms(t, notices), r.wheelOf(t, notices)); err != nil {
		return err
	}
	if t.os == "linux" {
		return r.deb(ctx, t, notices)
	}
	return nil
}

// emptyDir makes a directory, or returns an error if the directory has entries. The files of an
// older release must not be removed without the user's consent, and must not be in this release's
// list of sums.
func emptyDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	list, err := os.ReadDir(dir)
	if err == nil && len(list) > 0 {
		err = fmt.Errorf("%s is not empty: remove its contents, or choose another directory with --out", dir)
	}
	return err
}

// path returns the path of a file of the release.
func (r *release) path(name string) string { return filepath.Join(r.out, name) }

// name returns the name of a target's files, without the suffix of their kind.
func (r *release) name(t target) string {
	return fmt.Sprintf("holdfast_%s_%s_%s", r.bare, t.os, t.arch)
}
