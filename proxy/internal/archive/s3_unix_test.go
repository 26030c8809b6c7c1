//go:build unix

package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"holdfast/shared/testkit"
	"holdfast/shared/testkit/s3server"
)

// A program that is asked for credentials and hangs delays a request for a limited time. Its answer is used when it comes.
func TestS3SlowCredentials(t *testing.T) {
	setCredentials(t, "", "")
	dir := t.TempDir()
	profile, pipe := filepath.Join(dir, "credentials"), filepath.Join(dir, "pipe")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", profile)
	testkit.Must(t, errors.Join(os.WriteFile(profile, []byte("[default]\ncredential_process = cat "+pipe+"\n"), 0o600), syscall.Mkfifo(pipe, 0o600)))
	keys := &awsKeys{limit: 10 * time.Millisecond}
	if v, err := keys.Retrieve(); err == nil || !keys.IsExpired() {
		t.Errorf("before the program answers: %v, %v", v, err)
	}
	answered := make(chan error, 1)
	go func() { // waits until the program reads
		answered <- os.WriteFile(pipe, []byte(`{"Version": 1, "AccessKeyId": "id", "SecretAccessKey": "key"}`), 0)
	}()
	testkit.Must(t, testkit.Within(t, time.Minute, "the program reads", answered))
	testkit.Eventually(t, time.Minute, func() bool {
		v, err := keys.Retrieve()
		return err == nil && v.AccessKeyID == "id"
	}, "the credentials of the program are used")
}

// A real server fulfils the contract, also with more objects than a page of a listing has.
func TestS3Server(t *testing.T) {
	server := s3server.Start(t)
	setCredentials(t, s3server.KeyID, s3server.Secret)
	s := openTestS3(t, server.Endpoint())
	testStore(t, s)
	const n = 1100
	for i := range n {
		testkit.Must(t, s.Put(t.Context(), fmt.Sprintf("host/many@x/%05d", i), nil))
	}
	i := 0
	for o, err := range s.List(t.Context(), "host/many@x/") {
		if err != nil || o.Key != fmt.Sprintf("host/many@x/%05d", i) {
			t.Fatalf("object %d of the listing is %q, %v", i, o.Key, err)
		}
		i++
	}
	if i != n {
		t.Errorf("the listing has %d of %d objects", i, n)
	}
}
