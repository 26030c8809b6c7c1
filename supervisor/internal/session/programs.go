package session

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"holdfast/protocol"
	"holdfast/shared/mask"
	"holdfast/shared/plain"
	"holdfast/supervisor/internal/screen"
)

// Programs report their status with OSC 7501, the program status protocol, revision 0.2
// (superlogical.com/rex/docs/build/program-status). The rules and the limits of this file are its own,
// except for maxStatuses and maxMessage, which bound what a session saves.
const (
	maxStatuses = 64  // the least that the protocol demands; more drop the one that was reported longest ago
	maxMessage  = 512 // bytes of a message that are kept
	maxTitle    = 192 // bytes of a title
	maxLevels   = 8   // parts of an id
	maxID       = 128 // bytes of an id
	maxWord     = 32  // bytes of a name, and of a part of an id
)

// programs are the reports of the programs of a session that hold. loop owns it.
type programs struct {
	Reports []protocol.ProgramStatus `json:"reports,omitempty"` // by the time of the report

	limit     *rate.Limiter
	isWaiting bool // an event will be published later
}

// apply updates the reports with marks, and tells whether they have changed.
func (p *programs) apply(marks []screen.Mark, now time.Time) (changed bool) {
	for _, m := range marks {
		before := len(p.Reports)
		switch m.Kind {
		case screen.MarkReport:
			changed = p.report(m.Line, now) || changed
			continue
		case screen.MarkReset:
			p.Reports = nil
		case screen.MarkPrompt: // the program has ended
			p.keepResults()
		}
		changed = changed || len(p.Reports) != before
	}
	return changed
}

// keepResults drops the reports of programs that have ended, except for their results.
func (p *programs) keepResults() {
	p.Reports = slices.DeleteFunc(p.Reports, func(r protocol.ProgramStatus) bool {
		return r.State != protocol.ProgramDone && r.State != protocol.ProgramError
	})
}

// report applies one report, which replaces the one with its id. It returns false if the report is invalid.
func (p *programs) report(text string, now time.Time) bool {
	r, ok := parseReport(text)
	if !ok {
		return false
	}
	if r.State == "clear" {
		p.Reports = slices.DeleteFunc(p.Reports, func(o protocol.ProgramStatus) bool {
			return r.ID == "" || o.ID == r.ID || strings.HasPrefix(o.ID, r.ID+"/")
		})
		return true
	}
	r.At = now
	p.Reports = slices.DeleteFunc(p.Reports, func(o protocol.ProgramStatus) bool { return o.ID == r.ID })
	if len(p.Reports) >= maxStatuses {
		p.Reports = p.Reports[1:]
	}
	p.Reports = append(p.Reports, r)
	return true
}

// urgency orders the states: those that need a person first.
var urgency = []protocol.ProgramState{protocol.ProgramBlocked, protocol.ProgramError, protocol.ProgramWorking, protocol.ProgramDone, protocol.ProgramIdle}

// first returns the report that needs a person most, the last one of those with its state, or nil. A report
// without the name of the program gets that of the part above it. m masks its secrets.
func (p *programs) first(m *mask.Masker) *protocol.ProgramStatus {
	if len(p.Reports) == 0 {
		return nil
	}
	r := slices.MinFunc(p.Reports, func(a, b protocol.ProgramStatus) int {
		return cmp.Or(slices.Index(urgency, a.State)-slices.Index(urgency, b.State), b.At.Compare(a.At))
	})
	for id := r.ID; r.App == "" && id != ""; {
		id = id[:max(strings.LastIndexByte(id, '/'), 0)]
		if i := slices.IndexFunc(p.Reports, func(o protocol.ProgramStatus) bool { return o.ID == id }); i >= 0 {
			r.App = p.Reports[i].App
		}
	}
	r.Title, r.Message = m.CutText(r.Title), m.CutText(r.Message)
	return &r
}

// parseReport parses the pairs of a report. Its state is "clear" if it removes reports.
func parseReport(text string) (r protocol.ProgramStatus, ok bool) {
	for pair := range strings.SplitSeq(text, ":") {
		key, value, found := strings.Cut(pair, "=")
		if !found {
			continue
		}
		valid := true
		switch key {
		case "state":
			r.State = protocol.ProgramState(value)
		case "kind":
			r.Kind = value
		case "id":
			parts := strings.Split(value, "/")
			valid = len(value) <= maxID && len(parts) <= maxLevels && !slices.ContainsFunc(parts, func(s string) bool { return !isWord(s) })
			r.ID = value
		case "app":
			r.App, valid = value, isWord(value)
		case "title":
			r.Title, valid = decodeText(value, maxTitle)
		case "msg":
			r.Message, valid = decodeText(value, 2048)
		case "progress":
			if n, err := strconv.Atoi(value); err == nil && n >= 0 && n <= 100 {
				r.Progress = &n
			}
		}
		if !valid {
			return r, false
		}
	}
	if r.State != protocol.ProgramBlocked || !slices.Contains([]string{"permission", "question", "auth"}, r.Kind) {
		r.Kind = ""
	}
	if r.State != protocol.ProgramWorking && r.State != protocol.ProgramBlocked {
		r.Progress = nil
	}
	r.Message = plain.Cut(r.Message, maxMessage)
	return r, r.State == "clear" || slices.Contains(urgency, r.State)
}

// isWord reports whether s is a name, or a part of an id.
func isWord(s string) bool {
	return s != "" && len(s) <= maxWord && !strings.ContainsFunc(s, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_.+-", c))
	})
}

// decodeText decodes a text of one line, and removes the characters that change the direction of the text around
// it. It returns false if the text has control characters, or is too long.
func decodeText(s string, most int) (string, bool) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		b, err = base64.RawStdEncoding.DecodeString(s)
	}
	if err != nil || len(b) > most || !utf8.Valid(b) || strings.ContainsFunc(string(b), unicode.IsControl) {
		return "", false
	}
	return strings.Map(func(c rune) rune {
		if unicode.Is(unicode.Bidi_Control, c) {
			return -1
		}
		return c
	}, string(b)), true
}

// Of many reports only some cause an event. The last one always does.
const (
	reportRate  = 4 // a second
	reportBurst = 8
)

// noteReports applies marks to the reports, and publishes that they have changed.
func (s *Session) noteReports(marks []screen.Mark) {
	p := &s.saved.Programs
	if !p.apply(marks, s.cfg.Now()) {
		return
	}
	s.noteChange()
	if p.limit == nil {
		p.limit = rate.NewLimiter(reportRate, reportBurst)
	}
	if p.isWaiting {
		return
	}
	if p.limit.Allow() {
		s.publishEvent(protocol.EventProgramStatus)
		return
	}
	p.isWaiting = true
	time.AfterFunc(time.Second/reportRate, func() { s.do(s.publishPendingReports) })
}

// publishPendingReports publishes that reports have changed, if that waits.
func (s *Session) publishPendingReports() {
	if s.saved.Programs.isWaiting {
		s.saved.Programs.isWaiting = false
		s.publishEvent(protocol.EventProgramStatus)
	}
}
