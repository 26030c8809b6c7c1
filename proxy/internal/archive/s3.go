package archive

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"holdfast/shared/config"
)

const (
	// requestTime is how long a request may take, with all its attempts, in addition to the time of its object.
	requestTime = 30 * time.Second
	// slowest is the lowest speed of a connection to the server, in bytes per second.
	slowest = 64 << 10
	// keysTime is how long a request waits for credentials.
	keysTime = 10 * time.Second
	// attempts is how often a request is sent if the server does not answer, or is overloaded. The recorder tries again
	// after that; the commands do not.
	attempts = 3
	// probeDir begins the key of the object of Probe. No host has this name.
	probeDir   = ".probe/"
	probeLimit = 1 << 10 // bytes of that object
	// maxPage limits a page of a listing in bytes. It has up to 1,000 keys of 1,024 bytes, each of which is three times as
	// long if its bytes are escaped, and has half a KiB of other fields.
	maxPage = 4 << 20
	// maxListed limits the objects of a listing. If each page takes 50 ms, it is read in eight minutes.
	maxListed = 10_000_000
)

// A request to a server of S3 that has failed has one of these errors, or one of those of a Store.
var (
	ErrUnavailable = errors.New("the store is unavailable") // now, or it does not fulfil the contract
	ErrRefused     = errors.New("the store refuses the credentials")
	ErrSetting     = errors.New("the store is not where the settings say, or there are no credentials")
)

// An S3 is a Store in a bucket of a server that speaks the protocol of Amazon S3. The server must know conditional
// puts, and must list keys in ascending order, as Amazon's does.
type S3 struct {
	api         *minio.Core
	credentials *credentials.Credentials
	bucket      string
	prefix      string        // of all keys; empty, or ends with a slash
	requestTime time.Duration // the constant requestTime, except in tests
	maxListed   int           // the constant maxListed, except in tests
}

// OpenS3 returns the store in a bucket. It sends no request. The credentials are those of the environment (AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN) or those of the profile AWS_PROFILE in the files ~/.aws/credentials and ~/.aws/config.
// AWS_REGION names the region; without it, the server is asked.
func OpenS3(b *config.Bucket) (*S3, error) {
	isSecure := b.Endpoint.Scheme == "https"
	transport, err := minio.DefaultTransport(isSecure)
	if err != nil {
		return nil, err
	}
	transport.ResponseHeaderTimeout = requestTime
	keys := credentials.New(&awsKeys{limit: keysTime})
	api, err := minio.NewCore(b.Endpoint.Host, &minio.Options{
		Creds: keys, Secure: isSecure, Transport: checked{transport}, Region: os.Getenv("AWS_REGION"), MaxRetries: attempts,
	})
	if err != nil {
		return nil, fmt.Errorf("S3 server %s: %w", b.Endpoint, err)
	}
	s := &S3{api: api, credentials: keys, bucket: b.Name, requestTime: requestTime, maxListed: maxListed}
	if b.Prefix != "" {
		s.prefix = b.Prefix + "/"
	}
	return s, nil
}

// checked is a transport that checks answers which minio-go does not check. It limits a page of a listing, which minio-go
// reads into memory whatever its length is. It also refuses an answer that is no page, such as the HTML of a proxy that asks
// for a login: minio-go takes it for the page of an empty bucket.
type checked struct{ http.RoundTripper }

var (
	errLongPage = fmt.Errorf("a page of the listing is longer than %d bytes", maxPage)
	errEndless  = errors.New("the server lists more than")
	errCycle    = errors.New("the server lists the same objects again; it must know continuation tokens (ListObjectsV2)")
	errNoPage   = errors.New("the server answers with something other than a listing; does recordings_endpoint name a server of S3?")
)

// RoundTrip implements http.RoundTripper. A page that is refused is one whose body cannot be read, because minio-go sends the
// request again after another error.
func (c checked) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.RoundTripper.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusOK || r.Method != http.MethodGet || r.URL.RawQuery == "" { // an error, or an object, which have limits of their own
		return answer, err
	}
	body := bufio.NewReader(io.MultiReader(io.LimitReader(answer.Body, maxPage), unreadable{errLongPage}))
	page := struct {
		io.Reader
		io.Closer
	}{body, answer.Body}
	if start, _ := body.Peek(512); r.URL.Query().Has("list-type") && !bytes.Contains(start, []byte("ListBucketResult")) {
		page.Reader = unreadable{errNoPage}
	}
	answer.Body = page
	return answer, nil
}

