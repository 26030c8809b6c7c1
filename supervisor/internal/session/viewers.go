package session

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"holdfast/protocol"
)

// viewers are the attachments of a session, and the viewers that have lost their connection. A
// lost viewer counts for reconnectTime, because its client is expected to attach again over
// another proxy or connection. loop owns it.
type viewers struct {
	attached    map[*Attachment]struct{}
	shadowCount int // attachments that are no viewers
	echoCount   int // attachments that receive the input of all viewers
	departed    []departure
	lost        map[string]lost
	alarm       // runs while there are lost viewers
}

// departure is an attachment that was removed, but does not know it yet. by is the attachment that
// took its place, or nil.
type departure struct{ a, by *Attachment }

// lost is a viewer that has lost its connection.
type lost struct {
	number     uint64
	window     protocol.Size // zero if it does not count
	until      time.Time
	since      time.Time // when the viewer attached first
	couldWrite bool      // it was a viewer that may write
	inPaste    bool      // its input ends within a bracketed paste, which its next attachment continues
	focused    bool      // its terminal had the focus, which it does not report again
}

// add adds an attachment.
func (v *viewers) add(a *Attachment) {
	if v.attached == nil {
		v.attached = make(map[*Attachment]struct{})
	}
	v.attached[a] = struct{}{}
	switch {
	case a.shadow:
		v.shadowCount++
	case a.spec.Typed:
		v.echoCount++
	}
}

// join adds the attachment of a viewer. A viewer that returns keeps its number, and the time since
// when it is attached: it was lost, or an earlier attachment of it was replaced by a. Each other
// viewer gets the next number of count.
func (v *viewers) join(a *Attachment, count *uint64, now time.Time) (returns, wasLost bool) {
	wasLost = v.takeBack(a)
	returns = a.number != 0
	if !returns {
		*count++
		a.number = *count
	}
	if a.since.IsZero() {
		a.since = now
	}
	v.add(a)
	return returns, wasLost
}

// has reports whether a is attached.
func (v *viewers) has(a *Attachment) bool {
	_, ok := v.attached[a]
	return ok
}

// remove removes an attachment. by is the attachment that takes its place, or nil.
// notifyDeparted must follow.
func (v *viewers) remove(a, by *Attachment) {
	delete(v.attached, a)
	v.departed = append(v.departed, departure{a, by})
	switch {
	case a.shadow:
		v.shadowCount--
	case a.spec.Typed:
		v.echoCount--
	}
}

// notifyDeparted ends the attachments that were removed. It must be called after the change was
// published, so that a viewer that knows its end does not find itself in the session's info.
func (v *viewers) notifyDeparted() {
	for _, d := range v.departed {
		d.a.end(d.by)
	}
	v.departed = nil
}

// count returns the number of attached viewers.
func (v *viewers) count() int { return len(v.attached) - v.shadowCount }

// of returns the attachment of a writer, or nil.
func (v *viewers) of(writer string) *Attachment {
	for a := range v.attached {
		if a.spec.Writer == writer {
			return a
		}
	}
	return nil
}

// isGone reports whether the writer has no attachment, and is not expected back.
func (v *viewers) isGone(writer string) bool {
	_, isLost := v.lost[writer]
	return !isLost && v.of(writer) == nil
}

// canWrite reports whether the writer has an attachment that may write, or had such an
// attachment and is expected back. A read-only client must not use the name of such a writer.
func (v *viewers) canWrite(writer string) bool {
	for a := range v.attached {
		if a.spec.Writer == writer && a.canWrite() {
			return true
		}
	}
	return v.lost[writer].couldWrite
}

// conflicts returns the attachments that cannot exist beside a: those of the same writer, and
// the rivals, which exclude a or which a excludes.
func (v *viewers) conflicts(a *Attachment) (own, rivals []*Attachment) {
	for other := range v.attached {
		switch {
		case other.spec.Writer == a.spec.Writer:
			own = append(own, other)
		case a.spec.Mode == protocol.ModeReadOnly || other.spec.Mode == protocol.ModeReadOnly:
		case a.spec.Mode == protocol.ModeExclusive || other.spec.Mode == protocol.ModeExclusive:
			rivals = append(rivals, other)
		}
	}
	return own, rivals
}

// infos returns the first protocol.MaxViewersInfo attached viewers, in the order in which they
// attached.
func (v *viewers) infos() []protocol.ViewerInfo {
	if v.count() == 0 {
		return nil
	}
	var first []*Attachment
	for a := range v.attached {
		if a.shadow {
			continue
		}
		at, _ := slices.BinarySearchFunc(first, a.number, func(b *Attachment, number uint64) int { return cmp.Compare(b.number, number) })
		if at < protocol.MaxViewersInfo {
			first = slices.Insert(first, at, a)
			first = first[:min(len(first), protocol.MaxViewersInfo)]
		}
	}
	infos := make([]protocol.ViewerInfo, len(first))
	for i, a := range first {
		infos[i] = protocol.ViewerInfo{Client: a.spec.Client, Mode: a.spec.Mode, Since: a.since, Window: a.window}
	}
	return infos
}

