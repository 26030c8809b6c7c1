package policyhost

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"holdfast/protocol"
)

// hasSum checks the program's SHA-256. Another user cannot replace the file between this check
// and the start, because trusted has checked the file's permissions.
func hasSum(path, want string) error {
	if want == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return failure(protocol.CodePermissionDenied, fmt.Sprintf("the policy's SHA-256 cannot be computed: %v", err))
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return failure(protocol.CodePermissionDenied, fmt.Sprintf("the policy's SHA-256 cannot be computed: %v", err))
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return failure(protocol.CodePermissionDenied, fmt.Sprintf(
			"the policy %s is not the one that was allowed: its SHA-256 is %s, and %s is configured; install the right program, or configure its sum",
			path, got, want))
	}
	return nil
}
