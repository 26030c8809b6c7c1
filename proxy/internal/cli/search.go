package cli

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/front"
	"holdfast/shared/plain"
)

func (a *App) searchCommand() *cobra.Command {
	var o client.SearchOptions
	var whole bool
	cmd := a.JSONFlag(a.oneSession("search ID REGEXP", "Print the lines of a session's history and screen that match", cobra.ExactArgs(2),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, args []string) error {
			o.Pattern = args[0]
			if whole {
				return printFound(cmd, a, c.SearchPast(cmd.Context(), id, o), func(m protocol.PastMatch) (uint64, string, []protocol.Range) { return m.Offset, m.Text, m.Ranges })
			}
			return printFound(cmd, a, c.Search(cmd.Context(), id, o), func(m protocol.Match) (uint64, string, []protocol.Range) { return m.Line, m.Text, m.Ranges })
		}))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if o.Limit < 0 {
			return exitcode.WrongUsagef("--limit must not be negative")
		}
		return nil
	}
	cmd.Example = "  proxy search build -i 'error|warn'\n  proxy search build --past 'FAIL: '\n  proxy search build --limit 1 '^make: '"
	cmd.Long = "Print the lines of a session's history and screen that match, as NUMBER:TEXT, oldest first.\n\n" +
		"history --before accepts the numbers. Wrapped lines are joined. The exit code is 1 if no line\n" +
		"matches.\n\n" +
		"--past searches all output that is kept, also what the history no longer has, as OFFSET:TEXT;\n" +
		"screen --at accepts the offsets. Its lines are those that were printed: a program that writes at\n" +
		"places of the screen has printed each piece as a line. A pattern with a literal text, such as\n" +
		"'error: .*', is searched several times faster than one without, such as '[0-9]+ms'."
	cmd.Flags().BoolVarP(&o.IgnoreCase, "ignore-case", "i", false, "ignore the case of letters")
	cmd.Flags().BoolVar(&whole, "past", false, "search all output that is kept")
	cmd.Flags().IntVar(&o.Limit, "limit", 0, "print only the last `n` lines that match (default all)")
	return cmd
}

// printFound prints matches, of which the newest comes first, in the format of grep with the oldest
// first, or with --json as one object a line. of returns the number, the text and the ranges of a match.
func printFound[M any](cmd *cobra.Command, a *App, matches iter.Seq2[M, error], of func(M) (uint64, string, []protocol.Range)) error {
	var found []M
	for m, err := range matches {
		if err != nil {
			return err
		}
		found = append(found, m)
	}
	coloured := colours(Raw(cmd))
	out := bufio.NewWriter(Raw(cmd))
	enc := JSONTo(out)
	for _, m := range slices.Backward(found) {
		number, text, ranges := of(m)
		var err error
		switch {
		case a.JSON:
			err = enc.Encode(m)
		case coloured:
			_, err = fmt.Fprintf(out, "\x1b[32m%d\x1b[m\x1b[36m:\x1b[m%s\n", number, highlight(text, ranges))
		default:
			_, err = fmt.Fprintf(out, "%d:%s\n", number, text)
		}
		if err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if len(found) == 0 {
		return exitcode.New(1, "") // as grep does
	}
	return nil
}

// highlight returns the text of a line with its matches in bold red, like grep.
func highlight(text string, ranges []protocol.Range) string {
	var b strings.Builder
	at := 0
	for _, r := range ranges {
		if r.Start < at || r.End <= r.Start || r.End > len(text) {
			continue // an empty range, or a range of another text
		}
		b.WriteString(plain.Text(text[at:r.Start]) + "\x1b[1;31m" + plain.Text(text[r.Start:r.End]) + "\x1b[m")
		at = r.End
	}
	return b.String() + plain.Text(text[at:])
}

// colours reports whether output to w may have colours.
func colours(w io.Writer) bool {
	return plain.IsStdout(w) && os.Getenv("NO_COLOR") == "" && front.Open(os.Stdout, os.Stdout).Escapes()
}
