package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"holdfast/proxy/internal/policyhost"
	"holdfast/proxy/policy"
	"holdfast/shared/config"
	"holdfast/shared/socket"
)

// noPolicy is the setting that ends a policy.
const noPolicy = "none"

// rules say which policy decides. They are remembered: a proxy that is started
// because the one before has crashed must not let everybody in.
type rules struct {
	Program string `json:"program"`
	Config  string `json:"config,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
}

// startPolicy starts the policy that is set, or the one that was set last; nil is
// none.
func (a *app) startPolicy(ctx context.Context, o *serveOptions, dirs config.Dirs, cfg config.Config, log zerolog.Logger) (*policyhost.Host, error) {
	path := a.rulesFile(dirs)
	r, err := inForce(path, cfg)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	var host *policyhost.Host
	if r != nil {
		if host, err = policyhost.Start(ctx, r.host(dirs, log)); err != nil {
			return nil, &policyError{err}
		}
	}
	if o.dryRun {
		return host, nil
	}
	if err := r.remember(path); err != nil { // not before it has worked once
		endPolicy(host)
		return nil, fmt.Errorf("policy: %w", err)
	}
	return host, nil
}

// A policyError is of a policy that does not start. It has an exit code of its own, so
// that whoever started the proxy does not take it for one that comes later.
type policyError struct{ error }

func (e *policyError) Unwrap() error { return e.error }

func (r *rules) host(dirs config.Dirs, log zerolog.Logger) policyhost.Config {
	return policyhost.Config{Path: r.Program, ConfigFile: r.Config, SHA256: r.SHA256, Dir: dirs.Runtime, Log: log}
}

// checkPolicy says why a proxy that is started now would not serve for want of its
// policy, as far as that can be known without starting the policy's program.
func (a *app) checkPolicy(dirs config.Dirs, cfg config.Config) error {
	r, err := inForce(a.rulesFile(dirs), cfg)
	if err != nil || r == nil {
		return err
	}
	return policyhost.Check(r.host(dirs, zerolog.Nop()))
}

// tryPolicy is checkPolicy, and starts the program and ends it again, if there is a
// directory for its socket.
func (a *app) tryPolicy(ctx context.Context, dirs config.Dirs, cfg config.Config) error {
	r, err := inForce(a.rulesFile(dirs), cfg)
	if err != nil || r == nil {
		return err
	}
	if socket.CheckDir(dirs.Runtime) != nil {
		return policyhost.Check(r.host(dirs, zerolog.Nop()))
	}
	return policyhost.Try(ctx, r.host(dirs, zerolog.Nop()))
}

func (a *app) rulesFile(dirs config.Dirs) string { return filepath.Join(dirs.State, a.proxy+".policy") }

// decides is who does: without a host, everything of this user may be done.
func decides(host *policyhost.Host) policy.Policy {
	if host == nil {
		return policy.Allow{}
	}
	return host
}

// endPolicy ends the policy's program, where there is one.
func endPolicy(host *policyhost.Host) {
	if host != nil {
		_ = host.Close() // it says in the log what went wrong
	}
}

// inForce are the rules that are set, or else remembered; nil is none.
func inForce(path string, cfg config.Config) (*rules, error) {
	switch cfg.Policy {
	case noPolicy:
		return nil, nil
	case "":
		return remembered(path)
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

func remembered(path string) (*rules, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r := &rules{}
	if err == nil {
		err = json.Unmarshal(b, r)
	}
	if err == nil && r.Program == "" {
		err = errors.New("it names no program")
	}
	if err != nil {
		return nil, fmt.Errorf("%s says which one decides, and cannot be read: mend it, or start once with --policy, which may be %q: %w", path, noPolicy, err)
	}
	return r, nil
}

// remember writes the rules down. No rules are forgotten.
func (r *rules) remember(path string) error {
	if r == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return writeWhole(path, append(b, '\n'))
}

// writeWhole writes a whole file or none.
func writeWhole(path string, data []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
