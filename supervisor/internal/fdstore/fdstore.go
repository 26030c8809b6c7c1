// Package fdstore has systemd hold what the keeper holds, where systemd runs the
// keeper as a service that may store descriptors: then sessions outlive the death
// of the keeper and the supervisor at once.
//
// Invariant: a record is taken from the store only if all of it is there; what
// cannot be stored is still held by the keeper.
//
// Not here: what is in a record, and the keeper, which is asked first.
package fdstore

import (
	"context"

	"holdfast/supervisor/internal/vault"
)

// A Vault is what a store is laid over; *vault.Vault is the real one.
type Vault interface {
	Put(context.Context, vault.Record) error
	SetPID(ctx context.Context, id string, pid int) error
	Delete(ctx context.Context, id string) error
}
