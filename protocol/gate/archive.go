package gate

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"path"
	"strings"
)

// ArchiveScheme begins Upgrade.From if that is the URL of an archive and not a directory.
const ArchiveScheme = "https://"

// CheckArchive returns an error unless from is a URL and sum a SHA-256, as Upgrade demands for an archive.
func CheckArchive(from, sum string) error {
	if _, err := ParseArchiveURL(from); err != nil {
		return err
	}
	if !isHex(sum, sha256.Size) {
		return fmt.Errorf("the archive needs its SHA-256, which has %d characters of 0-9 and a-f", 2*sha256.Size)
	}
	return nil
}

// ParseArchiveURL parses the URL of an archive, or the beginning of such URLs. The URL has https, a host and a path
// that contains no dots as names, and nothing else, so that the beginning of a URL tells what it leads to.
func ParseArchiveURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || !strings.HasPrefix(text, ArchiveScheme) || len(text) > MaxUpgradeText {
		return nil, fmt.Errorf("%.200q is no URL with https", text)
	}
	plain := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.Host == "" || u.Path != "" && u.Path != "/" && path.Clean(u.Path) != strings.TrimSuffix(u.Path, "/") || plain.String() != text {
		return nil, fmt.Errorf("%.200q must be a URL of https, a host and a path", text)
	}
	return u, nil
}

// IsArchiveBelow reports whether a URL is, or is below, the URL with which it must begin.
func IsArchiveBelow(u, begin *url.URL) bool {
	above := strings.TrimSuffix(begin.Path, "/")
	return strings.EqualFold(u.Host, begin.Host) && (u.Path == above || strings.HasPrefix(u.Path, above+"/"))
}
