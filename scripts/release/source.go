package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A source describes the tree from which a release is made.
type source struct {
	version string    // vX.Y.Z
	date    time.Time // of every file in the release
	commit  string    // "" if the tree is not a git checkout
	author  string    // "Name <address>"
}

// semver matches the versions that file names and packages can contain.
var semver = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?(\+[0-9A-Za-z.]+)?$`)

// look returns the source of the release. It returns an error if the release could not be made
// again from a commit, unless it is a snapshot. A snapshot needs no git if version and date are
// given.
func look(ctx context.Context, o options) (source, error) {
	s := source{version: o.tag, author: o.maintainer}
	var err error
	if s.commit, err = git(ctx, o, "rev-parse", "HEAD"); err != nil && !o.snapshot {
		return s, fmt.Errorf("this is no git checkout: use --snapshot with --version: %w", err)
	}
	if changes, err := git(ctx, o, "status", "--porcelain"); err == nil && changes != "" && !o.snapshot {
		return s, fmt.Errorf("not everything is committed: commit or remove these, or use --snapshot:\n%s", changes)
	}
	if s.version == "" {
		if s.version, err = describe(ctx, o); err != nil {
			return s, err
		}
	}
	if !semver.MatchString(s.version) {
		return s, fmt.Errorf("%q is no version such as v1.2.3, v1.2.3-rc.1 or v1.2.3+5.gabcdef", s.version)
	}
	if s.author == "" {
		s.author, _ = git(ctx, o, "log", "-1", "--format=%an <%ae>")
		s.author = cmp.Or(s.author, "Holdfast <root@localhost>")
	}
	s.date, err = date(ctx, o)
	return s, err
}

// describe returns the version: the tag at HEAD, or for a snapshot the last tag with the number of
// commits since.
func describe(ctx context.Context, o options) (string, error) {
	if tag, err := git(ctx, o, "describe", "--tags", "--exact-match", "--match", "v*"); err == nil {
		return tag, nil
	}
	if !o.snapshot {
		return "", errors.New("HEAD has no tag: tag it, or use --version or --snapshot")
	}
	long, err := git(ctx, o, "describe", "--tags", "--long", "--match", "v*", "--dirty=.dirty")
	if err != nil {
		return "v0.0.0", nil
	}
	// v1.2.3-5-gabcdef becomes v1.2.3+5.gabcdef, because a version with a hyphen would be
	// earlier than v1.2.3.
	i := strings.LastIndexByte(long, '-')
	i = strings.LastIndexByte(long[:i], '-')
	return long[:i] + "+" + strings.ReplaceAll(long[i+1:], "-", "."), nil
}

func date(ctx context.Context, o options) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		var err error
		if text, err = git(ctx, o, "log", "-1", "--format=%ct"); err != nil {
			return time.Time{}, fmt.Errorf("the time of the commit is unknown: set SOURCE_DATE_EPOCH: %w", err)
		}
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH must be seconds since 1970, it is %q", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

func git(ctx context.Context, o options, args ...string) (string, error) {
	out, err := command(ctx, o.root, nil, "git", args...)
	return strings.TrimSpace(string(out)), err
}

// command runs a program and returns its output.
func command(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, exit.Stderr)
	}
	return out, err
}
