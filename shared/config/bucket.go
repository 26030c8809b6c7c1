package config

import (
	"io/fs"
	"net"
	"net/url"
	"regexp"
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

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

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

// parseBucket parses s3://BUCKET/PREFIX.
func parseBucket(text string) (name, prefix string, ok bool) {
	text, ok = strings.CutPrefix(text, bucketScheme)
	name, prefix, _ = strings.Cut(text, "/")
	prefix = strings.TrimSuffix(prefix, "/")
	return name, prefix, ok && bucketName.MatchString(name) && !strings.Contains(name, "..") && (prefix == "" || prefix != "." && fs.ValidPath(prefix))
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
