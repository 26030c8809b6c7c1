// Command holdfast is the users' command: it starts, lists, attaches and ends sessions, as a client of the
// running proxy. It has all commands of the program proxy, and executes that program for those that serve.
package main

import (
	"fmt"
	"os"
	"slices"

	"holdfast/proxy/internal/cli"
	"holdfast/shared/machine"
	"holdfast/shared/version"
)

func main() {
	if slices.Equal(os.Args[1:], []string{"--version"}) { // the commands are not needed for that
		if _, err := fmt.Println("holdfast version", version.String()); err == nil {
			return
		} // otherwise the command reports the error
	}
	machine.UseOwnFiles()
	machine.Share()
	os.Args[0] = "holdfast" // texts name the program so, whatever the name of a link to it is
	os.Exit(cli.Main(nil))
}