// unreadable is a reader that fails.
type unreadable struct{ err error }

func (u unreadable) Read([]byte) (int, error) { return 0, u.err }

// awsKeys finds credentials at the places that all programs for S3 know. It adds two things to the chain of minio-go: it
// fails if there are no credentials, and it does not wait for ever for a program that a profile names
// (credential_process). credentials.Credentials calls one method at a time.
type awsKeys struct {
	limit time.Duration // for one call
	chain *credentials.Chain
	found chan foundKeys // not nil while a search runs
}

type foundKeys struct {
	value credentials.Value
	err   error
}

var errNoKeys = errors.New("no credentials: write them to ~/.aws/credentials, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, which a proxy that another program starts does not inherit")

// Retrieve implements credentials.Provider.
func (k *awsKeys) Retrieve() (credentials.Value, error) { return k.RetrieveWithCredContext(nil) }

// RetrieveWithCredContext implements credentials.Provider.
func (k *awsKeys) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	if k.found == nil {
		chain := &credentials.Chain{Providers: []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}}
		found := make(chan foundKeys, 1)
		go func() {
			value, err := chain.RetrieveWithCredContext(cc)
			found <- foundKeys{value, err}
		}()
		k.chain, k.found = chain, found
	}
	select {
	case f := <-k.found:
		k.found = nil
		if f.err == nil && f.value.AccessKeyID == "" {
			f.err = errNoKeys
		}
		return f.value, f.err
	case <-time.After(k.limit):
		return credentials.Value{}, fmt.Errorf("no credentials after %v; does the credential_process of the profile in ~/.aws hang?", k.limit)
	}
}

// IsExpired implements credentials.Provider.
func (k *awsKeys) IsExpired() bool { return k.found != nil || k.chain == nil || k.chain.IsExpired() }

var errNoAnswer = errors.New("the server has not answered")

// Put implements Store.
func (s *S3) Put(ctx context.Context, key string, data []byte) error {
	options := minio.PutObjectOptions{}
	options.SetMatchETagExcept("*") // no object may have this key
	return s.put(ctx, key, data, options)
}

// Replace implements Store.
func (s *S3) Replace(ctx context.Context, key string, data []byte) error {
	return s.put(ctx, key, data, minio.PutObjectOptions{})
}

func (s *S3) put(ctx context.Context, key string, data []byte, options minio.PutObjectOptions) error {
	return s.request(ctx, "put", key, len(data), func(ctx context.Context) error {
		options.DisableContentSha256 = true // of each chunk: the sum of the whole is sent
		sum := sha256.Sum256(data)
		_, err := s.api.PutObject(ctx, s.bucket, s.prefix+key, bytes.NewReader(data), int64(len(data)), "", hex.EncodeToString(sum[:]), options)
		return err
	})
}

// Get implements Store.
func (s *S3) Get(ctx context.Context, key string, limit int64) (data []byte, err error) {
	err = s.request(ctx, "get", key, int(limit), func(ctx context.Context) error {
		body, _, _, err := s.api.GetObject(ctx, s.bucket, s.prefix+key, minio.GetObjectOptions{})
		if err != nil {
			return err
		}
		defer func() { _ = body.Close() }()
		data, err = readLimited(body, key, limit)
		return err
	})
	return data, err
}

