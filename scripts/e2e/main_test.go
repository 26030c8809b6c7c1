package e2e

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// roleEnv makes this program a child of a session, or a stranger: see roles.
const roleEnv = "E2E_ROLE"

// roles are what this program is when it is not the tests.
var roles = map[string]func(args []string) error{
	"chatter":  chatter,
	"labourer": labourer,
	"counter":  counter,
	"printer":  printer,
	"quitter":  quitter,
	"stubborn": stubborn,
	"stranger": stranger,
}

func TestMain(m *testing.M) {
	if _, how, ok := strings.Cut(filepath.Base(os.Args[0]), impostorPrefix); ok {
		if err := impostor(how); err != nil {
			fmt.Fprintln(os.Stderr, "impostor:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	role := os.Getenv(roleEnv)
	if role == "" {
		os.Exit(testkit.Run(m))
	}
	if err := roles[role](os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
}

// stubborn is a child that does not go when it is asked to, and says that it
// was. A shell would look up from what it waits for too late, now and then.
func stubborn([]string) error {
	c := make(chan os.Signal, 16)
	signal.Notify(c, syscall.SIGHUP, syscall.SIGINT)
	fmt.Println("ready")
	for s := range c {
		fmt.Println("got", s)
	}
	return nil
}

// role is a session of this program.
func role(name string, args ...string) protocol.SpawnSpec {
	exe, err := os.Executable()
	if err != nil {
		panic(err) // we run
	}
	return protocol.SpawnSpec{Argv: append([]string{exe}, args...), Env: []string{roleEnv + "=" + name}}
}
