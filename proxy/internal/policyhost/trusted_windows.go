package policyhost

import (
	"fmt"
	"os"

	"holdfast/protocol"
)

// trusted checks that the program is a file. It does not read the access list, which determines
// the users that may replace the program.
func trusted(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return failure(protocol.CodeNotFound, fmt.Sprintf("there is no policy %s", path))
	}
	if !fi.Mode().IsRegular() {
		return failure(protocol.CodePermissionDenied, fmt.Sprintf("the policy %s must be a regular file", path))
	}
	return nil
}
