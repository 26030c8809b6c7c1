package member

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/nats-io/nkeys"

	"holdfast/protocol/gate"
	"holdfast/shared/machine"
)

// State is the file of a host that has joined a gate.
type State struct {
	Gates       []string          `json:"gates"`       // addresses; the agent begins with the first
	Fingerprint string            `json:"fingerprint"` // of the gates' certificate
	Name        string            `json:"name"`        // of this host
	Labels      map[string]string `json:"labels,omitempty"`
	Seed        string            `json:"seed"`  // of the host's NKey
	Epoch       uint64            `json:"epoch"` // number of starts of the agent
	// IsPending tells that the gate has not answered yet. It may know the host, so the key is kept for
	// another attempt.
	IsPending bool `json:"pending,omitempty"`
}

// ErrNotJoined tells that there is no file of a State.
var ErrNotJoined = errors.New("this host has not joined a gate; proxy gate token on the gate prints the text for: proxy join TEXT")

// NewState returns the State of a host that is about to join, with a new key.
func NewState(e gate.Entry, name string, labels map[string]string) (State, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return State{}, err
	}
	seed, err := pair.Seed()
	return State{Gates: e.Addresses, Fingerprint: e.Fingerprint, Name: name, Labels: labels, Seed: string(seed)}, err
}

// Load reads the file at path.
func Load(path string) (State, error) {
	var s State
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, ErrNotJoined
	}
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err == nil && len(s.Gates) == 0 {
		err = errors.New("it names no gate")
	}
	if err != nil {
		return s, fmt.Errorf("state of the join %s: %w", path, err)
	}
	return s, nil
}

// Save replaces the file at path, with mode 0600.
func (s State) Save(path string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return machine.ReplaceFile(path, bytes.NewReader(append(b, '\n')), 0o600)
}

// pair returns the key of the host, and its public half.
func (s State) pair() (pair nkeys.KeyPair, public string, err error) {
	if pair, err = nkeys.FromSeed([]byte(s.Seed)); err != nil {
		return nil, "", fmt.Errorf("the seed of the host's key is not valid: %w", err)
	}
	public, err = pair.PublicKey()
	return pair, public, err
}
