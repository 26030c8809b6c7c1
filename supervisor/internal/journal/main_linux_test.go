package journal

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
)

// patience is the time after which a test fails if an expected event does not come.
const patience = 60 * time.Second

// roles are the programs that this binary becomes if a test starts it as another process.
var roles = map[string]func() error{
	"reader": readerRole,
	"typist": func() error { return typistRole(false) },
	"last":   func() error { return typistRole(true) },
}

const roleVariable = "JOURNAL_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := roles[os.Getenv(roleVariable)]; role != nil {
		code := 0
		if err := role(); err != nil {
			fmt.Fprintln(os.Stderr, "role:", err)
			code = 1
		}
		syscall.Exit(code) // os.Exit would let -race wait and -cover print
	}
	os.Exit(m.Run())
}
