package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"holdfast/shared/config"
	"holdfast/shared/machine"
)

// signedOut is the time at which the user last signed out all browsers. It is saved in a file, so
// that a later proxy refuses older cookies, too.
type signedOut struct {
	path string
	when atomic.Int64 // in nanoseconds since 1970; 0 means never
}

// readSignedOut reads the saved time. If the file is invalid, all cookies issued before now are
// refused, which costs each browser a sign-in.
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

// at returns the time of the last sign-out, or the zero time.
func (s *signedOut) at() time.Time {
	if n := s.when.Load(); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

// set refuses all cookies that were issued before now.
func (s *signedOut) set(now time.Time) error {
	s.when.Store(now.UnixNano())
	return machine.ReplaceFile(s.path, strings.NewReader(now.UTC().Format(time.RFC3339Nano)+"\n"), 0o600)
}

// SignOut makes the next proxy of this name refuse all cookies that were issued before now. It is for
// the time when no proxy runs; a proxy that runs must be asked over its control socket.
func SignOut(dirs config.Dirs, proxy string, now time.Time) error {
	err := readSignedOut(dirs, proxy).set(now)
	switch {
	case errors.Is(err, fs.ErrNotExist): // without the directory there is no token either, so no cookie is valid
		return nil
	case err != nil:
		return fmt.Errorf("browsers are not signed out, because the time could not be saved for the next proxy: %w", err)
	}
	return nil
}

// signOut refuses the cookies of all browsers, and closes their connections.
func (s *serving) signOut() error {
	err := s.signedOut.set(time.Now())
	s.server.SignOut()
	if err != nil {
		return fmt.Errorf("browsers are signed out of this proxy, but the time could not be saved for later proxies: %w", err)
	}
	return nil
}
