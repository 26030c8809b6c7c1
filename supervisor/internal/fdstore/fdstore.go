// Package fdstore copies each vault entry to systemd's file descriptor store, if systemd runs
// the keeper as a service that may store descriptors. Sessions then survive even if the keeper
// and the supervisor die at the same time.
//
// Invariant: an entry is taken from the store only if the store has all of its files. If an
// entry cannot be stored, the keeper still holds it.
//
// Not here: the content of an entry; the keeper, which always gets an entry first.
package fdstore

import (
	"context"

	"holdfast/supervisor/internal/vault"
)

// A Vault holds vault entries; *vault.Vault and *Store are the implementations.
type Vault interface {
	Put(context.Context, vault.Entry) error
	SetPID(ctx context.Context, id string, pid int) error
	Delete(ctx context.Context, id string) error
}
