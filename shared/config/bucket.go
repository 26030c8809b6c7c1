package config

import (
	"io/fs"
	"net"
	"net/url"
	"strings"
)

// A Bucket is a place for recordings at a server that speaks the protocol of Amazon S3.
type Bucket struct {
	Endpoint *url.URL // of the server: a scheme and a host
	Name     string
	Prefix   string // of all keys, without a slash at its ends; may be empty
}

// defaultEndpoint is the server of the setting recordings_endpoint.
const defaultEndpoint = "https://s3.amazonaws.com"

// bucketScheme begins a setting recordings that names a bucket.
const bucketScheme = "s3://"

// RecordingsBucket returns the bucket that the setting recordings names, or nil if it names a directory. The settings
// must be valid.
func (c *Config) RecordingsBucket() *Bucket {
	name, prefix, ok := parseBucket(c.Recordings)
	endpoint := parseEndpoint(c.RecordingsEndpoint)
	if !ok || endpoint == nil {
		return nil
	}
	return &Bucket{Endpoint: endpoint, Name: name, Prefix: prefix}
}

// isBucketName reports whether S3 permits a bucket of this name: 3 to 63 lower-case letters, digits, dots and hyphens,
// the first and the last of which is a letter or a digit.
func isBucketName(name string) bool {
	const ends = "abcdefghijklmnopqrstuvwxyz0123456789"
	return len(name) >= 3 && len(name) <= 63 && strings.Trim(name, ends+".-") == "" && !strings.Contains(name, "..") &&
		strings.ContainsRune(ends, rune(name[0])) && strings.ContainsRune(ends, rune(name[len(name)-1]))
}

// parseBucket parses s3://BUCKET/PREFIX.
func parseBucket(text string) (name, prefix string, ok bool) {
	text, ok = strings.CutPrefix(text, bucketScheme)
	name, prefix, _ = strings.Cut(text, "/")
	prefix = strings.TrimSuffix(prefix, "/")
	return name, prefix, ok && isBucketName(name) && (prefix == "" || prefix != "." && fs.ValidPath(prefix))
}

// parseEndpoint returns the address of a server, or nil if it is not valid. Only a loopback address may do without TLS.
func parseEndpoint(text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil
	}
	isLocal := u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()
	if u.Scheme != "https" && !(u.Scheme == "http" && isLocal) {
		return nil
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}
}
