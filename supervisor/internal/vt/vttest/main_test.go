package vttest_test

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// seed is the seed of the streams of this run. HOLDFAST_SEED repeats an earlier run.
var seed = func() uint64 {
	if s, err := strconv.ParseUint(os.Getenv("HOLDFAST_SEED"), 10, 64); err == nil {
		return s
	}
	return uint64(time.Now().UnixNano())
}()

// streams returns the number of streams: HOLDFAST_STREAMS, or else n.
func streams(t testing.TB, n int) int {
	t.Helper()
	t.Logf("HOLDFAST_SEED=%d", seed)
	if testing.Short() {
		n /= 10
	}
	if s, err := strconv.Atoi(os.Getenv("HOLDFAST_STREAMS")); err == nil {
		return s
	}
	return n
}
