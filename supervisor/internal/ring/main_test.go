//go:build linux

package ring

import (
	"fmt"
	"os"
	"testing"
)

// TestMain runs the tests, or the role in which a test has started this binary.
func TestMain(m *testing.M) {
	if os.Getenv("RING_TEST_ROLE") == "reader" {
		if err := readerRole(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
