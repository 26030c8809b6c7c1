package session

import (
	"sync/atomic"

	"holdfast/protocol"
	"holdfast/supervisor/internal/recorder"
)

// counts counts the work of all sessions of a table. Only outputBytes (once per read of a
// terminal) and inputBytes (once per piece of input) change often.
type counts struct {
	outputBytes, inputBytes atomic.Uint64 // bytes
	spawns, spawnsFailed    atomic.Uint64
	natural, soft, hard     atomic.Uint64 // ends
}

func (c *counts) exited(o protocol.Outcome) {
	switch o {
	case protocol.OutcomeNatural:
		c.natural.Add(1)
	case protocol.OutcomeSoft:
		c.soft.Add(1)
	case protocol.OutcomeHard:
		c.hard.Add(1)
	}
}

// Counts has the numbers of a table.
type Counts struct {
	Starting int `json:"-"` // sessions in this state
	Running  int `json:"-"`
	Draining int `json:"-"`
	Exited   int `json:"-"`

	Recording recorder.Counts `json:"-"` // of the sessions that are stored on disk

	BytesPrinted uint64 `json:"bytes_printed"`
	BytesTyped   uint64 `json:"bytes_typed"`
	Spawns       uint64 `json:"spawns"`
	SpawnsFailed uint64 `json:"spawns_failed"`
	ExitsNatural uint64 `json:"exits_natural"`
	ExitsSoft    uint64 `json:"exits_soft"`
	ExitsHard    uint64 `json:"exits_hard"`
}

func (c *counts) restore(n Counts) {
	c.outputBytes.Store(n.BytesPrinted)
	c.inputBytes.Store(n.BytesTyped)
	c.spawns.Store(n.Spawns)
	c.spawnsFailed.Store(n.SpawnsFailed)
	c.natural.Store(n.ExitsNatural)
	c.soft.Store(n.ExitsSoft)
	c.hard.Store(n.ExitsHard)
}

// Counts returns the table's numbers. It needs no session's loop, so that it never waits.
func (t *Table) Counts() Counts {
	n := t.cfg.counts
	c := Counts{
		BytesPrinted: n.outputBytes.Load(), BytesTyped: n.inputBytes.Load(), Spawns: n.spawns.Load(), SpawnsFailed: n.spawnsFailed.Load(),
		ExitsNatural: n.natural.Load(), ExitsSoft: n.soft.Load(), ExitsHard: n.hard.Load(),
	}
	if t.cfg.Recorder != nil {
		c.Recording, _ = t.cfg.Recorder.Counts() // RecordingStatus has the error
	}
	all, openingCount := t.registry.all()
	c.Starting = openingCount
	for _, s := range all {
		switch {
		case s.hasExited():
			c.Exited++
		case isClosed(s.pty.Done()):
			c.Draining++
		default:
			c.Running++
		}
	}
	return c
}

// Kept returns how many sessions the vault holds.
func (t *Table) Kept() int {
	n := 0
	all, _ := t.registry.all()
	for _, s := range all {
		if s.entry.isIn.Load() {
			n++
		}
	}
	return n
}
