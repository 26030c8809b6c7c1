//go:build !linux

package fdstore

import (
	"github.com/rs/zerolog"

	"holdfast/supervisor/internal/vault"
)

// Managed reports false, because there is no systemd.
func Managed() bool { return false }

// Inherited returns no entries.
func Inherited() []vault.Entry { return nil }

// Over returns v.
func Over(v Vault, _ []string, _ zerolog.Logger) Vault { return v }

// Ready does nothing.
func Ready() error { return nil }

// Main does nothing.
func Main(int) error { return nil }
