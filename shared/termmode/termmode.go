// Package termmode lists the modes that a program sets and resets in its terminal.
//
// Invariant: the table All is the only list of modes. The terminal core binds each mode that it
// keeps to its state, and derives from the table its answers to DECRQM, its resets and its
// snapshots. A client that is attached to a terminal derives from it how to reset that terminal.
//
// Not here: the state of a mode (package vt), and terminal state that is no mode, such as the
// scroll region (package vt, the command attach).
package termmode

import "strconv"

// A Mode is one row of the table.
type Mode struct {
	Number  int
	Private bool   // DECSET and DECRST change it; otherwise SM and RM do
	Name    string // DEC's or xterm's name, or a short description
	Default bool   // the state in a new terminal

	Core     Core
	Resets   Resets
	Snapshot Snapshot
	Undo     Undo
	IsInput  bool // it changes the bytes that the terminal sends, or makes the terminal send more
}

// Core tells how the terminal core treats a mode.
type Core byte

// The treatments of a mode by the terminal core.
const (
	Unknown     Core = iota // ignores it, and reports it as unknown
	Kept                    // keeps its state
	Acts                    // does something when it is set or reset, and keeps no state
	AlwaysSet               // reports it as permanently set
	AlwaysReset             // reports it as permanently reset
)

// Resets tells which resets restore the default of a mode, as in xterm.js.
type Resets byte

// The resets. They can be combined.
const (
	BySoft Resets = 1 << iota // DECSTR
	ByHard                    // RIS
	ByNone Resets = 0
	ByBoth        = BySoft | ByHard
)

// Snapshot tells how a snapshot restores a mode.
type Snapshot byte

// The places of a mode in a snapshot.
const (
	Absent   Snapshot = iota // it is not restored
	First                    // before the text, because it changes how text is counted
	Screen                   // with the alternate screen
	Quiet                    // set or reset; the mode does not change how text is printed
	Mouse                    // at most one of these modes is set
	Encoding                 // at most one of these modes is set
	IfKnown                  // set or reset if the program has done so
	Printing                 // behind the text, because it changes how text is printed
	Saved                    // a saved screen has it, and a viewer never gets it
)

// Undo tells how an attached terminal is reset when the view of a session ends.
type Undo byte

// The ways to reset a mode, in the order in which the terminal is reset.
const (
	Stays     Undo = iota // it is not reset
	AtOnce                // to the default, before the normal screen is shown again
	Alternate             // by a reset that shows the normal screen again
	OnNormal              // to the default, after the normal screen is shown again
	ToInitial             // to the state that the terminal reported before the view
)

// Numbers of modes that other code treats separately. Insert and NewLine are not private.
const (
	Insert          = 4
	NewLine         = 20
	Origin          = 6
	Wraparound      = 7
	Keypad          = 66
	Margins         = 69
	AlternateScroll = 1007
	AlternateScreen = 1047
	Synchronized    = 2026
	Graphemes       = 2027
	SizeReports     = 2048
)

const (
	ansi    = false
	private = true
	off     = false
	on      = true
	input   = true
	display = false
)

