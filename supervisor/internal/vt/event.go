package vt

import "fmt"

// Event is something that others than the screen may want to know.
type Event struct {
	Kind  EventKind
	Text  string // the title, directory, message or command line
	Title string // of a notification that has one
	Code  int    // of a command that has ended; -1 if it did not say
	Line  uint64 // of Erased: the number of the first line on the screen
}

// EventKind says what an Event is about.
type EventKind int

// The kinds of events.
const (
	Bell           EventKind = iota
	TitleChanged             // OSC 0 and 2
	WorkDirChanged           // OSC 7 and OSC 1337 CurrentDir
	Notification             // OSC 9, 99 and 777
	PromptStarted            // OSC 133 A
	PromptEnded              // OSC 133 B: what is typed now is the command
	CommandLine              // OSC 633 E, which comes before the command starts
	CommandStarted           // OSC 133 C; it may have the line
	CommandEnded             // OSC 133 D
	Erased                   // the whole of the normal screen: what is there then was printed since
)

func (t *Term) event(e Event) {
	if t.config.Events != nil {
		t.config.Events(e)
	}
}

// reply queues an answer to the program. Answers that nobody fetches are kept
// up to maxReply; all that follow are dropped until somebody does.
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

// replyAlone is reply for an answer that no terminal that shows the output may
// give in this one's place.
func (t *Term) replyAlone(format string, args ...any) {
	before := len(t.replies)
	t.replyf(format, args...)
	t.alone = append(t.alone, t.replies[before:]...)
}

// Replies returns what the program's questions are answered with, once.
func (t *Term) Replies() []byte {
	r := t.replies
	t.replies, t.alone, t.replyLost = nil, nil, false
	return r
}

// RepliesAlone returns those of Replies that have to be given also if a terminal
// that shows the output answers the others: about what this terminal keeps and
// the other one does not know.
func (t *Term) RepliesAlone() []byte { return t.alone }
