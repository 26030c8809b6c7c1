package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
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

func (a *app) searchCommand() *cobra.Command {
	var o client.SearchOptions
	cmd := a.jsonFlag(a.oneSession("search ID REGEXP", "Print the lines of a session's history and screen that match", cobra.ExactArgs(2),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, args []string) error {
			o.Pattern = args[0]
			var found []protocol.Match
			for m, err := range c.Search(cmd.Context(), id, o) {
				if err != nil {
					return err
				}
				found = append(found, m)
			}
			slices.Reverse(found) // the newest match was found first, and must be printed last
			out := bufio.NewWriter(raw(cmd))
			if err := a.printMatches(out, found, colours(raw(cmd))); err != nil {
				return err
			}
			if err := out.Flush(); err != nil {
				return err
			}
			if len(found) == 0 {
				return exitcode.New(1, "") // as grep does
			}
			return nil
		}))
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if o.Limit < 0 {
			return exitcode.WrongUsage(errors.New("--limit must not be negative"))
		}
		return nil
	}
	cmd.Example = "  proxy search build -i 'error|warn'\n  proxy search build --limit 1 '^make: '"
	cmd.Long = "Print the lines of a session's history and screen that match, as NUMBER:TEXT, oldest first.\n\n" +
		"history --before accepts the numbers. Wrapped lines are joined. The exit code is 1 if no line\n" +
		"matches."
	cmd.Flags().BoolVarP(&o.IgnoreCase, "ignore-case", "i", false, "ignore the case of letters")
	cmd.Flags().IntVar(&o.Limit, "limit", 0, "print only the last `n` lines that match (default all)")
	return cmd
}

// printMatches prints matches in the format of grep, or with --json as one object a line.
func (a *app) printMatches(w io.Writer, found []protocol.Match, coloured bool) error {
	enc := jsonTo(w)
	for _, m := range found {
		var err error
		switch {
		case a.json:
			err = enc.Encode(m)
		case coloured:
			_, err = fmt.Fprintf(w, "\x1b[32m%d\x1b[m\x1b[36m:\x1b[m%s\n", m.Line, highlight(m))
		default:
			_, err = fmt.Fprintf(w, "%d:%s\n", m.Line, m.Text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// highlight returns the text of a line with its matches in bold red, like grep.
func highlight(m protocol.Match) string {
	var b strings.Builder
	at := 0
	for _, r := range m.Ranges {
		if r.Start < at || r.End <= r.Start || r.End > len(m.Text) {
			continue // an empty range, or a range of another text
		}
		b.WriteString(plain.Text(m.Text[at:r.Start]) + "\x1b[1;31m" + plain.Text(m.Text[r.Start:r.End]) + "\x1b[m")
		at = r.End
	}
	return b.String() + plain.Text(m.Text[at:])
}

// colours reports whether output to w may have colours.
func colours(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && front.Open(f, f).Escapes()
}
