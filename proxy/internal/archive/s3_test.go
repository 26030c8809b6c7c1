package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/shared/config"
	"holdfast/shared/testkit"
)

// openTestS3 returns the store in a bucket with a prefix.
func openTestS3(t *testing.T, endpoint string) *S3 {
	t.Helper()
	u, err := url.Parse(endpoint)
	testkit.Must(t, err)
	s, err := OpenS3(&config.Bucket{Endpoint: u, Name: "recordings", Prefix: "of/all hosts"})
	testkit.Must(t, err)
	return s
}

// setCredentials lets the test find these credentials alone; key may be empty.
func setCredentials(t *testing.T, id, key string) {
	t.Setenv("AWS_ACCESS_KEY_ID", id)
	t.Setenv("AWS_SECRET_ACCESS_KEY", key)
	t.Setenv("AWS_REGION", "us-east-1")
	for _, name := range []string{"AWS_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	for _, name := range []string{"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"} {
		t.Setenv(name, filepath.Join(t.TempDir(), "none"))
	}
}

// calls returns one call of each method.
func calls(s Store) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"put":    func(ctx context.Context) error { return s.Put(ctx, "a/b", []byte("object")) },
		"get":    func(ctx context.Context) error { _, err := s.Get(ctx, "a/b", 10); return err },
		"delete": func(ctx context.Context) error { return s.Delete(ctx, "a/b") },
		"list": func(ctx context.Context) error {
			for _, err := range s.List(ctx, "a/") {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// A call ends when its context or its time does, and when there is no server. Its error names the request.
func TestS3WithoutServer(t *testing.T) {
	setCredentials(t, "id", "the secret key")
	l, err := net.Listen("tcp", "127.0.0.1:0") // it accepts connections, and does not answer
	testkit.Must(t, err)
	s := openTestS3(t, "http://"+l.Addr().String())
	check := func(what string, want error, ctx func() (context.Context, context.CancelFunc)) {
		var wg sync.WaitGroup
		for verb, call := range calls(s) {
			wg.Go(func() {
				ctx, cancel := ctx()
				defer cancel()
				if err := call(ctx); err == nil || want != nil && !errors.Is(err, want) || !strings.HasPrefix(err.Error(), verb+" s3://recordings/of/all hosts/a/") || strings.Contains(err.Error(), "secret key") {
					t.Errorf("%s, %s: %v", what, verb, err)
				}
			})
		}
		wg.Wait()
	}
	check("a context that ends", context.DeadlineExceeded, func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), 50*time.Millisecond)
	})
	check("a context that has ended", context.Canceled, func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return ctx, cancel
	})
	s.requestTime = 50 * time.Millisecond
	check("no answer", errNoAnswer, func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) })
	s.requestTime = time.Hour
	testkit.Must(t, l.Close())
	check("no server", nil, func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) })
}

func TestOpenS3(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"https://s3.amazonaws.com", "https://s3.example:9000", "http://localhost:9000", "http://127.0.0.1", "http://[::1]:9000"} {
		if s := openTestS3(t, endpoint); strings.TrimSuffix(s.api.EndpointURL().String(), "/") != endpoint {
			t.Errorf("%s becomes %s", endpoint, s.api.EndpointURL())
		}
	}
}

func TestS3WithoutCredentials(t *testing.T) {
	setCredentials(t, "", "")
	s := openTestS3(t, "http://127.0.0.1:1")
	for verb, call := range calls(s) {
		if err := call(t.Context()); !errors.Is(err, errNoKeys) {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

// The errors of a server become those of a Store. A put is conditional, and Replace is not.
func TestS3Answers(t *testing.T) {
	setCredentials(t, "id", "the secret key")
	var status int
	var code string
	conditions := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case conditions <- r.Header.Get("If-None-Match"):
		default:
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>A reason</Message></Error>", code)
	}))
	defer server.Close()
	s := openTestS3(t, server.URL)

	status, code = http.StatusPreconditionFailed, "PreconditionFailed"
	if err := s.Put(t.Context(), "a/b", nil); !errors.Is(err, ErrExists) || <-conditions != "*" {
		t.Errorf("Put of an object that exists: %v", err)
	}
	if err := s.Replace(t.Context(), "a/b", nil); err == nil || <-conditions != "" {
		t.Errorf("Replace: %v", err)
	}
	status, code = http.StatusNotFound, "NoSuchKey"
	if _, err := s.Get(t.Context(), "a/b", 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Get of a missing object: %v", err)
	}
	if err := s.Delete(t.Context(), "a/b"); err != nil {
		t.Errorf("Delete of a missing object: %v", err)
	}
	// A recorder must not take a recording for a new one if it may not read it, or if the bucket is not there.
	for _, code = range []string{"NoSuchBucket", "AccessDenied"} {
		status = map[string]int{"NoSuchBucket": 404, "AccessDenied": 403}[code]
		want := fmt.Sprintf("get s3://recordings/of/all hosts/a/b: the server answers %d %s: A reason", status, code)
		if _, err := s.Get(t.Context(), "a/b", 1); errors.Is(err, fs.ErrNotExist) || err == nil || err.Error() != want {
			t.Errorf("Get: %v", err)
		}
	}
	for _, key := range []string{"", ".", "..", "../x", "/x", "a/../x", "a//x"} {
		if err := s.Put(t.Context(), key, nil); err == nil || len(conditions) > 1 {
			t.Errorf("Put of %q: %v", key, err)
		}
	}
}

