package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"holdfast/shared/plain"
)

// raw returns a writer that does not escape, for the output of a session and for text with this
// program's own sequences.
func raw(cmd *cobra.Command) io.Writer { return plain.Raw(cmd.OutOrStdout()) }

// jsonTo returns a JSON encoder whose output does not act on a terminal.
func jsonTo(w io.Writer) *json.Encoder { return json.NewEncoder(plain.JSON(w)) }

// printJSON prints v as indented JSON.
func printJSON(cmd *cobra.Command, v any) error {
	enc := jsonTo(cmd.OutOrStdout())
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// warn prints a warning.
func warn(err error) { fmt.Fprintln(plain.Stderr, "proxy: warning:", err) }
