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

// roleEnv names the role in which this program runs, see roles. If it is empty, the program runs the tests.
const roleEnv = "E2E_ROLE"

// roles are the programs that the tests need as children of sessions or as clients. Each gets the arguments
// of its command line.
var roles = map[string]func(args []string) error{
	"chatter":   chatter,
	"busyChild": busyChild,
	"counter":   counter,
	"printer":   printer,
	"quitter":   quitter,
	"stubborn":  stubborn,
	"stranger":  stranger,
	"witness":   witness,
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

// stubborn is a child that ignores SIGHUP and SIGINT, and prints the name of each signal. A shell cannot take
// its place, because a shell now and then runs its trap only after the command for which it waits.
func stubborn([]string) error {
	c := make(chan os.Signal, 16)
	signal.Notify(c, syscall.SIGHUP, syscall.SIGINT)
	fmt.Println("ready")
	for s := range c {
		fmt.Println("got", s)
	}
	return nil
}

// role returns the specification of a session whose child is this program in a role.
func role(name string, args ...string) protocol.SpawnSpec {
	exe, err := os.Executable()
	if err != nil {
		panic(err) // the running program has a path
	}
	return protocol.SpawnSpec{Argv: append([]string{exe}, args...), Env: []string{roleEnv + "=" + name}}
}
