package config

import (
	"slices"
	"testing"
)

func TestResumeCommand(t *testing.T) {
	var c Config
	if err := setResume(&c, "agent=agent --continue id:{id}:{id} {dir}; codex= ;"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		program string
		labels  map[string]string
		want    []string
	}{
		{"agent", map[string]string{"id": "a b", "dir": "{id}"}, []string{"agent", "--continue", "id:a b:a b", "{id}"}},
		{"agent", map[string]string{"id": "7"}, nil},
		{"agent", map[string]string{"id": "7", "dir": "--rm"}, nil},
		{"claude", map[string]string{"conversation": "7"}, []string{"claude", "--resume", "7"}},
		{"claude", nil, nil},
		{"codex", map[string]string{"conversation": "7"}, nil},
		{"other", map[string]string{"conversation": "7"}, nil},
	} {
		if got := c.ResumeCommand(tt.program, tt.labels); !slices.Equal(got, tt.want) {
			t.Errorf("%s with %v: %q, want %q", tt.program, tt.labels, got, tt.want)
		}
	}
	for _, bad := range []string{"agent", "=agent", "/bin/agent=agent", "a b=c"} {
		if err := setResume(&c, bad); err == nil {
			t.Errorf("setResume accepts %q", bad)
		}
	}
}