// All has the modes in the order in which an attached terminal is reset. In it, synchronized
// output is the first mode, because the terminal holds all other changes back while it is set.
// Origin is the first mode on the normal screen, because its reset moves the cursor home.
var All = []Mode{
	{Synchronized, private, "synchronized output", off, Kept, ByBoth, Printing, AtOnce, display},
	{9, private, "X10 mouse", off, Kept, ByHard, Mouse, AtOnce, input},
	{1000, private, "VT200 mouse", off, Kept, ByHard, Mouse, AtOnce, input},
	{1001, private, "highlight mouse", off, Unknown, ByNone, Absent, AtOnce, input},
	{1002, private, "drag mouse", off, Kept, ByHard, Mouse, AtOnce, input},
	{1003, private, "any-motion mouse", off, Kept, ByHard, Mouse, AtOnce, input},
	{1004, private, "focus reports", off, Kept, ByBoth, Quiet, AtOnce, input},
	{1005, private, "UTF-8 mouse encoding", off, AlwaysReset, ByNone, Absent, AtOnce, input},
	{1006, private, "SGR mouse encoding", off, Kept, ByHard, Encoding, AtOnce, input},
	{1015, private, "urxvt mouse encoding", off, AlwaysReset, ByNone, Absent, AtOnce, input},
	{1016, private, "SGR mouse encoding in pixels", off, Kept, ByHard, Encoding, AtOnce, input},
	{2004, private, "bracketed paste", off, Kept, ByBoth, Quiet, AtOnce, input},
	{2031, private, "colour scheme reports", off, Kept, ByHard, Quiet, AtOnce, input},
	{SizeReports, private, "size reports", off, Kept, ByHard, Saved, AtOnce, input},
	{9001, private, "win32 input", off, Kept, ByHard, Quiet, AtOnce, input},
	{1, private, "DECCKM", off, Kept, ByBoth, Quiet, AtOnce, input},
	{Keypad, private, "DECNKM", off, Kept, ByBoth, Quiet, AtOnce, input},
	{5, private, "DECSCNM", off, Unknown, ByNone, Absent, AtOnce, display},

	{47, private, "alternate screen", off, Kept, ByHard, Screen, Alternate, display},
	{AlternateScreen, private, "alternate screen, cleared", off, Kept, ByHard, Screen, Alternate, display},
	{1049, private, "alternate screen with the cursor saved", off, Kept, ByHard, Screen, Alternate, display},

	{Origin, private, "DECOM", off, Kept, ByBoth, Printing, OnNormal, display},
	{Margins, private, "DECLRMM", off, Unknown, ByNone, Absent, OnNormal, display},
	{Insert, ansi, "IRM", off, Kept, ByBoth, Printing, OnNormal, display},
	{NewLine, ansi, "LNM", off, Kept, ByNone, Printing, OnNormal, display},
	{25, private, "DECTCEM", on, Kept, BySoft, Quiet, OnNormal, display},
	{Wraparound, private, "DECAWM", on, Kept, ByBoth, Printing, OnNormal, display},

	// Terminals differ in the initial state of these modes. The core resets grapheme clusters to
	// the session's setting, and forgets that a program has set or reset alternate scroll.
	{Graphemes, private, "grapheme clusters", off, Kept, ByHard, First, ToInitial, display},
	{AlternateScroll, private, "alternate scroll", off, Kept, ByHard, IfKnown, ToInitial, input},
	{12, private, "blinking cursor", off, Kept, ByNone, Quiet, ToInitial, display},
	{45, private, "reverse wraparound", off, Kept, ByBoth, Quiet, ToInitial, display},

	{1048, private, "saved cursor", off, Acts, ByNone, Absent, Stays, display},
	{2, private, "DECANM", on, Acts, ByNone, Absent, Stays, display},
	{8, private, "DECARM", on, AlwaysSet, ByNone, Absent, Stays, display},
	{67, private, "DECBKM", off, AlwaysReset, ByNone, Absent, Stays, display},
	{1036, private, "Meta sends ESC", on, Unknown, ByNone, Absent, Stays, input},
	{1039, private, "Alt sends ESC", off, Unknown, ByNone, Absent, Stays, input},
	{2, ansi, "KAM", off, AlwaysReset, ByNone, Absent, Stays, display},
	{12, ansi, "SRM", on, AlwaysSet, ByNone, Absent, Stays, display},
}

// Parameter returns the mode as a parameter of its sequences, such as "?1049" or "4".
func (m *Mode) Parameter() string {
	if m.Private {
		return "?" + strconv.Itoa(m.Number)
	}
	return strconv.Itoa(m.Number)
}

// Sequence returns the sequence that sets or resets the mode.
func (m *Mode) Sequence(set bool) string {
	return "\x1b[" + m.Parameter() + string(Final(set))
}

// Final returns the final byte of a sequence that sets or resets modes.
func Final(set bool) byte {
	if set {
		return 'h'
	}
	return 'l'
}
