// Package version names this build, for status, hello and logs.
//
// Invariant: the name never decides anything. What two processes can say to
// each other is agreed on by protocol.Hello.
package version

import (
	"cmp"
	"runtime/debug"
)

// version is set by the linker: -ldflags "-X holdfast/shared/version.version=v1.2.3".
var version = ""

// String returns the version set by the linker, else the commit this was built
// from ("-dirty" behind it if files had changed), else "dev".
func String() string {
	if version != "" {
		return version
	}
	info, _ := debug.ReadBuildInfo()
	return cmp.Or(revision(info), "dev")
}

func revision(info *debug.BuildInfo) string {
	if info == nil {
		return ""
	}
	var commit, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + dirty
}
