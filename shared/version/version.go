// Package version names this build, for status, hello and logs.
//
// Invariant: a program must not decide anything by this name. Two processes agree on their
// protocol by the range of versions in hello.
package version

import (
	"cmp"
	"runtime/debug"
)

// version is set by the linker: -ldflags "-X holdfast/shared/version.version=v1.2.3".
var version = ""

// String returns the version that the linker has set. If it has set none, String returns the
// commit of the build, with "-dirty" appended if files had changed, or "dev" if the commit is
// not known.
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
