package front

import (
	"fmt"
	"time"

	"holdfast/proxy/internal/installed"
	"holdfast/shared/plain"
)

const (
	// stallTime is how long a link may be silent while an answer is outstanding, until the user is
	// notified. A handoff or an upgrade of the supervisor takes less than a second.
	stallTime = 3 * time.Second
	// stallLook is the pause between two looks at the link while an answer is outstanding, and calmLook otherwise: an idle viewer
	// must wake the processor rarely.
	stallLook = 250 * time.Millisecond
	calmLook  = time.Second
)

// watchLink notifies the user if the link stalls, and removes the notice when the link answers
// again. stop ends it without waiting, because the terminal may block output.
func (v *viewer) watchLink() (stop func()) {
	end := make(chan struct{})
	go func() {
		look := time.NewTimer(calmLook)
		defer look.Stop()
		isShown := false
		for {
			select {
			case <-look.C:
			case <-end:
				return
			}
			stalled := v.att.Stalled()
			if isShown || stalled > 0 {
				look.Reset(stallLook)
			} else {
				look.Reset(calmLook)
			}
			switch {
			case !isShown && stalled >= stallTime:
				isShown = true
				v.term.overlay(fmt.Sprintf("[no answer for %d s; input is kept]", int(stalled.Seconds())))
			case isShown && stalled < stallTime:
				isShown = false
				v.term.overlay("")
				if v.term.Escapes() {
					v.att.Repaint()
				}
			}
		}
	}()
	return func() { close(end) }
}

// overlay writes a line over the last row of the terminal, and restores the cursor. The session's
// screen must be repainted after it. If the output is no terminal, the line is written to standard
// error; an empty text then reports that the link answers again.
func (t *Terminal) overlay(text string) {
	if !t.Escapes() {
		if text == "" {
			text = "[the proxy answers again]"
		}
		fmt.Fprintln(plain.Stderr, installed.Name()+":", text)
		return
	}
	if text == "" {
		return
	}
	if cols := t.Size().Cols; cols > 0 {
		text = text[:min(len(text), cols)] // a longer line would scroll the screen
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	if !t.restored {
		_, _ = fmt.Fprintf(t.out, "\x1b7\x1b[999;1H\x1b[0;7m\x1b[2K%s\x1b[0m\x1b8", text)
	}
}
