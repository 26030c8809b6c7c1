package past

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"filippo.io/age"
)

// ErrLocked is returned for a life that is sealed if its key is missing or another one.
var ErrLocked = errors.New("past: recording is sealed, and its key is not available")

const (
	keyName     = "key"
	maxKeyFile  = 16 << 10
	dataKeySize = 32
	// keyWait is how long a call waits for a key that is being read.
	keyWait = 2 * time.Second
	// keyRetry is the time from a failed attempt to read the key to the next one.
	keyRetry = 10 * time.Second
	// keyTime is the limit of one attempt to read the key.
	keyTime = 10 * time.Second
)

// A Key is the key of the user: age identities, which seal the data key of each life. It is read
// once. If that fails, it is read again at a later use. Its methods may be called by any goroutine.
type Key struct {
	read func(context.Context) (string, error)

	mu         sync.Mutex
	identities []age.Identity
	recipient  age.Recipient // of the first identity
	err        error         // of the last attempt
	began      time.Time     // the last attempt
	done       chan struct{} // closed at the end of the last attempt
}

// NewKey returns the key that read returns as the text of an age identity file. NewKey begins to
// read it, and does not wait.
func NewKey(read func(context.Context) (string, error)) *Key {
	k := &Key{read: read}
	k.attempt()
	return k
}

// attempt begins to read the key, unless the key is known, or an attempt runs or began less than
// keyRetry ago. It returns a channel
// that is closed when the last attempt has ended, and the time when that attempt began.
func (k *Key) attempt() (done <-chan struct{}, began time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.done != nil {
		select {
		case <-k.done:
			if k.err == nil || time.Since(k.began) < keyRetry {
				return k.done, k.began
			}
		default:
			return k.done, k.began
		}
	}
	ended := make(chan struct{})
	k.done, k.began = ended, time.Now()
	go func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(context.Background(), keyTime)
		defer cancel()
		text, err := k.read(ctx)
		k.set(text, err)
	}()
	return k.done, k.began
}

func (k *Key) set(text string, err error) {
	var identities []age.Identity
	var recipient age.Recipient
	if err == nil {
		identities, recipient, err = parseIdentities(text)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.identities, k.recipient, k.err = identities, recipient, err
}

// parseIdentities parses the text of an age identity file. Its errors do not quote the text, which
// is secret.
func parseIdentities(text string) ([]age.Identity, age.Recipient, error) {
	identities, err := age.ParseIdentities(strings.NewReader(text))
	if err != nil {
		return nil, nil, errors.New("it has no age identity: each line must be AGE-SECRET-KEY-1..., a comment that begins with #, or empty")
	}
	switch i := identities[0].(type) {
	case *age.X25519Identity:
		return identities, i.Recipient(), nil
	case *age.HybridIdentity:
		return identities, i.Recipient(), nil
	}
	return nil, nil, errors.New("its first age identity is of a kind that this program does not know")
}

// Await waits until the present attempt to read the key has ended.
func (k *Key) Await() {
	if k != nil {
		done, _ := k.attempt()
		<-done
	}
}

// get returns the identities. It waits for an attempt at most until keyWait after its start.
func (k *Key) get() ([]age.Identity, age.Recipient, error) {
	if k == nil {
		return nil, nil, fmt.Errorf("%w: set durable_key", ErrLocked)
	}
	done, began := k.attempt()
	if !isDoneWithin(done, time.Until(began.Add(keyWait))) {
		return nil, nil, fmt.Errorf("%w: durable_key is still being read", ErrLocked)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return nil, nil, fmt.Errorf("%w: durable_key: %w", ErrLocked, k.err)
	}
	return k.identities, k.recipient, nil
}

// isDoneWithin waits until done is closed, or for a time, and reports whether done is closed.
func isDoneWithin(done <-chan struct{}, wait time.Duration) bool {
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-done:
		return true
	case <-late.C:
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// A dataKey seals the files of one life.
type dataKey [dataKeySize]byte

// newDataKey returns a random key.
func newDataKey() *dataKey {
	k := new(dataKey)
	_, _ = rand.Read(k[:]) // never fails
	return k
}

// wrap returns the content of the key file: the data key and the name of the life's directory,
// encrypted for the key of the user. If the key file of another life were in its place, all blocks
// would look damaged; the name detects that.
func (k *Key) wrap(d *dataKey, life string) ([]byte, error) {
	_, recipient, err := k.get()
	if err != nil {
		return nil, err
	}
	var file bytes.Buffer
	w, err := age.Encrypt(&file, recipient)
	if err == nil {
		_, err = w.Write(append(d[:], life...))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("past: key of %s: %w", life, err)
	}
	return file.Bytes(), nil
}

// unwrap returns the data key in the content of the key file of a life.
func (k *Key) unwrap(file []byte, life string) (*dataKey, error) {
	identities, _, err := k.get()
	if err != nil {
		return nil, err
	}
	var content []byte
	r, err := age.Decrypt(bytes.NewReader(file), identities...)
	if err == nil {
		content, err = io.ReadAll(io.LimitReader(r, maxKeyFile))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: durable_key does not open the file %s of %s: %w", ErrLocked, keyName, life, err)
	}
	if len(content) < dataKeySize || string(content[dataKeySize:]) != life {
		return nil, fmt.Errorf("%w: the file %s of %s belongs to another recording", ErrLocked, keyName, life)
	}
	return (*dataKey)(content), nil
}

// dataKey returns the key of the life in a directory, or nil if the life is not sealed.
func (s *Store) dataKey(dir string) (*dataKey, error) {
	f, err := openFile(filepath.Join(dir, keyName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLocked, err)
	}
	file, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLocked, err)
	}
	return s.key.unwrap(file, filepath.Base(dir))
}

