package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
)

// screenOptions are the flags of screen.
type screenOptions struct {
	text, ansi, html bool
	scrollback, size string
	client.ScreenOptions
}

func (a *App) screenCommand() *cobra.Command {
	o := &screenOptions{}
	cmd := a.JSONFlag(a.oneSession("screen ID", "Print a session's screen, or its last lines", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			content, err := c.Screen(cmd.Context(), id, o.ScreenOptions)
			if err != nil {
				return err
			}
			if content.Inexact {
				Note("output before this moment is not stored, so the screen may have been another one")
			}
			if a.JSON {
				return JSONTo(cmd.OutOrStdout()).Encode(content) // on one line, because there are many cells
			}
			if content.Truncated { // --json has a field for it
				Note("the first lines are left out, because there are too many for one answer; proxy export %s prints all", id)
			}
			return o.print(Raw(cmd), id, content)
		}))
	cmd.Long = "Print a session's screen, or its last lines, as they are now or as they were at an earlier moment.\n\n" + momentHelp
	cmd.Example = "  proxy screen build --lines 20\n  proxy screen build --at -5m\n  proxy screen build --at 'command -2' --ansi\n  proxy screen build --json\n  proxy screen build --html --scrollback >build.html"
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return o.check(a.JSON, cmd.Flags().Changed("scrollback")) }
	f := cmd.Flags()
	f.BoolVar(&o.text, "text", false, "plain text (the default)")
	f.BoolVar(&o.ansi, "ansi", false, "text with colours, for a terminal")
	f.BoolVar(&o.html, "html", false, "a fragment of HTML, with colours")
	f.IntVar(&o.Lines, "lines", 0, "print only the last `n` lines; without --scrollback they may begin above the screen")
	f.StringVar(&o.scrollback, "scrollback", "", "print also `n` lines above the screen; without =n all of them")
	f.Lookup("scrollback").NoOptDefVal = "all"
	f.StringVar(&o.size, "size", "", "lay the screen out for `COLSxROWS` (default the session's size)")
	MomentVar(f, &o.At, "at", "print the screen as it was at this `MOMENT`")
	f.BoolVar(&o.NonEmpty, "non-empty", false, "print only lines that are not blank")
	cmd.MarkFlagsMutuallyExclusive("text", "ansi", "html", "json")
	return cmd
}

// check reports invalid options, and sets the fields of the request.
func (o *screenOptions) check(cells, scrollback bool) error {
	switch {
	case cells, o.html:
		o.Format, o.Pictures = protocol.ScreenCells, o.html
	case o.ansi:
		o.Format = protocol.ScreenANSI
	}
	var err error
	if o.Lines < 0 {
		err = errors.New("--lines must not be negative")
	}
	if scrollback {
		n, bad := strconv.Atoi(o.scrollback)
		switch {
		case o.scrollback == "all":
			n = protocol.AllScrollback
		case bad != nil || n < 0:
			err = errors.Join(err, fmt.Errorf("--scrollback must be a number of lines or all, it is %.40q", o.scrollback))
		}
		o.Scrollback = n
	}
	if err != nil {
		return exitcode.WrongUsage(err)
	}
	if o.size == "" {
		return nil
	}
	size, err := parseSize(o.size)
	o.Cols, o.Rows = size.Cols, size.Rows
	return err
}

// ScreenFormat returns the format in which a command asks for a screen.
func ScreenFormat(ansi, cells bool) protocol.ScreenFormat {
	o := &screenOptions{ansi: ansi}
	_ = o.check(cells, false) // only other options can be wrong
	return o.Format
}

// PrintScreen prints a screen that ScreenFormat has the format of, and not as cells.
func PrintScreen(out io.Writer, ansi bool, id protocol.SessionID, content *protocol.ScreenContent) error {
	return (&screenOptions{ansi: ansi}).print(out, id, content)
}

// print prints the screen in the chosen format.
func (o *screenOptions) print(w io.Writer, id protocol.SessionID, c *protocol.ScreenContent) (err error) {
	switch {
	case o.ansi:
		_, err = io.WriteString(w, c.ANSI)
	case o.html:
		_, err = w.Write(screenHTML(id, c))
	default:
		for _, l := range c.Lines {
			if _, err = fmt.Fprintln(w, l); err != nil {
				return err
			}
		}
	}
	return err
}
