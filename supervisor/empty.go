package main

import (
	"context"
	"time"
)

// emptyCheck is the longest pause between two checks whether the supervisor is empty.
const emptyCheck = 15 * time.Second

// endIfEmpty calls end once empty has returned true at each check for the time after, and
// returns when end has accepted or ctx is done. end must decide in one step: if a session or
// proxy has come since the last check, end refuses, and the time begins again.
func endIfEmpty(ctx context.Context, after time.Duration, empty, end func() bool) {
	if after <= 0 {
		return
	}
	check := time.NewTicker(max(min(after/4, emptyCheck), time.Millisecond))
	defer check.Stop()
	since := time.Now()
	for {
		select {
		case <-check.C:
		case <-ctx.Done():
			return
		}
		switch {
		case !empty():
			since = time.Now()
		case time.Since(since) < after:
		case end():
			return
		default:
			since = time.Now()
		}
	}
}
