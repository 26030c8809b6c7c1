package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/policyhost"
	"holdfast/proxy/policy"
	"holdfast/shared/config"
	"holdfast/shared/machine"
	"holdfast/shared/socket"
	"holdfast/shared/sysexits"
)

// noPolicy is the value of the setting policy that disables the policy.
const noPolicy = "none"

// rules tell which policy decides. They are saved in a file, because a proxy that is started after
// a crash must use the same policy as its predecessor.
type rules struct {
	Program string `json:"program"`
	Config  string `json:"config,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
}

// StartPolicy starts the policy of the settings, or the one that the file at path names. It returns nil if
// there is none. remember saves in the file which policy was started. A process that takes over must call it only
// when it serves: if the takeover fails, the policy of the process that continues must stay in the file.
func StartPolicy(ctx context.Context, dirs config.Dirs, path string, cfg config.Config, log zerolog.Logger) (host *policyhost.Host, remember func() error, err error) {
	r, err := currentRules(path, cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("policy: %w", err)
	}
	if r != nil {
		if host, err = policyhost.Start(ctx, r.host(dirs, log)); err != nil {
			return nil, nil, exitcode.With(sysexits.Config, err) // so that a command does not wait for another proxy to start
		}
	}
	return host, func() error {
		if err := r.save(path); err != nil {
			return fmt.Errorf("policy: %w", err)
		}
		return nil
	}, nil
}

// host returns the configuration that starts the policy's program.
func (r *rules) host(dirs config.Dirs, log zerolog.Logger) policyhost.Config {
	return policyhost.Config{Path: r.Program, ConfigFile: r.Config, SHA256: r.SHA256, Dir: dirs.Runtime, Log: log}
}

// checkPolicy returns an error if a new proxy could not start its policy, as far as that can be
// known without starting the policy's program.
func checkPolicy(dirs config.Dirs, proxy string, cfg config.Config) error {
	r, err := currentRules(rulesFile(dirs, proxy), cfg)
	if err != nil || r == nil {
		return err
	}
	return policyhost.Check(r.host(dirs, zerolog.Nop()))
}

// TryPolicy returns an error if a new proxy could not start its policy. If the directory for the
// policy's socket exists, TryPolicy starts the policy's program and ends it again; otherwise it only
// checks the program's file.
func TryPolicy(ctx context.Context, dirs config.Dirs, proxy string, cfg config.Config) error {
	r, err := currentRules(rulesFile(dirs, proxy), cfg)
	if err != nil || r == nil {
		return err
	}
	if socket.CheckDir(dirs.Runtime) != nil {
		return policyhost.Check(r.host(dirs, zerolog.Nop()))
	}
	return policyhost.Try(ctx, r.host(dirs, zerolog.Nop()))
}

// HasPolicy reports whether a new proxy would have a policy.
func HasPolicy(dirs config.Dirs, proxy string, cfg config.Config) (bool, error) {
	r, err := currentRules(rulesFile(dirs, proxy), cfg)
	return r != nil, err
}

// rulesFile returns the path of the saved rules.
func rulesFile(dirs config.Dirs, proxy string) string {
	return filepath.Join(dirs.State, proxy+".policy")
}

// policyOf returns the policy that decides. Without a host, everything is permitted to this user.
func policyOf(host *policyhost.Host) policy.Policy {
	if host == nil {
		return policy.Allow{}
	}
	return host
}

// endPolicy ends the policy's program if there is one.
func endPolicy(host *policyhost.Host) {
	if host != nil {
		_ = host.Close() // the host logs its errors
	}
}

// currentRules returns the rules of the settings, or the saved ones; nil means no policy.
func currentRules(path string, cfg config.Config) (*rules, error) {
	switch cfg.Policy {
	case noPolicy:
		return nil, nil
	case "":
		return loadRules(path)
	}
	r := &rules{Config: cfg.PolicyConfig, SHA256: cfg.PolicySHA256}
	for _, file := range []struct {
		to *string
		in string
	}{{&r.Program, cfg.Policy}, {&r.Config, cfg.PolicyConfig}} {
		if file.in == "" {
			continue
		}
		var err error
		if *file.to, err = filepath.Abs(file.in); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// loadRules reads the saved rules.
func loadRules(path string) (*rules, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r := &rules{}
	if err == nil {
		err = json.Unmarshal(b, r)
	}
	if err == nil && r.Program == "" {
		err = errors.New("the file names no program")
	}
	if err != nil {
		return nil, fmt.Errorf("%s names the policy and cannot be read: repair it, or start once with --policy, which may be %q: %w", path, noPolicy, err)
	}
	return r, nil
}

// save saves the rules, or removes the file if r is nil. A file that has these rules is not written again, because
// a disk may be slow, and a takeover waits for save.
func (r *rules) save(path string) error {
	if r == nil {
		return machine.RemoveFile(path)
	}
	if saved, err := loadRules(path); err == nil && saved != nil && *saved == *r {
		return nil
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return machine.ReplaceFile(path, bytes.NewReader(append(b, '\n')), 0o600)
}