// openKey opens the key of the life, or makes it if the store has one for new files. A writer must
// not continue sealed segments without their key, because all their blocks would look damaged.
func (w *Writer) openKey() (err error) {
	if w.key, err = w.store.dataKey(w.dir); err != nil || w.key != nil {
		return err
	}
	segments, err := listSegments(w.dir)
	if err != nil {
		return err
	}
	for _, s := range segments {
		if isSealed(filepath.Join(w.dir, s.name)) {
			return fmt.Errorf("%w: the file %s is missing", ErrLocked, keyName)
		}
	}
	if w.store.key == nil {
		return nil
	}
	w.key = newDataKey()
	return w.writeKey()
}

// writeKey stores the key of the life durably.
func (w *Writer) writeKey() error {
	if w.key == nil {
		return nil
	}
	file, err := w.store.key.wrap(w.key, filepath.Base(w.dir))
	if err != nil {
		return err
	}
	return replaceFile(w.store.disk, filepath.Join(w.dir, keyName), file)
}

// isSealed reports whether the segment at path is sealed.
func isSealed(path string) bool {
	w, err := openWalk(path, nil, true)
	if err != nil {
		return false
	}
	defer w.Close()
	return w.isSealed
}

// forSegment returns the cipher of a segment with this header. Each header has its own key, so that
// a block opens in no other segment, and so that the random nonces of 96 bits need to differ only
// within a segment: it has less than 2^24 blocks, so the probability of two equal nonces is below 2^-49.
// A counter in place of a random nonce would repeat after a torn block was cut off.
func (k *dataKey) forSegment(header []byte) cipher.AEAD {
	if k == nil {
		return nil
	}
	return k.cipher("holdfast past segment " + string(header))
}

// forMeta returns the cipher of meta.json. It is written at most a few times a second.
func (k *dataKey) forMeta() cipher.AEAD { return k.cipher("holdfast past meta") }

func (k *dataKey) cipher(purpose string) cipher.AEAD {
	key, err := hkdf.Expand(sha256.New, k[:], purpose, dataKeySize)
	var block cipher.Block
	if err == nil {
		block, err = aes.NewCipher(key)
	}
	var c cipher.AEAD
	if err == nil {
		c, err = cipher.NewGCMWithRandomNonce(block)
	}
	if err != nil {
		panic("past: cipher: " + err.Error()) // the lengths are constants
	}
	return c
}

// gcmBytes is the length of the nonce and the tag of a sealed payload.
const gcmBytes = 12 + 16

// sealedBytes returns how much longer a payload becomes when it is sealed.
func sealedBytes(c cipher.AEAD) int {
	if c == nil {
		return 0
	}
	return gcmBytes
}