func TestS3Kinds(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]error{
		0: ErrUnavailable, 200: ErrUnavailable, 301: ErrSetting, 400: ErrSetting, 401: ErrRefused, 403: ErrRefused, 404: ErrSetting,
		408: ErrUnavailable, 429: ErrUnavailable, 500: ErrUnavailable, 503: ErrUnavailable,
	} {
		if got := kindOf(status); got != want {
			t.Errorf("%d means that %v, want %v", status, got, want)
		}
	}
}

// A listing that is none, that has no end, or that begins again is an error. It is neither an empty bucket nor one without an end.
func TestS3BadListings(t *testing.T) {
	setCredentials(t, "id", "the secret key")
	item := func(key string) string {
		return "<Contents><Key>of/all hosts/a/" + key + "</Key><LastModified>2026-11-01T00:00:00.000Z</LastModified><Size>1</Size></Contents>"
	}
	var page func(w io.Writer) error
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = page(w) }))
	defer server.Close()
	s := openTestS3(t, server.URL)
	s.maxListed = 5000
	list := calls(s)["list"]
	last := 0
	write := func(text string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
	}
	for name, tt := range map[string]struct {
		page func(io.Writer) error
		want error
	}{
		"HTML": {write("<html><body>Log in</body></html>"), errNoPage},
		"none": {write(""), errNoPage},
		"a page without an end": {func(w io.Writer) error {
			err := write("<ListBucketResult>")(w)
			for err == nil {
				err = write(item("b"))(w)
			}
			return err
		}, errLongPage},
		"a cycle": {write("<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>" + item("b") + item("c") + item("d") + "</ListBucketResult>"), errCycle},
		"other pages without an end": {func(w io.Writer) error {
			err := write(fmt.Sprintf("<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>%d</NextContinuationToken>", last))(w)
			for range 1000 {
				last++
				err = errors.Join(err, write(item(fmt.Sprintf("%09d", last)))(w))
			}
			return errors.Join(err, write("</ListBucketResult>")(w))
		}, errEndless},
	} {
		page = tt.page
		if err := list(testkit.Soon(t)); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// Credentials in the shared file are read again after the server has refused those that were read before.
func TestS3RenewsCredentials(t *testing.T) {
	setCredentials(t, "", "")
	file := filepath.Join(t.TempDir(), "credentials")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	write := func(id string) {
		testkit.Must(t, os.WriteFile(file, []byte("[default]\naws_access_key_id = "+id+"\naws_secret_access_key = secret\n"), 0o600))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential=new/") {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "<Error><Code>InvalidAccessKeyId</Code></Error>")
		}
	}))
	defer server.Close()
	s := openTestS3(t, server.URL)
	write("old")
	if err := s.Replace(t.Context(), "a/b", nil); err == nil {
		t.Error("old credentials are accepted")
	}
	write("new")
	if err := s.Replace(t.Context(), "a/b", nil); err != nil {
		t.Error(err)
	}
}

// Probe tells which kind of request a server refuses, leaves no object, and ends with its context.
func TestS3Probe(t *testing.T) {
	setCredentials(t, "id", "the secret key")
	refused, objects := "", map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		kind := map[string]string{http.MethodPut: "put", http.MethodGet: "get", http.MethodDelete: "delete"}[r.Method]
		if r.URL.Query().Has("list-type") {
			kind = "list"
		}
		switch {
		case kind == refused:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "<Error><Code>AccessDenied</Code><Message>A reason</Message></Error>")
		case kind == "list":
			fmt.Fprint(w, "<ListBucketResult><Name>recordings</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>")
		case kind == "put":
			objects[r.URL.Path] = true
			w.Header().Set("ETag", `"x"`)
		case kind == "get":
			w.Header().Set("ETag", `"x"`)
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			fmt.Fprint(w, "red")
		case kind == "delete":
			delete(objects, r.URL.Path)
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	defer server.Close()
	s := openTestS3(t, server.URL)
	for _, refused = range []string{"list", "put", "get", "delete"} {
		if failed, err := s.Probe(t.Context(), "red"); failed != refused || err == nil || !strings.Contains(err.Error(), "the server answers 403 AccessDenied: A reason") {
			t.Errorf("a server that refuses %s: %q, %v", refused, failed, err)
		}
	}
	refused = ""
	if failed, err := s.Probe(t.Context(), "red"); failed != "" || err != nil || len(objects) > 0 {
		t.Errorf("a server that refuses nothing: %q, %v, and it has %v", failed, err, objects)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts connections, and does not answer
	testkit.Must(t, err)
	defer func() { _ = silent.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if failed, err := openTestS3(t, "http://"+silent.Addr().String()).Probe(ctx, "red"); failed != "list" || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that does not answer: %q, %v", failed, err)
	}
}
