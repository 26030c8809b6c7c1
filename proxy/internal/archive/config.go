package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"filippo.io/age"

	"holdfast/shared/config"
)

// A Config says where recordings are stored, and for how long.
type Config struct {
	Dir     string                                // directory of the recordings, unless Bucket is set
	Bucket  *config.Bucket                        // bucket of the recordings
	ReadKey func(context.Context) (string, error) // returns the age identities that encrypt recordings; nil: they are not encrypted
	All     bool                                  // sessions without the label are recorded, too
	Age     time.Duration                         // segments are deleted after this time
	Bytes   int64                                 // the oldest segments of the host are deleted beyond so many bytes; 0: no limit
}

// Open returns the store, and the keys if recordings are encrypted.
func (c *Config) Open(ctx context.Context) (Store, *Keys, error) {
	var keys *Keys
	if c.ReadKey != nil {
		text, err := c.ReadKey(ctx)
		if err == nil {
			keys, err = ParseKeys(text)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("durable_key: %w", err)
		}
	}
	if c.Bucket != nil {
		s, err := OpenS3(c.Bucket)
		return s, keys, err
	}
	return OpenDir(c.Dir), keys, nil
}

// Keys encrypt and decrypt the segments of recordings. The methods of a nil Keys do not encrypt, and
// cannot decrypt.
type Keys struct {
	identities []age.Identity
	recipient  age.Recipient // of the first identity
}

// ParseKeys parses the text of an age identity file. Its errors do not quote the text, which is secret.
func ParseKeys(text string) (*Keys, error) {
	identities, err := age.ParseIdentities(strings.NewReader(text))
	if err != nil {
		return nil, errors.New("it has no age identity: each line must be AGE-SECRET-KEY-1..., a comment that begins with #, or empty")
	}
	switch i := identities[0].(type) {
	case *age.X25519Identity:
		return &Keys{identities, i.Recipient()}, nil
	case *age.HybridIdentity:
		return &Keys{identities, i.Recipient()}, nil
	}
	return nil, errors.New("its first age identity is of a kind that this program does not know")
}

func (k *Keys) seal(object []byte) ([]byte, error) {
	if k == nil {
		return object, nil
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, k.recipient)
	if err == nil {
		_, err = w.Write(object)
	}
	if err == nil {
		err = w.Close()
	}
	return out.Bytes(), err
}

// errNoKey is the error for an encrypted segment that the key does not open.
var errNoKey = errors.New("the segment is encrypted, and durable_key does not open it")

func (k *Keys) open(object []byte) ([]byte, error) {
	if k == nil {
		return nil, errNoKey
	}
	r, err := age.Decrypt(bytes.NewReader(object), k.identities...)
	var noMatch *age.NoIdentityMatchError
	if errors.As(err, &noMatch) {
		return nil, errNoKey
	}
	if err == nil {
		object, err = io.ReadAll(io.LimitReader(r, maxObject))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTorn, err)
	}
	return object, nil
}

// openSegment returns the segment in the object of a key. The error is ErrTorn if it is not whole, or if it belongs
// to another key.
func openSegment(object []byte, text string, keys *Keys) (*Segment, error) {
	k, ok := parseKey(text)
	if !ok || k.isIndex {
		return nil, fmt.Errorf("%.200q is not the key of a segment", text)
	}
	if k.isSealed {
		var err error
		if object, err = keys.open(object); err != nil {
			return nil, err
		}
	}
	s, err := Decode(object)
	if err != nil {
		return nil, err
	}
	if s.Name != k.name || s.Start != k.start || s.End() != k.end {
		return nil, fmt.Errorf("%w: it is the segment %d-%d of %s", ErrTorn, s.Start, s.End(), s.Name)
	}
	return s, nil
}
