package main

import (
	"encoding/json"
	"fmt"
	"time"

	"holdfast/supervisor/internal/session"
	"holdfast/supervisor/internal/vault"
)

// The versions of manifest that this program reads. Fields are only ever added,
// and unknown ones skipped; the version counts changes of what one means.
const (
	manifestVersion    = 1
	manifestVersionMin = 1
)

// manifest is what a supervisor leaves to the program that it becomes. Descriptors
// are numbers into the files that go with it.
type manifest struct {
	Version int              `json:"version"`
	Program string           `json:"program"` // the version of who wrote it, for people
	At      time.Time        `json:"at"`      // when all came to rest
	Table   session.State    `json:"table"`
	Records []manifestRecord `json:"records"`
	Keeper  *int             `json:"keeper,omitempty"` // the socket to it
	Kept    keptBefore       `json:"kept"`
}

// manifestRecord is a vault.Record.
type manifestRecord struct {
	ID    string `json:"id"`
	PID   int    `json:"pid,omitempty"`
	Meta  []byte `json:"meta"`
	Files []int  `json:"files"`
}

// keptBefore is what was told of the keeper when it was met.
type keptBefore struct {
	Starts int    `json:"starts,omitempty"`
	Last   string `json:"last,omitempty"`
}

// builder gathers what goes along. The descriptors stay their owners'.
type builder struct {
	manifest
	fds []int
}

func (b *builder) add(fds ...int) (numbers []int) {
	for _, fd := range fds {
		numbers = append(numbers, len(b.fds))
		b.fds = append(b.fds, fd)
	}
	return numbers
}

func (b *builder) addRecord(r vault.Record) {
	b.Records = append(b.Records, manifestRecord{ID: r.ID, PID: r.PID, Meta: r.Meta, Files: b.add(r.FDs...)})
}

func (b *builder) encode() ([]byte, error) { return json.Marshal(b.manifest) }

// readManifest checks what every number refers to.
func readManifest(data []byte, files int) (*manifest, error) {
	m := new(manifest)
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if m.Version < manifestVersionMin || m.Version > manifestVersion {
		return nil, fmt.Errorf("manifest: version %d, this program knows %d to %d", m.Version, manifestVersionMin, manifestVersion)
	}
	var all []int
	for _, r := range m.Records {
		all = append(all, r.Files...)
	}
	if m.Keeper != nil {
		all = append(all, *m.Keeper)
	}
	used := make(map[int]bool)
	for _, n := range all {
		if n < 0 || n >= files || used[n] {
			return nil, fmt.Errorf("manifest: file %d of %d", n, files)
		}
		used[n] = true
	}
	return m, nil
}

// records are the sessions', with their descriptors.
func (m *manifest) records(fds []int) []vault.Record {
	all := make([]vault.Record, 0, len(m.Records))
	for _, r := range m.Records {
		all = append(all, vault.Record{ID: r.ID, PID: r.PID, Meta: r.Meta, FDs: pick(fds, r.Files)})
	}
	return all
}

func pick(fds, numbers []int) []int {
	picked := make([]int, len(numbers))
	for i, n := range numbers {
		picked[i] = fds[n]
	}
	return picked
}
