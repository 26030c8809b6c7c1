package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// ErrEnds is a unit whose stop might end sessions.
var ErrEnds = errors.New("its KillMode is not process, so that a stop may end the sessions")

// A Plan is what is to be done, in order. Making it changes nothing.
type Plan struct {
	Unit     Unit
	Steps    []Step
	Silent   error  // why the manager does not answer; nil if it does
	Packaged string // the file, not ours, of a unit that there is none of ours of
	manager
	run runner
}

// A Step changes a file or runs a command.
type Step struct {
	Text    string   // for people
	Details []string // the same
	Command []string // nil for a file

	file func() error
}

// Options are how something is installed or removed.
type Options struct {
	Now   bool // start or stop it, too
	Force bool // overwrite or remove what we did not write
}

// Install plans to write a unit, and to have it run.
func (h Host) Install(ctx context.Context, s Spec, o Options) (*Plan, error) {
	m, u, err := h.unit(s)
	if err != nil {
		return nil, err
	}
	old, exists, err := read(u.Path)
	if err != nil && !(o.Force && errors.Is(err, ErrForeign)) {
		return nil, err
	}
	changed := err != nil || old != u.Text
	state, silent := h.state(ctx, m, u)
	p := &Plan{Unit: u, Silent: silent, manager: m, run: h.Run}
	switch {
	case !changed:
		p.Steps = append(p.Steps, Step{Text: u.Path + " is as it should be", file: func() error { return nil }})
	case exists:
		p.add("rewrite "+u.Path, difference(old, u.Text), func() error { return write(u.Path, u.Text) })
	default:
		var details []string
		if state.Packaged != "" {
			details = append(details, "it goes before "+state.Packaged+", which stays as it is")
		}
		p.add("write "+u.Path, details, func() error { return write(u.Path, u.Text) })
	}
	p.commands(m.install(u, state, changed, o.Now))
	return p, nil
}

// Uninstall plans to take a unit away. Where there is none it has no steps.
func (h Host) Uninstall(ctx context.Context, s Spec, o Options) (*Plan, error) {
	m, u, err := h.unit(s)
	if err != nil {
		return nil, err
	}
	_, exists, err := read(u.Path)
	if err != nil && !(o.Force && errors.Is(err, ErrForeign)) {
		return nil, err
	}
	state, silent := h.state(ctx, m, u)
	p := &Plan{Unit: u, Silent: silent, manager: m, run: h.Run}
	if !exists {
		p.Packaged = state.Packaged
		return p, nil
	}
	if silent != nil {
		state.Loaded = true // perhaps
	} else if o.Now && state.Loaded && !state.Spares {
		return nil, fmt.Errorf("%s: %w", u.Name, ErrEnds)
	}
	before, after := m.uninstall(u, state, o.Now)
	p.commands(before)
	p.add("remove "+u.Path, nil, func() error { return os.Remove(u.Path) })
	for _, l := range m.links(u) {
		if to, err := os.Readlink(l); silent != nil && err == nil && to == u.Path {
			p.add("remove "+l, nil, func() error { return os.Remove(l) })
		}
	}
	p.commands(after)
	return p, nil
}

func (p *Plan) add(text string, details []string, file func() error) {
	p.Steps = append(p.Steps, Step{Text: text, Details: details, file: file})
}

func (p *Plan) commands(all [][]string) {
	for _, argv := range all {
		p.Steps = append(p.Steps, Step{Text: quoted(argv), Command: argv})
	}
}

// quoted is a command as a shell takes it.
func quoted(argv []string) string {
	words := make([]string, len(argv))
	for i, w := range argv {
		words[i] = w
		if strings.ContainsAny(w, " \t\"'\\$`!*?[]{}()<>|&;#~") {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// LeftError is what was not done, for want of a manager that answers.
type LeftError struct {
	Commands []string
	Err      error
}

func (e *LeftError) Error() string {
	return fmt.Sprintf("no service manager of yours answers here (%v); once one does, run:\n  %s", e.Err, strings.Join(e.Commands, "\n  "))
}

func (e *LeftError) Unwrap() error { return e.Err }

// FailedError is a command that failed.
type FailedError struct {
	Command, Why string // Why is the command that tells more
	Err          error
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("%s: %v\nmore of it: %s", e.Command, e.Err, e.Why)
}

func (e *FailedError) Unwrap() error { return e.Err }

// Do takes each step and says so before. Where no manager answers it does what
// is to be done to files, and returns a LeftError with the rest.
func (p *Plan) Do(ctx context.Context, say func(Step)) error {
	left := &LeftError{Err: p.Silent}
	for _, s := range p.Steps {
		switch {
		case s.Command == nil:
			say(s)
			if err := s.file(); err != nil {
				return err
			}
		case p.Silent != nil:
			left.Commands = append(left.Commands, s.Text)
		default:
			say(s)
			if _, err := p.run(ctx, s.Command...); err != nil {
				return &FailedError{s.Text, p.why(p.Unit), err}
			}
		}
	}
	if len(left.Commands) > 0 {
		return left
	}
	return nil
}
