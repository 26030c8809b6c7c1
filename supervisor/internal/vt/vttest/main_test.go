package vttest_test

import (
	"os"
	"strconv"
	"testing"

	"holdfast/shared/testkit"
)

// seed is the seed of the streams of this run. HOLDFAST_SEED repeats an earlier run.
var seed = testkit.Seed()

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
