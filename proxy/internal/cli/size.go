package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/internal/exitcode"
)

// sizePolicies completes the names of size policies.
func sizePolicies(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return []cobra.Completion{
		string(protocol.SizeLatest), string(protocol.SizeOwner), string(protocol.SizeSmallest), string(protocol.SizeLargest), string(protocol.SizeFixed),
	}, cobra.ShellCompDirectiveNoFileComp
}

// parseSize parses COLSxROWS.
func parseSize(s string) (protocol.Size, error) {
	var size protocol.Size
	var rest string
	n, _ := fmt.Sscanf(s, "%dx%d%s", &size.Cols, &size.Rows, &rest)
	if n != 2 || size.Cols < 1 || size.Rows < 1 || size != size.Normalize() {
		return size, exitcode.WrongUsagef("a size must be COLSxROWS, at most %dx%d, it is %.40q", protocol.MaxCols, protocol.MaxRows, s)
	}
	return size, nil
}
