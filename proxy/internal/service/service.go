// Package service has the user's service manager run a proxy: it makes and
// removes one unit of systemd, or one agent of launchd.
//
// What a unit says and which commands are due are plain functions of what is
// asked and of what was found, so that both systems are tested on either. The
// edges write one file and run systemctl or launchctl.
//
// Invariant: no file is overwritten or removed that lacks our mark, and nothing
// here ends a session: a unit is stopped only where that spares all but its
// main process.
//
// Not here: the proxy (it does not know who started it), the words for a
// terminal, and any choice to install.
package service

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"holdfast/protocol"
	"holdfast/shared/config"
)

// mark stands in each file of ours. What lacks it is somebody else's.
const mark = `Written by "proxy service install"`

// A Spec is the proxy that is to be run.
type Spec struct {
	Program string   // absolute, see Program
	Proxy   string   // its name
	Dir     string   // for --dir, absolute; "" for the user's directories
	Env     []string // K=V: what moves the user's directories
	Log     string   // a file for what it says; systemd has a journal instead
}

// A Unit is a file for a service manager, and what that calls it.
type Unit struct {
	Name string `json:"unit"`
	Path string `json:"path"`
	Text string `json:"-"`
}

// args are the program's, for the same proxy that is asked for here.
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

// start are the arguments for serving, whoever serves before: where nobody does
// they are those of serve, and else the unit takes over and no client notices.
func (s Spec) start() []string { return s.args("--handoff", "--foreground") }

// suffix tells the units of several proxies apart. No name of a proxy has a dot.
func (s Spec) suffix() string {
	if s.Dir == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(s.Dir))
	return "." + hex.EncodeToString(sum[:4])
}

// check refuses what no unit can say.
func (s Spec) check() error {
	if err := config.CheckProxyName(s.Proxy); err != nil {
		return err
	}
	for _, path := range append([]string{s.Program, s.Dir, s.Log}, s.Env...) {
		if !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl) {
			return protocol.Errorf(protocol.CodeInvalidArgument, fmt.Sprintf("%q has characters that no unit can name; choose another path", path))
		}
	}
	if !filepath.IsAbs(s.Program) {
		return protocol.Errorf(protocol.CodeInvalidArgument, fmt.Sprintf("the program's path %q is not absolute", s.Program))
	}
	return nil
}
