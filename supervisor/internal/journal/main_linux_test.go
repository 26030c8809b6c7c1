package journal

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what must come.
const patience = 60 * time.Second

// roles are what this binary does when a test starts it as another process.
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
		syscall.Exit(code) // not os.Exit, where -race waits and -cover has things to say
	}
	os.Exit(m.Run())
}
