package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/sysexits"
)

// exportOptions are the flags of export.
type exportOptions struct {
	format, output string
	overwrite      bool
	over           time.Duration
	stretch
}

func (a *App) exportCommand() *cobra.Command {
	o := &exportOptions{}
	cmd := a.oneSession("export ID", "Print all output of a session that is kept, even after its end", cobra.ExactArgs(1),
		func(cmd *cobra.Command, c *client.Client, id protocol.SessionID, _ []string) error {
			if o.isSet() {
				return o.stream(Raw(cmd), func(w io.Writer) error { return o.exportPast(cmd.Context(), c, id, w) })
			}
			var b bytes.Buffer
			if err := o.export(cmd.Context(), c, id, &b); err != nil {
				return err
			}
			return o.stream(Raw(cmd), func(w io.Writer) error { _, err := w.Write(b.Bytes()); return err })
		})
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if o.over < 0 {
			return exitcode.WrongUsagef("--over must not be negative")
		}
		return nil
	}
	cmd.Long = "Print all output of a session that is kept, even after its end.\n\n" +
		"text  the lines of its history and of its screen\n" +
		"ansi  the same lines with colours, for a terminal\n" +
		"html  the same lines as a fragment of HTML\n" +
		"cast  the last bytes of output (ring_bytes) as an asciicast, for asciinema and its players\n\n" +
		"A cast of the last bytes spreads the output evenly over --over, and has only the session's last size.\n\n" +
		"With --from or --until, all output that is stored is exported, also what the history no longer has:\n" +
		"its lines as they were printed, or a cast with the times and sizes. --from 0 is the beginning.\n\n" + momentHelp
	cmd.Example = "  proxy export build > build.txt\n" +
		"  proxy export build --format html -o build.html\n" +
		"  proxy export build --format cast -o build.cast\n" +
		"  proxy export build --format cast --from -1h -o hour.cast"
	f := cmd.Flags()
	ChoiceVar(cmd, &o.format, "format", "text", "the `format`: text, ansi, html or cast", "text", "ansi", "html", "cast")
	f.StringVarP(&o.output, "output", "o", "-", "the `file` to write, - for standard output")
	f.BoolVar(&o.overwrite, "overwrite", false, "replace a file that exists")
	o.stretch.flags(cmd, "export")
	SpanVar(f, &o.over, "over", 10*time.Second, "the duration of a cast; 0 shows all output at once")
	_ = cmd.MarkFlagFilename("output") // the flag exists, so this cannot fail
	return cmd
}

// create creates the file, or empties it. A device or a pipe is opened as it is, because it has nothing to replace,
// and a directory, because the system then tells the mistake. isNew
// reports whether the file did not exist.
func (o *exportOptions) create() (f *os.File, isNew bool, err error) {
	flags := os.O_CREATE | os.O_EXCL
	if o.overwrite {
		flags = os.O_CREATE | os.O_TRUNC
	}
	if old, err := os.Stat(o.output); err == nil && !old.Mode().IsRegular() {
		flags = 0
	}
	f, err = os.OpenFile(o.output, os.O_WRONLY|flags, 0o600) // the output may contain secrets
	if errors.Is(err, os.ErrExist) {
		return nil, false, exitcode.New(sysexits.CantCreate, o.output+" exists; --overwrite replaces it")
	}
	if err != nil {
		return nil, false, exitcode.New(sysexits.CantCreate, err.Error())
	}
	return f, flags&os.O_EXCL != 0, nil
}

// stream writes an export, which may be too long for the memory. If it fails, a new file is removed.
func (o *exportOptions) stream(out io.Writer, export func(io.Writer) error) error {
	var f *os.File
	isNew := false
	if o.output != "-" {
		var err error
		if f, isNew, err = o.create(); err != nil {
			return err
		}
		out = f
	}
	buffered := bufio.NewWriter(out)
	err := export(buffered)
	err = errors.Join(err, buffered.Flush())
	if f != nil {
		if err = errors.Join(err, f.Close()); err != nil && isNew {
			_ = os.Remove(o.output) // the error tells why there is no export
		}
	}
	return err
}

