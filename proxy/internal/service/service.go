// Package service lets the user's service manager run a proxy. It writes and removes one unit of
// systemd, or one agent of launchd.
//
// The text of a unit and the commands for it are plain functions of the request and of the unit's
// state, so that the tests of both systems run on each system. Only the outer functions write a
// file and run systemctl or launchctl.
//
// Invariant: a file without the mark of this package is neither overwritten nor removed unless
// the user forces it. No step ends a session: a unit is stopped only if that ends only its main
// process.
//
// Not here: the proxy (it does not know its service manager), the output for a terminal, and the
// decision to install.
package service

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"holdfast/protocol"
	"holdfast/shared/config"
)

// mark is a text in each file that this package writes. A file without it belongs to another
// program.
const mark = `Written by "proxy service install"`

// A Spec describes the proxy that the unit should run.
type Spec struct {
	Program string   // absolute path, see Program
	Proxy   string   // name of the proxy
	Dir     string   // absolute path for --dir; "" means the user's directories
	Env     []string // K=V; variables that move the user's directories
	Log     string   // file for the proxy's output; systemd uses its journal instead
}

// A Unit is a file for a service manager, with its name there.
type Unit struct {
	Name string `json:"unit"`
	Path string `json:"path"`
	Text string `json:"-"`
}

// args returns the program's arguments, with the flags that select this proxy.
func (s Spec) args(first ...string) []string {
	args := first
	if s.Proxy != config.DefaultProxy {
		args = append(args, "--proxy", s.Proxy)
	}
	if s.Dir != "" {
		args = append(args, "--dir", s.Dir)
	}
	return args
}

// start returns the arguments for serving. If another proxy serves already, the unit takes over
// from it without a gap; otherwise --handoff starts to serve at once.
func (s Spec) start() []string { return s.args("--handoff", "--foreground") }

// suffix distinguishes the units of different directories. It begins with a dot, which no proxy
// name contains.
func (s Spec) suffix() string {
	if s.Dir == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(s.Dir))
	return "." + hex.EncodeToString(sum[:4])
}

// check returns an error for values that a unit's file cannot contain.
func (s Spec) check() error {
	if err := config.CheckProxyName(s.Proxy); err != nil {
		return err
	}
	for _, path := range append([]string{s.Program, s.Dir, s.Log}, s.Env...) {
		if !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl) {
			return protocol.Errorf(protocol.CodeInvalidArgument, "%q has characters that a unit cannot contain; choose another path", path)
		}
	}
	if !filepath.IsAbs(s.Program) {
		return protocol.Errorf(protocol.CodeInvalidArgument, "the program's path %q is not absolute", s.Program)
	}
	return nil
}
