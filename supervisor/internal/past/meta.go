package past

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"holdfast/protocol"
)

const (
	metaName    = "meta.json"
	metaVersion = 1
	// MaxMetaBytes is the limit of meta.json in bytes.
	MaxMetaBytes = 1 << 20
)

// Meta describes a life. All fields but Version belong to the caller, and each may be empty.
type Meta struct {
	Version     int                  `json:"version"` // set by this package
	Mode        Mode                 `json:"mode"`
	Created     time.Time            `json:"created,omitzero"`
	Seen        time.Time            `json:"seen,omitzero"` // when the session was last known to run
	Argv        []string             `json:"argv,omitempty"`
	Cwd         string               `json:"cwd,omitempty"`
	EnvNames    []string             `json:"env_names,omitempty"` // names of all variables
	Env         map[string]string    `json:"env,omitempty"`       // variables whose values may be stored
	Size        protocol.Size        `json:"size,omitzero"`
	Labels      map[string]string    `json:"labels,omitempty"`
	Title       string               `json:"title,omitempty"`
	LastCommand string               `json:"last_command,omitempty"`
	Exit        *protocol.ExitRecord `json:"exit,omitempty"`
	Spec        json.RawMessage      `json:"spec,omitempty"` // how the session was started, in the caller's own form
}

func (m Meta) encode() ([]byte, error) {
	m.Version = metaVersion
	data, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return nil, fmt.Errorf("past: meta: %w", err)
	}
	if len(data) >= MaxMetaBytes {
		return nil, fmt.Errorf("past: meta has %d bytes, the limit is %d", len(data), MaxMetaBytes)
	}
	return append(data, '\n'), nil
}

func readMeta(dir string) (Meta, error) {
	path := filepath.Join(dir, metaName)
	f, err := openFile(path)
	if err != nil {
		return Meta{}, err
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxMetaBytes+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return Meta{}, fmt.Errorf("past: %w", err)
	}
	if len(data) > MaxMetaBytes {
		return Meta{}, fmt.Errorf("%w: %s has more than %d bytes", ErrDamaged, path, MaxMetaBytes)
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return Meta{}, fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
	}
	if head.Version > metaVersion {
		return Meta{}, fmt.Errorf("%w: %s has version %d, this program reads up to %d", ErrVersion, path, head.Version, metaVersion)
	}
	var m Meta
	if err := json.Unmarshal(data, &m); err != nil || m.Version < 1 {
		return Meta{}, fmt.Errorf("%w: %s: version %d, %v", ErrDamaged, path, m.Version, err)
	}
	return m, nil
}

// openFile opens a regular file to read it. A pipe or a device in the place of the file would
// block.
func openFile(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, fmt.Errorf("past: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrDamaged, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("past: %w", err)
	}
	return f, nil
}
