package main

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestEndIfEmpty(t *testing.T) {
	for _, tt := range []struct {
		name   string
		after  time.Duration
		busy   time.Duration // how long the supervisor is not empty
		refuse int           // how often the end is refused
		want   time.Duration // the earliest time of the end, which each check may delay by emptyCheck; 0 if it does not end within an hour
	}{
		{"from the start", 5 * time.Minute, 0, 0, 5 * time.Minute},
		{"later", 5 * time.Minute, time.Minute, 0, 6*time.Minute - emptyCheck},
		{"refused", 5 * time.Minute, 0, 2, 15 * time.Minute},
		{"never", 0, 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, refuse := time.Now(), tt.refuse
				var ended time.Duration
				go endIfEmpty(t.Context(), tt.after, func() bool { return time.Since(begun) >= tt.busy }, func() bool {
					if refuse > 0 {
						refuse--
						return false
					}
					ended = time.Since(begun)
					return true
				})
				time.Sleep(time.Hour)
				synctest.Wait()
				if ended < tt.want || ended > tt.want+(1+time.Duration(tt.refuse))*emptyCheck {
					t.Errorf("ended after %v, want %v", ended, tt.want)
				}
			})
		})
	}
}
