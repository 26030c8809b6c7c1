package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"holdfast/shared/config"
)

// signedOut is when the user last signed out all browsers. It is kept in a file, so
// that no later proxy takes the cookies from before for good.
type signedOut struct {
	path string
	when atomic.Int64 // in nanoseconds since 1970; 0 for never
}

// readSignedOut reads what an earlier proxy has kept. If the file cannot be
// understood, every cookie from before now is void: that costs a sign-in.
func readSignedOut(dirs config.Dirs, proxy string) *signedOut {
	s := &signedOut{path: filepath.Join(dirs.State, proxy+".signed-out")}
	b, err := os.ReadFile(s.path)
	if os.IsNotExist(err) {
		return s
	}
	at, parseErr := time.Parse(time.RFC3339Nano, strings.TrimSpace(string(b)))
	if err != nil || parseErr != nil {
		at = time.Now()
	}
	s.when.Store(at.UnixNano())
	return s
}

func (s *signedOut) at() time.Time {
	if n := s.when.Load(); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

// set makes cookies void that were issued before now.
func (s *signedOut) set(now time.Time) error {
	s.when.Store(now.UnixNano())
	if err := os.WriteFile(s.path+".tmp", []byte(now.UTC().Format(time.RFC3339Nano)+"\n"), 0o600); err != nil {
		return fmt.Errorf("sign out: it holds for this proxy, and could not be kept for later ones: %w", err)
	}
	return os.Rename(s.path+".tmp", s.path)
}

// signOut voids the cookies of all browsers, and ends their connections.
func (s *serving) signOut() error {
	err := s.signedOut.set(time.Now())
	s.server.SignOut()
	return err
}
