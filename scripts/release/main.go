// Command release makes what a release consists of: an archive for each system,
// Debian packages, a Homebrew formula, lists of what is in the programs (SBOM)
// and the sums of it all.
//
//	go run ./scripts/release                      of the tag at HEAD, into dist/
//	go run ./scripts/release --snapshot           of the tree as it is, tag or no tag
//	go run ./scripts/release --url https://HOST/DIR   with a formula that fetches from there
//
// Invariant: the same commit and the same Go give the same bytes, wherever and
// whenever it runs; times are the commit's, or $SOURCE_DATE_EPOCH.
//
// Not here: tagging, signing, uploading.
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

// targets are what we release for.
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
	root       string // of the tree
	url        string // where the archives will lie
	maintainer string // of the Debian packages
	snapshot   bool
	targets    []target
}

func parse(args []string) (options, error) {
	o := options{targets: targets}
	f := flag.NewFlagSet("release", flag.ContinueOnError)
	f.StringVar(&o.tag, "version", "", "`vX.Y.Z` (default the tag at HEAD)")
	f.StringVar(&o.out, "out", "dist", "`directory` to make it all in")
	f.StringVar(&o.root, "root", ".", "`directory` of the tree")
	f.StringVar(&o.url, "url", "", "`URL` of the directory where the archives will lie, for the formula (default no formula)")
	f.StringVar(&o.maintainer, "maintainer", "", "`\"Name <address>\"` in the Debian packages (default the author of HEAD)")
	f.BoolVar(&o.snapshot, "snapshot", false, "of a tree without a tag, or with changes that are not committed")
	f.Func("target", "only for `OS/ARCH,...` (default all)", func(s string) (err error) {
		o.targets, err = parseTargets(s)
		return err
	})
	f.SetOutput(io.Discard) // main prints what is wrong
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

// A release is what all its parts are made of.
type release struct {
	options
	source
	work string // temporary files
	bare string // version without its v, as in file names
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
	if o.url != "" {
		if err := r.formula(); err != nil {
			return err
		}
	}
	return writeSums(o.out)
}

// make makes all that is for one target.
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
	if t.os == "linux" {
		return r.deb(ctx, t, notices)
	}
	return nil
}

// emptyDir makes a directory, or sees that there is nothing in it: what an older
// release left there is not ours to remove, and must not be summed with this one.
func emptyDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	list, err := os.ReadDir(dir)
	if err == nil && len(list) > 0 {
		err = fmt.Errorf("%s is not empty: remove what is in it, or choose another directory with --out", dir)
	}
	return err
}

// path is where a file of the release goes.
func (r *release) path(name string) string { return filepath.Join(r.out, name) }

// name is that of the files for a target, without what says their kind.
func (r *release) name(t target) string {
	return fmt.Sprintf("holdfast_%s_%s_%s", r.bare, t.os, t.arch)
}
