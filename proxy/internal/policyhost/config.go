package policyhost

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
)

// Config says what to run. A zero field below Dir means its default.
type Config struct {
	Path       string // of the program, absolute
	ConfigFile string // told to it as $HOLDFAST_POLICY_CONFIG, absolute; "" is none
	SHA256     string // hex; where set, no other program is started than the one of this sum
	Dir        string // 0700, ours: where its socket lies; hosts may share it

	Deadline  time.Duration // of an answer; default 2 s
	StartTime time.Duration // of the handshake; default 10 s
	Grace     time.Duration // to end when asked to, and to be told the last events; default and most 2 s each
	FirstWait time.Duration // before it is started again; doubled each time; default 100 ms
	LastWait  time.Duration // the longest; default 30 s
	Settled   time.Duration // having lived so long, it is waited for FirstWait again; default 1 min
	Log       zerolog.Logger
}

func (c Config) withDefaults() Config {
	c.Deadline = cmp.Or(c.Deadline, 2*time.Second)
	c.StartTime = cmp.Or(c.StartTime, 10*time.Second)
	c.Grace = cmp.Or(c.Grace, 2*time.Second)
	c.FirstWait = cmp.Or(c.FirstWait, 100*time.Millisecond)
	c.LastWait = cmp.Or(c.LastWait, 30*time.Second)
	c.Settled = cmp.Or(c.Settled, time.Minute)
	c.SHA256 = strings.ToLower(c.SHA256)
	return c
}

// maxDir is what a socket's path leaves of the 103 bytes that it may have on
// macOS: the library puts a directory and a file with random names below Dir.
const maxDir = 103 - len("/plugin-dir1234567890/plugin1234567890")

func (c Config) validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(filepath.IsAbs(c.Path), "the program's path must be absolute, it is %q", c.Path)
	check(c.ConfigFile == "" || filepath.IsAbs(c.ConfigFile), "the policy's configuration must be an absolute path, it is %q", c.ConfigFile)
	check(filepath.IsAbs(c.Dir), "the directory for the policy's socket must be absolute, it is %q", c.Dir)
	check(runtime.GOOS == "windows" || len(c.Dir) <= maxDir,
		"the directory for the policy's socket must have at most %d bytes, or the socket's path is too long: %s", maxDir, c.Dir)
	sum, err := hex.DecodeString(c.SHA256)
	check(c.SHA256 == "" || err == nil && len(sum) == 32, "the sum must be 64 hex digits, it is %q", c.SHA256)
	if err := errors.Join(faults...); err != nil {
		return &protocol.Error{Code: protocol.CodeInvalidArgument, Message: fmt.Sprintf("policy: %v", err)}
	}
	return nil
}
