package credential

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// webFile has the certificate for browsers with its key.
const webFile = "web.pem"

const (
	webName     = "holdfast gate page" // common name of a certificate that WebCertificate has made
	webValidity = 820 * 24 * time.Hour // some browsers refuse more than 825 days
	webRenewal  = 30 * 24 * time.Hour  // a certificate that expires within this time is made again
)

// WebCertificate returns the certificate of this gate for browsers, which accept neither the key of the
// certificate of all gates nor its fingerprint. It is made if it is missing, if it names another host than that of
// address, or if it expires. A certificate that another program has put into the file is returned as it is.
func (s *Store) WebCertificate(address string, now time.Time) (tls.Certificate, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return tls.Certificate{}, err
	}
	makeNew := func() ([]byte, error) { return newWebCertificate(host, now) }
	b, err := s.read(webFile, makeNew)
	if err != nil {
		return tls.Certificate{}, err
	}
	certificate, err := tls.X509KeyPair(b, b)
	if err != nil {
		return certificate, fmt.Errorf("%s: %w", s.path(webFile), err)
	}
	leaf := certificate.Leaf
	isCurrent := leaf.VerifyHostname(host) == nil && now.Add(webRenewal).Before(leaf.NotAfter)
	if leaf.Subject.CommonName != webName || isCurrent {
		return certificate, nil
	}
	if b, err = makeNew(); err != nil {
		return certificate, err
	}
	if err := replace(s.path(webFile), b); err != nil {
		return certificate, err
	}
	return tls.X509KeyPair(b, b)
}

// newWebCertificate returns a new key and a certificate that it has signed itself, in one file.
func newWebCertificate(host string, now time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: webName},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(webValidity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	return append(b, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...), nil
}
