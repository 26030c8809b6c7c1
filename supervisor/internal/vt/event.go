package vt

import "fmt"

// An Event is a change that packages outside of the terminal may act on.
type Event struct {
	Kind  EventKind
	Text  string // the title, directory, message or command line
	Title string // title of a Notification, or ""
	Code  int    // exit code of CommandEnded, -1 if the shell did not report one; format of PicturePrinted
	Line  uint64 // number of the first line on the screen, for Erased; of the cursor's line, for CommandStarted and CommandEnded (commandEvent)
	Byte  int    // bytes of that line's text before the cursor; for CommandStarted and CommandEnded

	// Begin and End are the place of the sequence of CommandStarted or CommandEnded, in bytes from
	// the beginning of the piece that WriteSome was given. Begin is negative if the sequence begins
	// in an earlier piece. If the program has printed ignored controls within the sequence, Begin is
	// later than its true beginning by as many bytes.
	Begin, End int
}

// EventKind is the kind of an Event.
type EventKind int

// The kinds of events.
const (
	Bell            EventKind = iota
	TitleChanged              // OSC 0 and 2
	WorkDirChanged            // OSC 7 and OSC 1337 CurrentDir
	Notification              // OSC 9, 99 and 777
	PromptStarted             // OSC 133 A
	PromptEnded               // OSC 133 B: input from here on is the command
	CommandLine               // OSC 633 E; it precedes CommandStarted
	CommandStarted            // OSC 133 C; Text may have the command line
	CommandEnded              // OSC 133 D
	Erased                    // the whole normal screen was erased
	ProgramReported           // OSC 7501; Text has the report
	FullReset                 // RIS
	PicturePrinted            // a picture, which viewers may not show as this terminal does
)

func (t *Term) event(e Event) {
	if t.config.Events != nil {
		t.config.Events(e)
	}
}

// reply queues an answer to the program. If the unread answers would exceed maxReply bytes,
// this answer and all later ones are dropped until Replies is called.
func (t *Term) reply(s string) {
	if t.replyLost = t.replyLost || len(t.replies)+len(s) > maxReply; !t.replyLost {
		t.replies = append(t.replies, s...)
	}
}

func (t *Term) replyf(format string, args ...any) {
	if !t.replyLost {
		t.reply(fmt.Sprintf(format, args...))
	}
}

// replyRequired queues an answer that the program must get from this core, even if a viewer's
// terminal answers all other questions.
func (t *Term) replyRequired(format string, args ...any) {
	before := len(t.replies)
	t.replyf(format, args...)
	t.requiredReplies = append(t.requiredReplies, t.replies[before:]...)
}

// Replies returns the queued answers to the program's questions, and removes them.
func (t *Term) Replies() []byte {
	r := t.replies
	t.replies, t.requiredReplies, t.replyLost = nil, nil, false
	return r
}

// RequiredReplies returns those of the queued answers that the program must get even if a
// viewer's terminal answers its questions: they are about features that this core has and that
// the viewer's terminal may lack, or the other way round.
func (t *Term) RequiredReplies() []byte { return t.requiredReplies }
