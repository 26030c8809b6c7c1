package main

import (
	"context"
	"time"
)

// emptyLook bounds how often an empty supervisor looks whether it still is empty.
const emptyLook = 15 * time.Second

// endIfEmpty calls end once empty has been true for a time, at each look, and returns
// when end has accepted or ctx is done. end decides for itself in one step: what came
// since the last look makes it refuse, and the time begins anew.
func endIfEmpty(ctx context.Context, after time.Duration, empty, end func() bool) {
	if after <= 0 {
		return
	}
	look := time.NewTicker(max(min(after/4, emptyLook), time.Millisecond))
	defer look.Stop()
	since := time.Now()
	for {
		select {
		case <-look.C:
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
