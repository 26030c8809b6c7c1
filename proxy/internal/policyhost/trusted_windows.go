package policyhost

import (
	"fmt"
	"os"

	"holdfast/protocol"
)

// trusted sees that there is a program. Who may replace it is in its access
// list, which is not read here.
func trusted(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return failure(protocol.CodeNotFound, fmt.Sprintf("there is no policy %s", path))
	}
	if !fi.Mode().IsRegular() {
		return failure(protocol.CodePermissionDenied, fmt.Sprintf("the policy %s is no file", path))
	}
	return nil
}
