//go:build linux

package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"holdfast/shared/testkit"
)

// The exit code of the commands about recordings tells why a bucket cannot be read.
func TestBucketFailures(t *testing.T) {
	t.Parallel()
	answers := func(status int, body string) (endpoint string) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	w := newWorld(t)
	w.Env = append(w.Env, "HOLDFAST_RECORDINGS=s3://bucket/of", "AWS_REGION=us-east-1")
	keys := []string{"AWS_ACCESS_KEY_ID=id", "AWS_SECRET_ACCESS_KEY=secret"}
	nowhere := "http://" + testkit.FreeAddress(t)
	xml := func(code string) string { return "<Error><Code>" + code + "</Code><Message>A reason</Message></Error>" }
	for _, tt := range []struct {
		name     string
		endpoint string
		keys     []string
		code     int
		says     string
	}{
		{"no server", nowhere, keys, 69, "connection refused"},
		{"an error of the server", answers(501, xml("NotImplemented")), keys, 69, "the server answers 501 NotImplemented: A reason"},
		{"wrong credentials", answers(403, xml("AccessDenied")), keys, 77, "the server answers 403 AccessDenied: A reason"},
		{"no bucket", answers(404, xml("NoSuchBucket")), keys, 78, "the server answers 404 NoSuchBucket: A reason"},
		{"no S3", answers(200, "<html>Log in</html>"), keys, 78, "recordings_endpoint"},
		{"no credentials", nowhere, nil, 78, "no credentials"},
	} {
		before := w.Env
		w.Env = append(append(w.Env[:len(w.Env):len(w.Env)], "HOLDFAST_RECORDINGS_ENDPOINT="+tt.endpoint), tt.keys...)
		for _, args := range [][]string{{"recordings"}, {"verify"}, {"replay", "h/s@Uyy4pxPyz2XgPVVkEUxo"}} {
			w.fails(tt.code, tt.says, args...)
		}
		w.Env = before
	}
}