// windows returns the windows that the size policy may choose.
func (v *viewers) windows() iter.Seq[window] {
	return func(yield func(window) bool) {
		for a := range v.attached {
			if a.countsForSize() && !yield(window{a.spec.Writer, a.number, a.window}) {
				return
			}
		}
		for writer, l := range v.lost {
			if l.window != (protocol.Size{}) && !yield(window{writer, l.number, l.window}) {
				return
			}
		}
	}
}

// canDecide reports whether a may decide although it has sent no input. It may if no viewer
// decides, or if the deciding viewer has no window that counts, but a has one.
func (v *viewers) canDecide(a *Attachment, decider string) bool {
	if l, ok := v.lost[decider]; ok {
		return l.window == (protocol.Size{}) && a.countsForSize()
	}
	now := v.of(decider)
	return now == nil || !now.countsForSize() && a.countsForSize()
}

// haveFocus reports whether the terminal of any viewer has the focus.
func (v *viewers) haveFocus() bool {
	for a := range v.attached {
		if a.focused {
			return true
		}
	}
	return false
}

// addLost remembers a viewer that has lost its connection, so that it counts for reconnectTime.
func (v *viewers) addLost(a *Attachment) {
	if a.shadow || len(v.lost) >= maxAttachments {
		return
	}
	if v.lost == nil {
		v.lost = make(map[string]lost)
	}
	v.lost[a.spec.Writer] = lost{
		number: a.number, window: a.countedWindow(), until: time.Now().Add(reconnectTime), since: a.since, couldWrite: a.canWrite(), inPaste: a.inPaste, focused: a.focused,
	}
	if v.c == nil {
		v.set(reconnectTime)
	}
}

// takeBack forgets a lost viewer because a is its new attachment, and gives a its number, the
// state of its input and its focus. It reports whether there was such a viewer.
func (v *viewers) takeBack(a *Attachment) bool {
	l, ok := v.lost[a.spec.Writer]
	if ok {
		a.number, a.since, a.inPaste, a.focused = l.number, l.since, l.inPaste, l.focused
		delete(v.lost, a.spec.Writer)
	}
	return ok
}

// expireLost forgets the lost viewers that did not attach again in time, and returns their
// writers.
func (v *viewers) expireLost() (gone []string) {
	v.disarm()
	now, first := time.Now(), time.Time{}
	for writer, l := range v.lost {
		switch {
		case !l.until.After(now):
			delete(v.lost, writer)
			gone = append(gone, writer)
		case first.IsZero() || l.until.Before(first):
			first = l.until
		}
	}
	if !first.IsZero() {
		v.set(first.Sub(now))
	}
	return gone
}

// anyLostCouldWrite reports whether a lost viewer may write.
func (v *viewers) anyLostCouldWrite() bool {
	for _, l := range v.lost {
		if l.couldWrite {
			return true
		}
	}
	return false
}

// savedViewer is a viewer for a successor, to which all viewers are lost ones.
type savedViewer struct {
	Writer     string        `json:"writer"`
	Number     uint64        `json:"number"`
	Window     protocol.Size `json:"window"`
	Since      time.Time     `json:"since,omitzero"`
	CouldWrite bool          `json:"typed,omitempty"`   // whether the viewer may write
	InPaste    bool          `json:"pasting,omitempty"` // the input ends within a bracketed paste
}

// saved returns the viewers for a successor, in the order in which they attached.
func (v *viewers) saved() (all []savedViewer) {
	for a := range v.attached {
		if !a.shadow {
			all = append(all, savedViewer{a.spec.Writer, a.number, a.countedWindow(), a.since, a.canWrite(), a.inPaste})
		}
	}
	for writer, l := range v.lost {
		all = append(all, savedViewer{writer, l.number, l.window, l.since, l.couldWrite, l.inPaste})
	}
	slices.SortFunc(all, func(a, b savedViewer) int { return int(a.Number) - int(b.Number) })
	return all
}

// restore makes the viewers that were attached to the predecessor lost viewers, because they
// are expected to attach again.
func (v *viewers) restore(saved []savedViewer) {
	if len(saved) == 0 {
		return
	}
	v.lost = make(map[string]lost)
	for _, l := range saved[:min(len(saved), maxAttachments)] {
		v.lost[l.Writer] = lost{number: l.Number, window: l.Window, until: time.Now().Add(reconnectTime), since: l.Since, couldWrite: l.CouldWrite, inPaste: l.InPaste}
	}
	v.set(reconnectTime)
}
