package policytest

import (
	"strings"

	"holdfast/proxy/policy"
)

var transports = []string{policy.TransportUnix, policy.TransportWebSocket, policy.TransportRaw, policy.TransportPipe}

func knownTokens(q asker, s Subject) {
	for token, want := range s.Tokens {
		for _, transport := range transports {
			q.accepts(policy.Credentials{Token: token, Transport: transport, UID: -1, Client: "policytest"}, want)
		}
	}
}

func knownUIDs(q asker, s Subject) {
	for uid, want := range s.UIDs {
		q.accepts(policy.Credentials{Transport: policy.TransportUnix, UID: uid, PID: 1, Client: "policytest"}, want)
	}
}

func (q asker) accepts(c policy.Credentials, want policy.Principal) {
	q.Helper()
	got, code, ok := q.authenticate(c)
	switch {
	case !ok:
	case code != "":
		q.Errorf("%s: refused with %s, want %+v", credentials(c), code, want)
	case !samePrincipal(got, want):
		q.Errorf("%s: got %+v, want %+v", credentials(c), got, want)
	}
}

func unknownTokens(q asker, s Subject) {
	tokens := append([]string{"policytest-nobody", " ", "*"}, odd...)
	for known := range s.Tokens { // a text similar to a token must be refused
		tokens = append(tokens, known+"x", known+" ", " "+known, known+"\x00", known+"\xff", known[:len(known)-min(1, len(known))])
	}
	for _, token := range tokens {
		if _, known := s.Tokens[token]; known || token == "" {
			continue
		}
		q.refuses(policy.Credentials{Token: token, UID: -1})
	}
}

func noCredentials(q asker, _ Subject) { q.refuses(policy.Credentials{UID: -1}) }

func unknownUIDs(q asker, s Subject) {
	for _, uid := range s.Strangers {
		q.refuses(policy.Credentials{UID: uid, PID: 1})
	}
}

// refuses checks that a client is refused on every transport, independent of its name.
func (q asker) refuses(c policy.Credentials) {
	q.Helper()
	for _, transport := range transports {
		for _, name := range []string{"", "root", strings.Repeat("n", 200)} {
			c.Transport, c.Client = transport, name
			if p, code, ok := q.authenticate(c); ok && code == "" {
				q.Errorf("%s: let in as %+v, want %s", credentials(c), p, policy.CodeUnauthorized)
			}
		}
	}
}
