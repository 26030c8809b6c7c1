package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"holdfast/protocol"
)

// maxIndex is the limit of an index object in bytes.
const maxIndex = 64 << 10

// An Index describes a recording. It is written when the recording begins, before old segments are deleted,
// and after the session has ended.
type Index struct {
	Format    int       `json:"format"`
	Recording string    `json:"recording"`
	Program   string    `json:"program,omitempty"` // name of the program that the session was started with
	CreatedAt time.Time `json:"created_at"`        // when the session was started
	RemovedTo uint64    `json:"removed_to"`        // the output before this offset was deleted, because the settings say so

	// The following fields are set after the session has ended, if all its output is recorded.
	IsComplete bool      `json:"is_complete"`
	End        uint64    `json:"end,omitempty"`       // number of bytes that the session has printed
	Last       string    `json:"last,omitempty"`      // SHA-256 of the last segment, in hex
	ExitedAt   time.Time `json:"exited_at,omitzero"`  // when the session ended
	ExitCode   *int      `json:"exit_code,omitempty"` // its exit code
}

func newIndex(n Name, info *protocol.SessionInfo) *Index {
	return &Index{Format: format, Recording: n.String(), Program: programName(info.Argv), CreatedAt: info.CreatedAt}
}

// programName returns the name of the program without its arguments, because those may have secrets.
func programName(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	name := argv[0]
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			name = name[i+1:]
			break
		}
	}
	return name[:min(len(name), 200)]
}

// replaceIndex stores the index.
func replaceIndex(ctx context.Context, s Store, n Name, x *Index) error {
	data, err := json.MarshalIndent(x, "", "  ")
	if err != nil {
		return err
	}
	return s.Replace(ctx, n.indexKey(), append(data, '\n'))
}

// readIndex returns the index of a recording. The error is fs.ErrNotExist if there is none, and ErrTorn if it
// is not valid.
func readIndex(ctx context.Context, s Store, n Name) (*Index, error) {
	data, err := s.Get(ctx, n.indexKey(), maxIndex)
	if err != nil {
		return nil, err
	}
	x := &Index{}
	if err := json.Unmarshal(data, x); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrTorn, n.indexKey(), err)
	}
	if x.Format != format || x.Recording != n.String() || x.Last != "" && !isHash(x.Last) {
		return nil, fmt.Errorf("%w: %s is not the index of this recording", ErrTorn, n.indexKey())
	}
	return x, nil
}
