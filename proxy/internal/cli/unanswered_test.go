package cli

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A command that waits for long checks again and again whether the processes answer, more and more rarely, until one does not.
func TestCheckAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		checkAgain(t.Context(), func() bool {
			at = append(at, time.Since(began)/time.Second)
			return len(at) == 9
		})
		if want := []time.Duration{1, 3, 7, 15, 31, 63, 123, 183, 243}; !slices.Equal(at, want) {
			t.Errorf("checks after %d s, want %d", at, want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		checkAgain(ctx, func() bool { t.Error("checked after the end of the command"); return true })
	})
}
