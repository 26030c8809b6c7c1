package policyhost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"holdfast/protocol"
	"holdfast/proxy/policy"
)

// explain makes of a failed start what a person can act on. The library's own
// errors are texts alone, so it goes by what the program was seen to do.
func (r *run) explain(ctx context.Context, cfg Config, err error) error {
	hello, printed := r.program.hello.Load(), r.program.printed.Load()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("start the policy: %w", context.Cause(ctx))
	case r.program.cmd == nil:
		return broken(cfg, fmt.Sprintf("there can be no directory for its socket: %v", err))
	case errors.Is(err, fs.ErrNotExist):
		return failure(protocol.CodeNotFound, fmt.Sprintf("the policy %s cannot be started: neither it nor its interpreter may be missing: %v", cfg.Path, err))
	case errors.Is(err, fs.ErrPermission):
		return failure(protocol.CodePermissionDenied, fmt.Sprintf("the policy %s may not be executed: %v", cfg.Path, err))
	case hello != nil && hello.core == 1 && !spoken(hello.version):
		return mismatch(cfg.Path, hello.version)
	case hello == nil && r.program.ended():
		return broken(cfg, fmt.Sprintf("it ended before the handshake (%s) and said %s", r.program.how(), r.program.lastWords()))
	case hello == nil && printed != nil && *printed != "":
		return broken(cfg, fmt.Sprintf("a policy prints the handshake before all else, and not %.100q", *printed))
	case hello == nil && printed != nil:
		return broken(cfg, fmt.Sprintf("it did not answer the handshake within %v", cfg.StartTime))
	case r.link.err != nil:
		return broken(cfg, fmt.Sprintf("it answered the handshake, but not on its socket, where it must speak TLS: %.300v", r.link.err))
	}
	return broken(cfg, fmt.Sprintf("%.300v", err))
}

func broken(cfg Config, why string) error {
	return failure(protocol.CodePolicyUnavailable, fmt.Sprintf("the policy %s does not work: %s", cfg.Path, why))
}

func spoken(version int) bool {
	_, ok := policy.Plugins(nil)[version]
	return ok
}

// mismatch names both ranges. A program names one version of its own, the one
// nearest to what it was offered.
func mismatch(path string, version int) error {
	ours := slices.Sorted(maps.Keys(policy.Plugins(nil)))
	local := protocol.VersionRange{Min: ours[0], Max: ours[len(ours)-1]}
	remote := protocol.VersionRange{Min: version, Max: version}
	advice := "build the policy anew with this version's package"
	if remote.Min > local.Max {
		advice = "upgrade the proxy"
	}
	return &protocol.Error{
		Code:    protocol.CodeProtocolMismatch,
		Message: fmt.Sprintf("no common version with the policy %s: the proxy speaks %s, the policy speaks %s; %s", path, local, remote, advice),
		Local:   &local,
		Remote:  &remote,
	}
}

func failure(code protocol.Code, message string) *protocol.Error {
	return protocol.Errorf(code, message)
}
