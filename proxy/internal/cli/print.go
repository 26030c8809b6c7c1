package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"holdfast/proxy/internal/installed"
	"holdfast/shared/plain"
)

// Raw returns a writer that does not escape, for the output of a session and for text with this
// program's own sequences.
func Raw(cmd *cobra.Command) io.Writer { return plain.Raw(cmd.OutOrStdout()) }

// JSONTo returns a JSON encoder with output that does not act on a terminal.
func JSONTo(w io.Writer) *json.Encoder { return json.NewEncoder(plain.JSON(w)) }

// PrintJSON prints v as indented JSON.
func PrintJSON(cmd *cobra.Command, v any) error {
	enc := JSONTo(cmd.OutOrStdout())
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// Print prints v as JSON if --json was given. Otherwise it calls text, which prints v for people.
func (a *App) Print(cmd *cobra.Command, v any, text func(out io.Writer) error) error {
	if a.JSON {
		return PrintJSON(cmd, v)
	}
	return text(cmd.OutOrStdout())
}

// PrintTable prints a table with a row for each element of a list, or the text none if the list is empty.
func PrintTable[T any](out io.Writer, list []T, none, header string, row func(w io.Writer, v T)) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, Named(none))
		return err
	}
	w := plain.NewTable(out)
	fmt.Fprintln(w, header)
	for _, v := range list {
		row(w, v)
	}
	return w.Flush()
}

// Note prints a text for the user; the output of the command may be read elsewhere.
func Note(format string, args ...any) {
	fmt.Fprintln(plain.Stderr, installed.Name()+":", Named(fmt.Sprintf(format, args...)))
}

// Warn prints a warning.
func Warn(format string, args ...any) { Note("warning: "+format, args...) }
