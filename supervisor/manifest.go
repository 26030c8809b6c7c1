package main

import (
	"encoding/json"
	"fmt"
	"time"

	"holdfast/supervisor/internal/session"
	"holdfast/supervisor/internal/vault"
)

// The versions of the manifest that this program reads. Fields may be added, and unknown fields
// are ignored. The version must change only if the meaning of a field changes.
const (
	manifestVersion    = 1
	manifestVersionMin = 1
)

// A manifest is the state that a supervisor leaves to the program that it executes. A file is
// named by its index in the list of inherited descriptors.
type manifest struct {
	Version int             `json:"version"`
	Program string          `json:"program"` // version of the program that wrote it, for people
	At      time.Time       `json:"at"`      // when the sessions were frozen
	Table   session.State   `json:"table"`
	Entries []manifestEntry `json:"records"`
	Keeper  *int            `json:"keeper,omitempty"` // file of the socket to the keeper
	Kept    keptBefore      `json:"kept"`
}

// manifestEntry is a vault entry in a manifest.
type manifestEntry struct {
	ID    string `json:"id"`
	PID   int    `json:"pid,omitempty"`
	Meta  []byte `json:"meta"`
	Files []int  `json:"files"`
}

// keptBefore is the keeper's account of the supervisors before this one, at the first
// connection.
type keptBefore struct {
	Starts int    `json:"starts,omitempty"`
	Last   string `json:"last,omitempty"`
}

// A builder collects a manifest and its descriptors. The descriptors still belong to their
// owners.
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

func (b *builder) addEntry(r vault.Entry) {
	b.Entries = append(b.Entries, manifestEntry{ID: r.ID, PID: r.PID, Meta: r.Meta, Files: b.add(r.FDs...)})
}

func (b *builder) encode() ([]byte, error) { return json.Marshal(b.manifest) }

// readManifest decodes a manifest. It returns an error unless each file that the manifest names
// exists and is named once.
func readManifest(data []byte, files int) (*manifest, error) {
	m := new(manifest)
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("cannot decode the manifest: %w", err)
	}
	if m.Version < manifestVersionMin || m.Version > manifestVersion {
		return nil, fmt.Errorf("manifest has version %d, this program reads versions %d to %d", m.Version, manifestVersionMin, manifestVersion)
	}
	var all []int
	for _, r := range m.Entries {
		all = append(all, r.Files...)
	}
	if m.Keeper != nil {
		all = append(all, *m.Keeper)
	}
	used := make(map[int]bool)
	for _, n := range all {
		if n < 0 || n >= files || used[n] {
			return nil, fmt.Errorf("invalid manifest: file %d of %d is missing or named twice", n, files)
		}
		used[n] = true
	}
	return m, nil
}

// entries returns the vault entries of the manifest, with their descriptors.
func (m *manifest) entries(fds []int) []vault.Entry {
	all := make([]vault.Entry, 0, len(m.Entries))
	for _, r := range m.Entries {
		all = append(all, vault.Entry{ID: r.ID, PID: r.PID, Meta: r.Meta, FDs: pick(fds, r.Files)})
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