// export writes the session in the chosen format to w.
func (o *exportOptions) export(ctx context.Context, c *client.Client, id protocol.SessionID, w io.Writer) error {
	if o.format == "cast" {
		return o.cast(ctx, c, id, w)
	}
	if o.format == "html" { // the lines of the history have no pictures
		shown, err := c.Screen(ctx, id, client.ScreenOptions{Format: protocol.ScreenCells, Scrollback: protocol.AllScrollback, Pictures: true})
		if err == nil && len(shown.Pictures) > 0 && !shown.Truncated && !shown.Alternate {
			_, err = w.Write(screenHTML(id, shown))
			return err
		}
	}
	screen, err := allLines(ctx, c, id)
	if err != nil {
		return err
	}
	if screen.First > 0 {
		Note("the first %d lines are no longer kept", screen.First)
	}
	noteCut(id, screen.Lines)
	if o.format == "html" {
		_, err := w.Write(screenHTML(id, screen.page()))
		return err
	}
	out := bufio.NewWriter(w)
	as := historyOptions{ansi: o.format == "ansi"}
	for _, l := range screen.Lines {
		as.print(out, l, screen.Looks)
	}
	return out.Flush()
}

// pages has all lines of a session, and its title.
type pages struct {
	*protocol.HistoryContent
	title string
}

// allLines reads history and screen. Wrapped lines are joined. The screen of a full-screen program
// follows the lines of the main screen.
func allLines(ctx context.Context, c *client.Client, id protocol.SessionID) (*pages, error) {
	h, err := lastLines(ctx, c, id, 0)
	if err != nil {
		return nil, err
	}
	now, err := c.Screen(ctx, id, client.ScreenOptions{Format: protocol.ScreenCells})
	if err != nil {
		return nil, err
	}
	h.Lines = dropBlank(h.Lines)
	if now.Alternate {
		for _, l := range now.Cells {
			var line protocol.HistoryLine
			for _, cell := range l.Cells {
				text := cell.Text
				if text == "" {
					text = fmt.Sprintf("%*s", cell.Columns(), "")
				}
				line.Spans = append(line.Spans, protocol.Span{Text: text, Look: cell.Look + len(h.Looks)})
			}
			h.Lines = append(h.Lines, line)
		}
		h.Looks = append(h.Looks, now.Looks...)
	}
	return &pages{h, now.Title}, nil
}

// lastLines reads the last n lines of history and screen; n = 0 reads all.
func lastLines(ctx context.Context, c *client.Client, id protocol.SessionID, n int) (*protocol.HistoryContent, error) {
	all := uint64(math.MaxUint64)
	return readHistory(ctx, c, id, client.HistoryOptions{Before: &all, Lines: n})
}

// dropBlank removes the empty lines at the end, as the command screen does. A screen has such lines
// below the output.
func dropBlank(lines []protocol.HistoryLine) []protocol.HistoryLine {
	for len(lines) > 0 && len(lines[len(lines)-1].Spans) == 0 {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// page returns the lines as a screen that is high enough for all of them.
func (p *pages) page() *protocol.ScreenContent {
	s := &protocol.ScreenContent{Title: p.title, Looks: p.Looks}
	for _, l := range p.Lines {
		var line protocol.ScreenLine
		for _, span := range l.Spans {
			line.Cells = append(line.Cells, protocol.ScreenCell{Text: span.Text, Look: span.Look})
		}
		s.Cells = append(s.Cells, line)
	}
	return s
}

// castPiece is the approximate size of the output in one event of an exported cast, in bytes.
const castPiece = 1 << 10

// cast writes the output in the ring as an asciicast that lasts for o.over.
func (o *exportOptions) cast(ctx context.Context, c *client.Client, id protocol.SessionID, w io.Writer) error {
	info, err := c.SessionInfo(ctx, id)
	if err != nil {
		return err
	}
	data, offset, err := c.Output(ctx, id)
	if err != nil {
		return err
	}
	if offset > 0 {
		Note("the first %d bytes are no longer kept", offset)
	}
	cast := &castWriter{w: w}
	if err := cast.line(newCastHeader(info, info.CreatedAt)); err != nil {
		return err
	}
	for at := 0; at < len(data); {
		n := castCut(data[at:])
		when := time.Duration(float64(o.over) * float64(at) / float64(len(data)))
		if err := cast.writeOutput(when, data[at:at+n]); err != nil {
			return err
		}
		at += n
	}
	return cast.flush(o.over)
}

// castCut returns the length of the next event's output. It ends at a line's end if there is one
// within castPiece.
func castCut(p []byte) int {
	if len(p) <= castPiece {
		return len(p)
	}
	if i := bytes.LastIndexByte(p[:castPiece], '\n'); i >= 0 {
		return i + 1
	}
	return castPiece
}
