package credential

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/protocol/gate"
	"holdfast/shared/testkit"
)

// The certificate for browsers stays the same until the gate has another address, or until it expires. One that a user
// has put into its place is never replaced.
func TestWebCertificate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gate")
	s, err := Open(dir)
	testkit.Must(t, err)
	now := time.Now()
	fingerprint := func(address string, at time.Time) string {
		t.Helper()
		c, err := s.WebCertificate(address, at)
		testkit.Must(t, err)
		return gate.Fingerprint(c.Certificate[0])
	}
	first := fingerprint("gate.example:7684", now)
	if fingerprint("gate.example:1", now.Add(webValidity-2*webRenewal)) != first {
		t.Error("the certificate changes without need")
	}
	if fingerprint("gate.example:7684", now.Add(webValidity-webRenewal/2)) == first {
		t.Error("a certificate that expires stays")
	}
	if info, err := os.Stat(filepath.Join(dir, webFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has %v, %v", info, err)
	}
	for _, address := range []string{"127.0.0.1:1", "[::1]:1", "other.example:1"} {
		before := fingerprint("gate.example:1", now)
		if fingerprint(address, now) == before {
			t.Errorf("the certificate of another host stays for %s", address)
		}
	}
	own, err := os.ReadFile(filepath.Join(dir, "certificate.pem"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, webFile), own, 0o600)
	}
	testkit.Must(t, err)
	if fingerprint("gate.example:1", now.Add(2*validity)) != s.Fingerprint() {
		t.Error("the certificate of the user is replaced")
	}
	testkit.Must(t, os.WriteFile(filepath.Join(dir, webFile), []byte("no certificate"), 0o600))
	if _, err := s.WebCertificate("gate.example:1", now); err == nil {
		t.Error("a file without a certificate is accepted")
	}
}
