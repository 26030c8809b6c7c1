package main

import (
	"fmt"
	"time"
)

const (
	// stallTime is how long a link may be silent, while an answer is outstanding, before
	// the user is told. A handoff and a supervisor's upgrade take less than a second.
	stallTime = 3 * time.Second
	stallLook = 250 * time.Millisecond
)

// watchLink tells the user of a link that stalls, and takes that away again when the link
// answers. stop ends it and does not wait: the terminal may be one that takes no output.
func (v *viewer) watchLink() (stop func()) {
	end := make(chan struct{})
	go func() {
		look := time.NewTicker(stallLook)
		defer look.Stop()
		told := false
		for {
			select {
			case <-look.C:
			case <-end:
				return
			}
			switch stalled := v.att.Stalled(); {
			case !told && stalled >= stallTime:
				told = true
				v.term.overlay(fmt.Sprintf("[no answer for %d s; what is typed is kept]", int(stalled.Seconds())))
			case told && stalled < stallTime:
				told = false
				v.term.overlay("")
				if v.term.escapes() {
					v.att.Repaint()
				}
			}
		}
	}()
	return func() { close(end) }
}

// overlay writes a line of ours over the last row, and returns to where the cursor was;
// the session's screen has to be painted anew after it. Elsewhere than on a terminal the
// line goes to standard error, and "" says there that the link answers again.
func (t *terminal) overlay(text string) {
	if !t.escapes() {
		if text == "" {
			text = "[it answers again]"
		}
		fmt.Fprintln(stderr, "proxy:", text)
		return
	}
	if text == "" {
		return
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	if !t.restored {
		_, _ = fmt.Fprintf(t.out, "\x1b7\x1b[999;1H\x1b[0;7m\x1b[2K%s\x1b[0m\x1b8", text)
	}
}
