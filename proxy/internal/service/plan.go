package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"holdfast/shared/plain"
)

// ErrEnds means that a stop of the unit might end sessions.
var ErrEnds = errors.New("its KillMode is not process, so that a stop may end the sessions")

// A Plan holds the steps of an installation or a removal, in order. To make a Plan changes
// nothing.
type Plan struct {
	Unit     Unit
	Steps    []Step
	Silent   error  // error of a manager that does not answer; nil if it does
	Packaged string // file of a package's unit, if "proxy service install" has written none
	manager
	run runner
}

// A Step changes a file or runs a command.
type Step struct {
	Text    string   // description for people
	Details []string // further lines of the description
	Command []string // nil if the step changes a file

	file func() error
}

// Options are the options of an installation or a removal.
type Options struct {
	Now   bool // also start or stop the unit
	Force bool // overwrite or remove files that "proxy service install" did not write
}

// Install returns the plan that writes a unit and enables it.
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
		p.Steps = append(p.Steps, Step{Text: u.Path + " is up to date", file: func() error { return nil }})
	case exists:
		p.add("rewrite "+u.Path, difference(old, u.Text), func() error { return write(u.Path, u.Text) })
	default:
		var details []string
		if state.Packaged != "" {
			details = append(details, "it takes precedence over "+state.Packaged+", which stays as it is")
		}
		p.add("write "+u.Path, details, func() error { return write(u.Path, u.Text) })
	}
	p.commands(m.install(u, state, changed, o.Now))
	return p, nil
}

// Uninstall returns the plan that removes a unit. If there is no unit, the plan has no steps.
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
		state.Loaded = true // it may be loaded; the manager does not answer
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
		words := make([]string, len(argv))
		for i, w := range argv {
			words[i] = plain.ShellWord(w)
		}
		p.Steps = append(p.Steps, Step{Text: strings.Join(words, " "), Command: argv})
	}
}

// A LeftError lists the commands that could not be run because no manager answers.
type LeftError struct {
	Commands []string
	Err      error
}

func (e *LeftError) Error() string {
	return fmt.Sprintf("no service manager of this user answers (%v); once one does, run:\n  %s", e.Err, strings.Join(e.Commands, "\n  "))
}

func (e *LeftError) Unwrap() error { return e.Err }

// A FailedError reports a command that failed.
type FailedError struct {
	Command, Why string // Why is a command that shows the reason
	Err          error
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("%s: %v\nfor details, run: %s", e.Command, e.Err, e.Why)
}

func (e *FailedError) Unwrap() error { return e.Err }

// Do executes the steps, and calls say before each one. If no manager answers, Do executes only
// the steps that change files, and returns a LeftError with the commands.
func (p *Plan) Do(ctx context.Context, say func(Step)) error {
	undone := &LeftError{Err: p.Silent}
	for _, s := range p.Steps {
		switch {
		case s.Command == nil:
			say(s)
			if err := s.file(); err != nil {
				return err
			}
		case p.Silent != nil:
			undone.Commands = append(undone.Commands, s.Text)
		default:
			say(s)
			if _, err := p.run(ctx, s.Command...); err != nil {
				return &FailedError{s.Text, p.why(p.Unit), err}
			}
		}
	}
	if len(undone.Commands) > 0 {
		return undone
	}
	return nil
}
