package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"holdfast/proxy/internal/installed"
	"holdfast/shared/plain"
)

// raw returns a writer that does not escape, for the output of a session and for text with this
// program's own sequences.
func raw(cmd *cobra.Command) io.Writer { return plain.Raw(cmd.OutOrStdout()) }

// jsonTo returns a JSON encoder with output that does not act on a terminal.
func jsonTo(w io.Writer) *json.Encoder { return json.NewEncoder(plain.JSON(w)) }

// printJSON prints v as indented JSON.
func printJSON(cmd *cobra.Command, v any) error {
	enc := jsonTo(cmd.OutOrStdout())
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// note prints a text for the user; the output of the command may be read elsewhere.
func note(format string, args ...any) {
	fmt.Fprintln(plain.Stderr, installed.Name()+":", Named(fmt.Sprintf(format, args...)))
}

// warn prints a warning.
func warn(err error) { note("warning: %v", err) }
