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

// explain turns the error of a failed start into an error that tells the user the next step. The
// library's errors are only texts, so explain examines the program's behaviour instead.
func (r *run) explain(ctx context.Context, cfg Config, err error) error {
	hello, printed := r.program.hello.Load(), r.program.printed.Load()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("start the policy: %w", context.Cause(ctx))
	case r.program.cmd == nil:
		return broken(cfg, fmt.Sprintf("a directory for its socket cannot be made: %v", err))
	case errors.Is(err, fs.ErrNotExist):
		return failure(protocol.CodeNotFound, fmt.Sprintf("the policy %s cannot be started: the program or its interpreter is missing: %v", cfg.Path, err))
	case errors.Is(err, fs.ErrPermission):
		return failure(protocol.CodePermissionDenied, fmt.Sprintf("the policy %s may not be executed: %v", cfg.Path, err))
	case hello != nil && hello.core == 1 && !isSpoken(hello.version):
		return mismatch(cfg.Path, hello.version)
	case hello == nil && r.program.hasEnded():
		return broken(cfg, fmt.Sprintf("it ended before the handshake (%s) and said %s", r.program.exitStatus(), r.program.lastWords()))
	case hello == nil && printed != nil && *printed != "":
		return broken(cfg, fmt.Sprintf("the first line of its output must be the handshake, but was %.100q", *printed))
	case errors.Is(err, errStopped), hello == nil && printed != nil: // a busy machine may not even have started it in that time
		return broken(cfg, fmt.Sprintf("it did not answer the handshake within %v", cfg.StartTime))
	case r.link.err != nil:
		return broken(cfg, fmt.Sprintf("it answered the handshake, but not on its socket, where it must speak TLS: %.300v", r.link.err))
	}
	return broken(cfg, fmt.Sprintf("%.300v", err))
}

func broken(cfg Config, reason string) error {
	return failure(protocol.CodePolicyUnavailable, fmt.Sprintf("the policy %s does not work: %s", cfg.Path, reason))
}

func isSpoken(version int) bool {
	_, ok := policy.Plugins(nil)[version]
	return ok
}

// mismatch returns the protocol_mismatch error for a program that speaks another version. A
// program announces only one of its versions: the one that is nearest to an offered version.
func mismatch(path string, version int) error {
	own := slices.Sorted(maps.Keys(policy.Plugins(nil)))
	local := protocol.VersionRange{Min: own[0], Max: own[len(own)-1]}
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
	return protocol.Errorf(code, "%s", message)
}
