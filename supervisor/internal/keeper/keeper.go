// Package keeper is the parent of the supervisor: it holds duplicates of the
// descriptors that must not be lost, starts the supervisor again when it has
// died, and collects the children that have lost it.
//
// It is what is never replaced in practice, so it knows as little as can be:
// records with descriptors under names that mean nothing to it, pids, and raw
// wait statuses.
//
// Invariant: a record is let go of only because a supervisor said so (delete,
// or put again), or because the keeper ends, which it does only in order. On
// doubt it holds: it never ends a supervisor, and a supervisor that does not
// read costs it nothing.
//
// Not here: terminals, sessions, what is in a record, the supervisor's side
// (package vault), and what to do when the keeper has died.
package keeper

import (
	"cmp"
	"time"
)

// Variables of the environment. The first tells the supervisor which of its
// descriptors leads to the keeper, the others tell a keeper how it was started.
const (
	EnvSocket = "HOLDFAST_KEEPER"
	envResume = "HOLDFAST_KEEPER_RESUME"
	envTrial  = "HOLDFAST_KEEPER_TRIAL"
)

// Config says what to run. A zero field of the rest means its default.
type Config struct {
	Argv []string          // the supervisor's program, by path, and its arguments
	Env  []string          // nil is our own
	Log  func(line string) // may block: lines that it has no time for are dropped; nil is nobody

	Backoff time.Duration // before the second start in a row, doubled up to 50 times that; default 100 ms
	Near    time.Duration // deaths that are no further apart are in a row; default 10 s
	Deaths  int           // as many deaths within Within, and nothing is started any more; default 5
	Within  time.Duration // default a minute
	Trial   time.Duration // how long a new keeper may take to read what it would go on with; default 10 s
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = func(string) {}
	}
	c.Backoff = cmp.Or(c.Backoff, 100*time.Millisecond)
	c.Near = cmp.Or(c.Near, 10*time.Second)
	c.Deaths = cmp.Or(c.Deaths, 5)
	c.Within = cmp.Or(c.Within, time.Minute)
	c.Trial = cmp.Or(c.Trial, 10*time.Second)
	return c
}

// Exit codes of Run beside those of the supervisor; of sysexits(3).
const (
	exitUnavailable = 69
	exitSoftware    = 70 // what the keeper before this one left cannot be read
)
