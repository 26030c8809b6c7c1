//go:build unix

package archive

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"
)

// A recorder that cannot take its lock logs that once, and the numbers tell it.
func TestNoLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing", "recorder")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := &Recorder{Log: zerolog.New(&log), Lock: path}
		ctx, cancel := context.WithTimeout(t.Context(), 10*lockEvery)
		defer cancel()
		r.Run(ctx)
		if lines := strings.Count(log.String(), "\n"); lines != 1 || r.Stats().IsUp || !strings.Contains(log.String(), path) {
			t.Errorf("the numbers are %+v, and the log has %d lines: %s", r.Stats(), lines, &log)
		}
	})
}
