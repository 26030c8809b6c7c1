package main

import (
	"encoding/json"
	"io"
	"os"

	"github.com/spf13/cobra"

	"holdfast/shared/plain"
)

// What people read goes through these two and through cmd.OutOrStdout(), which is
// the first: titles, names, reasons and errors are other people's words, and must
// not act on the terminal. TestOutputIsPlain holds that no file writes past them.
var (
	stdout = plain.NewWriter(os.Stdout)
	stderr = plain.NewWriter(os.Stderr)
)

// raw is for what a session has printed, which is shown as it is, and for text
// with escape sequences of ours.
func raw(cmd *cobra.Command) io.Writer { return plain.Raw(cmd.OutOrStdout()) }

// printable makes one line of other people's words.
func printable(s string) string { return plain.Text(s) }

// jsonTo returns an encoder of which nothing acts on a terminal.
func jsonTo(w io.Writer) *json.Encoder { return json.NewEncoder(plain.JSON(w)) }

func printJSON(cmd *cobra.Command, v any) error {
	enc := jsonTo(cmd.OutOrStdout())
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
