package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/internal/exitcode"
)

// sizePolicyVar adds a flag for a size policy.
func sizePolicyVar(cmd *cobra.Command, p *protocol.SizePolicy, name, usage string) {
	ChoiceVar(cmd, p, name, "", usage, protocol.SizeLatest, protocol.SizeOwner, protocol.SizeSmallest, protocol.SizeLargest, protocol.SizeFixed)
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