// Delete implements Store.
func (s *S3) Delete(ctx context.Context, key string) error {
	err := s.request(ctx, "delete", key, 0, func(ctx context.Context) error {
		return s.api.RemoveObject(ctx, s.bucket, s.prefix+key, minio.RemoveObjectOptions{})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// request calls a function that sends a request for an object of at most n bytes, and gives it the time for that.
func (s *S3) request(ctx context.Context, verb, key string, n int, send func(context.Context) error) error {
	if !fs.ValidPath(key) || key == "." {
		return fmt.Errorf("%.200q is not the key of an object", key)
	}
	limit := s.requestTime + time.Duration(n/slowest)*time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w within %v", errNoAnswer, limit))
	defer cancel()
	return s.wrap(ctx, verb, key, send(ctx))
}

// List implements Store. Each page of the listing has the time of a request.
func (s *S3) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		limit := time.AfterFunc(s.requestTime, func() { cancel(fmt.Errorf("%w within %v", errNoAnswer, s.requestTime)) })
		defer limit.Stop()
		mark, n := "", 0 // the key of an object, and the number of objects so far
		for o := range s.api.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true}) {
			limit.Stop()
			if o.Err != nil {
				yield(Object{}, s.wrap(ctx, "list", prefix, o.Err))
				return
			}
			if o.Key == mark { // the mark moves on in ever longer steps, so it comes to lie in any cycle
				yield(Object{}, s.wrap(ctx, "list", prefix, errCycle))
				return
			}
			if n++; n&(n-1) == 0 {
				mark = o.Key
			}
			if n > s.maxListed {
				yield(Object{}, s.wrap(ctx, "list", prefix, fmt.Errorf("%w %d objects; store the recordings below a prefix of their own, or for a shorter time (recordings_age)", errEndless, s.maxListed)))
				return
			}
			// A key that ends with a slash stands for a folder; consoles make them.
			if key, ok := strings.CutPrefix(o.Key, s.prefix); ok && !strings.HasSuffix(key, "/") && !yield(Object{key, o.Size, o.LastModified}, nil) {
				return
			}
			limit.Reset(s.requestTime)
		}
		if err := ctx.Err(); err != nil { // the listing ends without an error then
			yield(Object{}, s.wrap(ctx, "list", prefix, err))
		}
	}
}

// Probe makes one request of each kind that a recorder makes, and returns the first one that fails: list, put, get or
// delete. It stores a small object of the host, which belongs to no recording, and deletes it again.
func (s *S3) Probe(ctx context.Context, host string) (failed string, err error) {
	key := probeDir + host
	for _, err := range s.List(ctx, host+"/") {
		if err != nil {
			return "list", err
		}
		break // one page shows it
	}
	if err := s.Put(ctx, key, []byte(host)); err != nil && !errors.Is(err, ErrExists) { // it may not have been deleted before
		return "put", err
	}
	if _, err := s.Get(ctx, key, probeLimit); err != nil && !errors.Is(err, fs.ErrNotExist) { // another command may have deleted it
		return "get", err
	}
	if err := s.Delete(ctx, key); err != nil {
		return "delete", err
	}
	return "", nil
}

// wrap gives an error the request that has failed, and the meaning that it has for a Store.
func (s *S3) wrap(ctx context.Context, verb, key string, err error) error {
	if err == nil {
		return nil
	}
	var answer minio.ErrorResponse
	isAnswer := errors.As(err, &answer)
	if answer.StatusCode == http.StatusForbidden || strings.HasPrefix(answer.Code, "ExpiredToken") {
		s.credentials.Expire() // the next request reads them again, because another program may have renewed the file
	}
	switch {
	case ctx.Err() != nil:
		err = failure{context.Cause(ctx), ErrUnavailable}
	case answer.StatusCode == http.StatusPreconditionFailed:
		err = ErrExists
	case answer.Code == minio.NoSuchKey:
		err = fs.ErrNotExist
	case isAnswer:
		err = failure{fmt.Errorf("the server answers %d %s: %.500s", answer.StatusCode, answer.Code, answer.Message), kindOf(answer.StatusCode)}
	case errors.Is(err, errNoKeys), errors.Is(err, errNoPage):
		err = failure{err, ErrSetting}
	case !errors.Is(err, ErrTorn):
		err = failure{err, ErrUnavailable}
	}
	return fmt.Errorf("%s s3://%s/%s%s: %w", verb, s.bucket, s.prefix, key, err)
}

// A failure is an error that also matches one of ErrUnavailable, ErrRefused and ErrSetting.
type failure struct {
	error
	kind error
}

// Unwrap returns the error and its kind.
func (f failure) Unwrap() []error { return []error{f.error, f.kind} }

// kindOf returns the kind of an answer. The status is 0 if the answer is not one of S3.
func kindOf(status int) error {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return ErrRefused
	case status < 300, status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooManyRequests:
		return ErrUnavailable
	}
	return ErrSetting // there is no such bucket, or it is in another region, for example
}
