package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/session"
	"holdfast/supervisor/internal/session/event"
	"holdfast/supervisor/internal/vault"
)

// A manifest that a released version has written can be read as long as its version number is supported. The golden
// bytes may get new fields, and do not change otherwise.
func TestGoldenManifest(t *testing.T) {
	const path = "testdata/v1/manifest.json"
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	b := &builder{manifest: manifest{
		Version: 1, Program: "v1", At: at,
		Table: session.State{
			Seq:    7,
			Events: []event.Event{{Seq: 7, Kind: protocol.EventBell, At: at, Session: &protocol.SessionInfo{ID: "s1"}}},
			Counts: session.Counts{BytesPrinted: 1, BytesTyped: 2, Spawns: 3, SpawnsFailed: 4, ExitsNatural: 5, ExitsSoft: 6, ExitsHard: 7},
		},
		Kept: keptBefore{Starts: 8, Last: "SIGKILL"},
	}}
	b.addEntry(vault.Entry{ID: selfEntry, FDs: []int{30, 31, 32}})
	b.addEntry(vault.Entry{ID: "session life", PID: 9, Meta: []byte("meta"), FDs: []int{40, 41}})
	b.Keeper = &b.add(50)[0]
	testkit.GoldenJSON(t, path, b.manifest)
	data, err := os.ReadFile(path)
	testkit.Must(t, err)
	m, err := readManifest(data, len(b.fds))
	if err != nil || !reflect.DeepEqual(*m, b.manifest) {
		t.Fatalf("the manifest was read as %+v, %v", m, err)
	}
	want := []vault.Entry{{ID: selfEntry, FDs: []int{30, 31, 32}}, {ID: "session life", PID: 9, Meta: []byte("meta"), FDs: []int{40, 41}}}
	if got := m.entries(b.fds); !reflect.DeepEqual(got, want) {
		t.Errorf("the entries are %+v", got)
	}
}

// A manifest with invalid content is refused before any file is used.
func TestManifestRefused(t *testing.T) {
	four := 4
	for name, m := range map[string]manifest{
		"later":       {Version: manifestVersion + 1},
		"none":        {},
		"beyond":      {Version: 1, Entries: []manifestEntry{{Files: []int{0, 4}}}},
		"below":       {Version: 1, Entries: []manifestEntry{{Files: []int{-1}}}},
		"twice":       {Version: 1, Entries: []manifestEntry{{Files: []int{1}}, {Files: []int{1}}}},
		"lost keeper": {Version: 1, Keeper: &four},
	} {
		data, err := json.Marshal(m)
		testkit.Must(t, err)
		if _, err := readManifest(data, 4); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := readManifest([]byte("{"), 4); err == nil || !strings.Contains(err.Error(), "manifest") {
		t.Errorf("half a manifest: %v", err)
	}
}
