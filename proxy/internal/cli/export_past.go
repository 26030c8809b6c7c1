package cli

import (
	"bytes"
	"context"
	"io"
	"strings"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/escseq"
)

// exportPast writes the stored output of the chosen stretch to w.
func (o *exportOptions) exportPast(ctx context.Context, c *client.Client, id protocol.SessionID, w io.Writer) error {
	from, until, err := o.offsets(ctx, c, id)
	if err != nil {
		return err
	}
	r := recording{c, id}
	if o.format == "cast" {
		return o.pastCast(ctx, r, from, until, w)
	}
	lines := &escseq.Lines{MaxLine: protocol.MaxLineBytes, WithStyles: o.format != "text"}
	p := &htmlPage{}
	write := func(text []byte) error {
		if o.format == "html" {
			p.add(text)
			return nil
		}
		_, err := w.Write(bytes.ToValidUTF8(text, []byte("\ufffd")))
		return err
	}
	missing := missingOutput{next: from}
	for part, err := range r.Output(ctx, from, until) {
		if err != nil {
			return err
		}
		missing.note(part)
		lines.Add(part.Data)
		if err := write(lines.Take(false)); err != nil {
			return err
		}
	}
	if last := lines.Take(true); len(last) > 0 {
		if err := write(append(last, '\n')); err != nil {
			return err
		}
	}
	missing.report()
	if o.format != "html" {
		return nil
	}
	_, err = w.Write(screenHTML(id, &p.screen))
	return err
}

// missingOutput counts the output that is missing between the parts of an export.
type missingOutput struct{ next, count uint64 }

// note returns whether output is missing before a part.
func (m *missingOutput) note(part client.PastOutput) bool {
	isMissing := part.Offset > m.next
	if isMissing {
		m.count += part.Offset - m.next
	}
	m.next = part.Offset + uint64(len(part.Data))
	return isMissing
}

func (m *missingOutput) report() {
	if m.count > 0 {
		Note("%d bytes of the output are not stored", m.count)
	}
}

// pastCast writes stored output as an asciicast with the times and sizes at which it was printed. It
// begins with the screen at the first offset.
func (o *exportOptions) pastCast(ctx context.Context, r recording, from, until uint64, w io.Writer) error {
	info, err := r.c.SessionInfo(ctx, r.id)
	if err != nil {
		return err
	}
	first, err := r.State(ctx, protocol.Moment{Offset: &from})
	if err != nil {
		return err
	}
	p := &pastCastWriter{cast: castWriter{w: w}, began: first.PrintedAt, size: protocol.Size{Cols: first.Cols, Rows: first.Rows}}
	info.Size = p.size
	if err := p.cast.line(newCastHeader(info, p.began)); err != nil {
		return err
	}
	if err := p.cast.writeOutput(0, first.State); err != nil {
		return err
	}
	missing := missingOutput{next: from}
	for part, err := range r.Output(ctx, from, until) {
		if err != nil {
			return err
		}
		if missing.note(part) {
			s, err := r.State(ctx, protocol.Moment{Offset: &part.Offset})
			if err != nil {
				return err
			}
			if err := p.cast.writeOutput(p.at, append([]byte(resetTerminal), s.State...)); err != nil {
				return err
			}
		}
		if err := p.add(part); err != nil {
			return err
		}
	}
	missing.report()
	return p.cast.flush(p.at)
}

// A pastCastWriter writes parts of the past to an asciicast.
type pastCastWriter struct {
	cast  castWriter
	began time.Time
	at    time.Duration // time of the last event
	size  protocol.Size
}

// add writes the events of a part.
func (p *pastCastWriter) add(part client.PastOutput) error {
	times, sizes, at := part.Times, part.Sizes, part.Offset
	for len(part.Data) > 0 {
		for len(sizes) > 0 && sizes[0].Offset <= at {
			if sizes[0].Size != p.size {
				p.size = sizes[0].Size
				if err := p.cast.writeSize(p.at, p.size); err != nil {
					return err
				}
			}
			sizes = sizes[1:]
		}
		for len(times) > 0 && times[0].Offset <= at {
			p.at = max(p.at, times[0].At.Sub(p.began))
			times = times[1:]
		}
		n := uint64(len(part.Data))
		if len(sizes) > 0 {
			n = min(n, sizes[0].Offset-at)
		}
		if len(times) > 0 {
			n = min(n, times[0].Offset-at)
		}
		if err := p.cast.writeOutput(p.at, part.Data[:n]); err != nil {
			return err
		}
		part.Data, at = part.Data[n:], at+n
	}
	return nil
}

// An htmlPage is a screen that is high enough for all lines that are added.
type htmlPage struct {
	screen protocol.ScreenContent
	look   protocol.Look // of the next character
	looks  map[protocol.Look]int
}

// add adds lines, each of which ends with a line feed.
func (p *htmlPage) add(lines []byte) {
	for line := range bytes.Lines(lines) {
		p.screen.Cells = append(p.screen.Cells, p.line(bytes.TrimSuffix(line, []byte("\n"))))
	}
}

func (p *htmlPage) line(text []byte) (row protocol.ScreenLine) {
	tokens := escseq.Tokenizer{Room: 256}
	for at := 0; at < len(text); {
		tok := tokens.Next(text, at)
		if tok.Kind == escseq.CSI && tok.Final == 'm' {
			applySGR(&p.look, string(tokens.Body()))
		} else if tok.Kind == escseq.Text {
			row.Cells = append(row.Cells, protocol.ScreenCell{Text: strings.ToValidUTF8(string(text[tok.Start:tok.End]), "\ufffd"), Look: p.number()})
		}
		at = tok.End
	}
	return row
}

// number returns the number of the present look.
func (p *htmlPage) number() int {
	if p.looks == nil {
		p.screen.Looks, p.looks = []protocol.Look{{}}, map[protocol.Look]int{{}: 0}
	}
	n, ok := p.looks[p.look]
	if !ok {
		n = len(p.screen.Looks)
		p.looks[p.look] = n
		p.screen.Looks = append(p.screen.Looks, p.look)
	}
	return n
}
