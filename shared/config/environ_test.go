package config

import (
	"strings"
	"testing"
)

func TestCheckEnviron(t *testing.T) {
	for _, tt := range []struct{ entry, want string }{
		{"HOLDFAST_RING_BYTES=1", ""},
		{"HOLDFAST_DIR=/x", ""},
		{"HOLDFAST_RING_BYTE=1", "HOLDFAST_RING_BYTES"},
		{"HOLDFAST_RINGBYTES=1", "HOLDFAST_RING_BYTES"},
		{"HOLDFAST_WBE=127.0.0.1:0", "HOLDFAST_WEB"},
		{"HOLDFAST_DRI=/x", "HOLDFAST_DIR"},
		{"HOLDFAST_grace=1s", "HOLDFAST_GRACE"},
		{"HOLDFAST_IDLETIMOUT=1s", "HOLDFAST_IDLE_TIMEOUT"},
		{"HOLDFAST_TASK_ID=7", ""}, // a variable of another application
		{"HOLDFAST_BIN=/x", ""},
		{"HOLDFAST_=x", ""},
		{"HOLDFAS_DIR=/x", ""},
		{"HOLDFAST_RING_BYTE", "HOLDFAST_RING_BYTES"},
	} {
		err := CheckEnviron([]string{"PATH=/bin", tt.entry})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), "mean "+tt.want+"?")) {
			t.Errorf("%s: got %v, want %q", tt.entry, err, tt.want)
		}
	}
}
