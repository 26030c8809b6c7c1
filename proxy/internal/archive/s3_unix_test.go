//go:build unix

package archive

import (
	"fmt"
	"testing"

	"holdfast/shared/testkit/s3server"
)

// A real server fulfils the contract, also with more objects than a page of a listing has.
func TestS3Server(t *testing.T) {
	server := s3server.Start(t)
	setCredentials(t, s3server.KeyID, s3server.Secret)
	s := openTestS3(t, server.Endpoint())
	testStore(t, s)
	const n = 1100
	for i := range n {
		if err := s.Put(t.Context(), fmt.Sprintf("host/many@x/%05d", i), nil); err != nil {
			t.Fatal(err)
		}
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
