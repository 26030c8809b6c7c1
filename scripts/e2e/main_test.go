package e2e

import (
	"fmt"
	"os"
	"testing"

	"holdfast/shared/testkit"
)

// roleEnv makes this program a child of a session, or a stranger: see roles.
const roleEnv = "E2E_ROLE"

// roles are what this program is when it is not the tests.
var roles = map[string]func(args []string) error{
	"printer":  printer,
	"stranger": stranger,
}

func TestMain(m *testing.M) {
	role := os.Getenv(roleEnv)
	if role == "" {
		os.Exit(testkit.Run(m))
	}
	if err := roles[role](os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
}
