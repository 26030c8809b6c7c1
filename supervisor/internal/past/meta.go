package past

import (
	"bytes"
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
	// maxMetaBytes is the limit of meta.json in bytes, before it is sealed. Each session that the protocol admits
	// fits: JSON writes a control character as six bytes, and the environment may be stored twice, as names and in
	// Spec. So protocol.MaxSpawnBytes may become 6 MiB.
	maxMetaBytes = 8 << 20
	maxMetaFile  = 2 * maxMetaBytes // a sealed one is longer, because it is in base64
)

// Meta describes a life. All fields but Version belong to the caller, and each may be empty.
type Meta struct {
	Version    int                    `json:"version"` // set by this package
	Mode       Mode                   `json:"mode"`
	Replaces   protocol.Instance      `json:"replaces,omitempty"` // the instance that was started again as this one
	Created    time.Time              `json:"created,omitzero"`
	Supervisor protocol.Instance      `json:"supervisor,omitempty"` // identity of the supervisor that had the session
	Argv       []string               `json:"argv,omitempty"`
	Cwd        string                 `json:"cwd,omitempty"`
	EnvNames   []string               `json:"env_names,omitempty"` // names of all variables
	Size       protocol.Size          `json:"size,omitzero"`
	Labels     map[string]string      `json:"labels,omitempty"`
	Clears     uint64                 `json:"clears,omitempty"` // how often stored lines were cleared for good
	Title      string                 `json:"title,omitempty"`
	Commands   []protocol.CommandInfo `json:"commands,omitempty"` // the last ones that have ended
	Exit       *protocol.ExitRecord   `json:"exit,omitempty"`
	Spec       json.RawMessage        `json:"spec,omitempty"` // how the session was started, in the caller's own form
}

func (m Meta) encode() ([]byte, error) {
	m.Version = metaVersion
	var data bytes.Buffer
	e := json.NewEncoder(&data)
	e.SetEscapeHTML(false) // <, > and &, which are common in commands, would take six bytes each
	e.SetIndent("", "\t")
	if err := e.Encode(m); err != nil {
		return nil, fmt.Errorf("past: meta: %w", err)
	}
	if data.Len() > maxMetaBytes {
		return nil, fmt.Errorf("past: meta has %d bytes, the limit is %d", data.Len(), maxMetaBytes)
	}
	return data.Bytes(), nil
}

// sealedMeta is meta.json of a life that is sealed. All fields except Sealed can be read without the
// key, so that a supervisor finds the life, and does not take its own sessions for lost ones.
type sealedMeta struct {
	Version    int               `json:"version"`
	Mode       Mode              `json:"mode"`
	Replaces   protocol.Instance `json:"replaces,omitempty"`
	Created    time.Time         `json:"created,omitzero"`
	Supervisor protocol.Instance `json:"supervisor,omitempty"`
	Sealed     []byte            `json:"sealed"` // all of Meta as JSON, encrypted
}

// writeMeta replaces meta.json by data, which is sealed if the life has a key.
func (w *Writer) writeMeta(data []byte) error {
	if w.key != nil {
		var m sealedMeta
		if err := json.Unmarshal(data, &m); err != nil {
			return err
		}
		m.Sealed = w.key.forMeta().Seal(nil, nil, data, nil)
		var err error
		if data, err = json.MarshalIndent(m, "", "\t"); err != nil {
			return err
		}
		data = append(data, '\n')
	}
	return replaceFile(w.store.disk, filepath.Join(w.dir, metaName), data)
}

// unsealMeta returns the content of meta.json before it was sealed, and whether it was sealed. If
// that fails, it returns the file.
func unsealMeta(file []byte, key *dataKey) (data []byte, isSealed bool, err error) {
	var m struct {
		Sealed json.RawMessage `json:"sealed"`
	}
	if err := json.Unmarshal(file, &m); err != nil || m.Sealed == nil {
		return file, false, nil // the caller parses it again
	}
	if key == nil {
		return file, true, ErrLocked
	}
	var sealed []byte
	if err = json.Unmarshal(m.Sealed, &sealed); err == nil {
		data, err = key.forMeta().Open(nil, nil, sealed, nil)
	}
	if err != nil {
		return file, true, fmt.Errorf("%w: sealed fields were changed", ErrDamaged)
	}
	return data, true, nil
}

// readMetaFile returns the content of meta.json.
func readMetaFile(path string) ([]byte, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxMetaFile+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("past: %w", err)
	}
	if len(data) > maxMetaFile {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrDamaged, path, maxMetaFile)
	}
	return data, nil
}

// readMeta returns the content of meta.json. With ErrLocked it returns the fields that are not
// sealed.
func readMeta(dir string, key *dataKey) (Meta, error) {
	path := filepath.Join(dir, metaName)
	data, err := readMetaFile(path)
	if err != nil {
		return Meta{}, err
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
	data, _, sealed := unsealMeta(data, key)
	if sealed != nil && !errors.Is(sealed, ErrLocked) {
		return Meta{}, fmt.Errorf("%s: %w", path, sealed)
	}
	var m Meta
	if err := json.Unmarshal(data, &m); err != nil || m.Version < 1 {
		return Meta{}, fmt.Errorf("%w: %s: version %d, %v", ErrDamaged, path, m.Version, err)
	}
	return m, sealed
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
	f, err := openToRead(path)
	if err != nil {
		return nil, fmt.Errorf("past: %w", err)
	}
	return f, nil
}
