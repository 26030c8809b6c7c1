// Command hello is built by the test of Build.
package main

import (
	"fmt"

	"holdfast/shared/version"
)

func main() { fmt.Println("hello from", version.String()) }
