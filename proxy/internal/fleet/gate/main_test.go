package gate

import (
	"os"
	"testing"

	"holdfast/shared/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }
