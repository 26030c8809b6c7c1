package gate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// dialPause is how long Dial waits for a gate before it tries the next one beside it.
const dialPause = 500 * time.Millisecond

// refusedLimit is how long Reach waits for a connection with another gate once one has refused the caller.
const refusedLimit = 3 * time.Second

// Dial connects by TLS 1.3 with the first gate that answers, and returns its address. It tries the
// addresses in their order: the next one as soon as one has failed, or has not answered for dialPause.
// The certificate is known by its fingerprint alone: names, authorities and times of certificates do not
// count. The error matches ErrFingerprint only if all gates have failed with it.
func Dial(ctx context.Context, addresses []string, fingerprint string) (net.Conn, string, error) {
	type result struct {
		conn    net.Conn
		address string
		err     error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of the attempts that are too late
	results := make(chan result)
	silent := slices.Clone(addresses)
	var errs []error
	for next := 0; ; {
		if next < len(addresses) {
			address := addresses[next]
			next++
			go func() {
				conn, err := dialOne(ctx, address, fingerprint)
				select {
				case results <- result{conn, address, err}:
				case <-ctx.Done():
					if err == nil {
						_ = conn.Close()
					}
				}
			}()
		}
		var late <-chan time.Time
		if next < len(addresses) {
			late = time.After(dialPause)
		}
		select {
		case r := <-results:
			if r.err == nil {
				return r.conn, r.address, nil
			}
			silent = slices.DeleteFunc(silent, func(a string) bool { return a == r.address })
			if errs = append(errs, r.err); len(errs) == len(addresses) {
				return nil, "", JoinErrors(errs)
			}
		case <-late:
		case <-ctx.Done():
			late := fmt.Errorf("gate %s has not answered: %w", strings.Join(silent, ", "), ctx.Err())
			return nil, "", JoinErrors(append(errs, late))
		}
	}
}

// sessions let a further connection with a gate do without the certificate.
var sessions = tls.NewLRUClientSessionCache(64)

// dialOne connects with one gate.
func dialOne(ctx context.Context, address, fingerprint string) (net.Conn, error) {
	d := tls.Dialer{
		NetDialer: &net.Dialer{KeepAliveConfig: probes},
		Config: &tls.Config{
			MinVersion:         tls.VersionTLS13,
			ClientSessionCache: sessions,
			InsecureSkipVerify: true, // VerifyConnection compares the whole certificate, also of a resumed session
			VerifyConnection: func(s tls.ConnectionState) error {
				if len(s.PeerCertificates) == 0 || Fingerprint(s.PeerCertificates[0].Raw) != fingerprint {
					return ErrFingerprint
				}
				return nil
			},
		},
	}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("gate %s: %w", address, err)
	}
	return conn, nil
}

// JoinErrors returns the errors of several gates as one error in one line. If only some of them match
// ErrFingerprint, those are left out, because a further try may reach one of the other gates.
func JoinErrors(errs []error) (joined error) {
	isOther := func(err error) bool { return !errors.Is(err, ErrFingerprint) }
	isMixed := slices.ContainsFunc(errs, isOther)
	for _, err := range errs {
		switch {
		case isMixed && !isOther(err):
		case joined == nil:
			joined = err
		default:
			joined = fmt.Errorf("%w; %w", joined, err)
		}
	}
	return joined
}

// Reach connects with one gate after the other until use returns nil or an error that each gate would
// return, which is a Refused with the code RefusedInvalid or RefusedNameTaken. It closes the connection if use
// returns an error. The result is nil, or has an error for each attempt. limit is the time for each
// connection; it is refusedLimit at most once a gate has refused the caller, because the caller may want to try that gate again soon.
func Reach(ctx context.Context, addresses []string, fingerprint string, limit time.Duration, use func(conn net.Conn, address string) error) (errs []error) {
	remaining := slices.Clone(addresses)
	for len(remaining) > 0 {
		dialing, cancel := context.WithTimeout(ctx, limit)
		conn, address, err := Dial(dialing, remaining, fingerprint)
		cancel()
		if err != nil {
			return append(errs, err)
		}
		if err = use(conn, address); err == nil {
			return nil
		}
		_ = conn.Close()
		errs = append(errs, err)
		var refused *Refused
		isRefused := errors.As(err, &refused)
		if isRefused {
			limit = min(limit, refusedLimit)
		}
		isFinal := isRefused && (refused.Code == RefusedInvalid || refused.Code == RefusedNameTaken)
		if isFinal || ctx.Err() != nil {
			return errs
		}
		remaining = slices.DeleteFunc(remaining, func(a string) bool { return a == address })
	}
	return errs
}
