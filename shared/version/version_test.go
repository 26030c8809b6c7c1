package version

import (
	"runtime/debug"
	"testing"
)

func TestRevision(t *testing.T) {
	set := func(kv ...string) *debug.BuildInfo {
		info := &debug.BuildInfo{}
		for i := 0; i < len(kv); i += 2 {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: kv[i], Value: kv[i+1]})
		}
		return info
	}
	for _, tt := range []struct {
		name string
		info *debug.BuildInfo
		want string
	}{
		{"no information", nil, ""},
		{"no commit", set("vcs.modified", "true"), ""},
		{"commit", set("vcs.revision", "0123456789abcdef0123", "vcs.modified", "false"), "0123456789ab"},
		{"changed since", set("vcs.modified", "true", "vcs.revision", "0123456789abcdef0123"), "0123456789ab-dirty"},
		{"short", set("vcs.revision", "0123"), "0123"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := revision(tt.info); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if got := String(); got == "" {
		t.Error("String is empty")
	}
}
