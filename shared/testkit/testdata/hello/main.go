// Command hello is what the test of Build builds.
package main

import (
	"fmt"

	"holdfast/shared/version"
)

func main() { fmt.Println("hello from", version.String()) }
