package policyhost

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"holdfast/protocol"
)

// hasSum checks the program's sum. Between that and the start nobody else can
// put another in its place: trusted has seen to that.
func hasSum(path, want string) error {
	if want == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return failure(protocol.CodePermissionDenied, fmt.Sprintf("the policy's sum cannot be checked: %v", err))
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return failure(protocol.CodePermissionDenied, fmt.Sprintf("the policy's sum cannot be checked: %v", err))
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return failure(protocol.CodePermissionDenied, fmt.Sprintf(
			"the policy %s is not the one that was allowed: its SHA-256 is %s, and %s is configured; put the right program there, or configure its sum",
			path, got, want))
	}
	return nil
}
