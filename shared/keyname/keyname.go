// Package keyname translates the names of keys, such as C-c and PageUp, into what a terminal sends for them. SPEC.md lists the
// names.
//
// Invariant: whether a name is a key depends on the name alone, so that a command can check names before it sends anything.
//
// Not here: the reading of keys from what a terminal sends (package escseq).
package keyname

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Modes are the modes of a terminal that change what it sends for a key.
type Modes struct {
	ApplicationCursor bool // mode 1 (DECCKM)
	NewLine           bool // mode 20 (LNM)
}

// modifiers are the modifiers of a key, with the bits that xterm assigns to them.
type modifiers int

const (
	shift modifiers = 1 << iota
	meta
	control
)

// These are the keys with names. Their sequences are those in xterm's manual on control
// sequences, without modifyOtherKeys.
var (
	// cursorKeys send CSI and a letter, or SS3 and the letter if mode 1 (DECCKM) is set.
	cursorKeys = map[string]byte{"Up": 'A', "Down": 'B', "Right": 'C', "Left": 'D', "Home": 'H', "End": 'F'}
	// ss3Keys send SS3 and a letter.
	ss3Keys = map[string]byte{"F1": 'P', "F2": 'Q', "F3": 'R', "F4": 'S'}
	// tildeKeys send CSI, a number and a tilde.
	tildeKeys = map[string]int{
		"Insert": 2, "Delete": 3, "PageUp": 5, "PageDown": 6,
		"F5": 15, "F6": 17, "F7": 18, "F8": 19, "F9": 20, "F10": 21, "F11": 23, "F12": 24,
	}
	// plainKeys send characters, which may depend on the modifiers. Meta adds ESC before each of
	// them.
	plainKeys = map[string]map[modifiers]string{
		"Enter":     {0: "\r"},
		"Tab":       {0: "\t", shift: "\x1b[Z"},
		"Escape":    {0: "\x1b"},
		"Space":     {0: " ", control: "\x00"},
		"Backspace": {0: "\x7f", control: "\b"},
	}
)

// Encode returns the bytes that a terminal in these modes sends for keys. It returns an error for the first name that is no key, or
// that no terminal sends with its modifiers, which does not depend on the modes.
func Encode(names []string, modes Modes) (sent []byte, err error) {
	for _, name := range names {
		one, ok := encode(name, modes)
		if !ok {
			return nil, fmt.Errorf("no terminal sends a key %.40q", name)
		}
		sent = append(sent, one...)
	}
	return sent, nil
}

// Check returns the error that Encode would return.
func Check(names []string) error {
	_, err := Encode(names, Modes{})
	return err
}

func encode(name string, modes Modes) (sent string, ok bool) {
	mods, base, ok := parseKey(name)
	if !ok {
		return "", false
	}
	with := ";" + strconv.Itoa(1+int(mods))
	if letter, ok := cursorKeys[base]; ok {
		switch {
		case mods != 0:
			return "\x1b[1" + with + string(letter), true
		case modes.ApplicationCursor:
			return "\x1bO" + string(letter), true
		}
		return "\x1b[" + string(letter), true
	}
	if letter, ok := ss3Keys[base]; ok {
		if mods != 0 {
			return "\x1b[1" + with + string(letter), true
		}
		return "\x1bO" + string(letter), true
	}
	if n, ok := tildeKeys[base]; ok {
		if mods == 0 {
			with = ""
		}
		return "\x1b[" + strconv.Itoa(n) + with + "~", true
	}
	if forms, named := plainKeys[base]; named {
		sent, ok = forms[mods&^meta]
		if base == "Enter" && modes.NewLine {
			sent = "\r\n"
		}
		if base == "Tab" && mods == shift|meta { // ESC ESC [ Z is known to few programs
			ok = false
		}
	} else {
		sent, ok = character(base, mods&^meta)
	}
	if mods&meta != 0 {
		sent = "\x1b" + sent
	}
	return sent, ok
}

// parseKey splits the modifiers C-, M- and S-, each at most once, from the name of a key.
func parseKey(name string) (mods modifiers, base string, ok bool) {
	for len(name) > 2 && name[1] == '-' {
		i := strings.IndexByte("SMC", name[0])
		if i < 0 || mods&(1<<i) != 0 {
			return 0, "", false
		}
		mods |= 1 << i
		name = name[2:]
	}
	return mods, name, true
}

// character returns the bytes that a key of one character sends with no modifier, with control
// or with shift. Terminals send control and shift together as control alone, which is another
// key; so character rejects both together.
func character(base string, mods modifiers) (string, bool) {
	r, n := utf8.DecodeRuneInString(base)
	if n != len(base) || r == utf8.RuneError || unicode.IsControl(r) {
		return "", false
	}
	switch mods {
	case 0:
		return base, true
	case shift:
		up := unicode.ToUpper(r)
		return string(up), unicode.IsUpper(up)
	case control:
		c, ok := controlOf(r)
		return string(c), ok
	}
	return "", false
}

// controlOf returns the character that Ctrl and the key r send.
func controlOf(r rune) (rune, bool) {
	switch {
	case r >= 'a' && r <= 'z':
		return r - 'a' + 1, true
	case r >= '@' && r <= '_':
		return r - '@', true
	case r == ' ' || r == '2':
		return 0, true
	case r >= '3' && r <= '7':
		return r - '3' + 0x1b, true
	case r == '/':
		return 0x1f, true
	case r == '?' || r == '8':
		return 0x7f, true
	}
	return 0, false
}
