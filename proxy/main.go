// Command proxy is the server for clients, and the command line. As a server it serves apps and web
// pages; as a command it starts, lists, attaches and ends sessions, as a client of the running
// proxy. It holds no state that must survive, so it can be replaced at any time.
package main

import (
	"os"

	"holdfast/proxy/internal/cli"
	"holdfast/proxy/internal/operate"
	"holdfast/shared/machine"
)

func main() {
	machine.UseOwnFiles()
	machine.Share()
	os.Exit(cli.Main(operate.Commands))
}
