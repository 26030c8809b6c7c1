package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"holdfast/protocol/gate"
	"holdfast/shared/machine"
)

// ErrExists is the error of Put if there is an object of this key already.
var ErrExists = errors.New("there is such an object already")

// An Object is an object in the listing of a store.
type Object struct {
	Key      string
	Bytes    int64
	Modified time.Time
}

// A Store keeps objects by their keys, which are relative paths with slashes. A reader sees an object
// whole or not at all. The methods may be called by any goroutine. The error for a missing object
// is fs.ErrNotExist.
type Store interface {
	// Put stores an object durably unless there is one of this key; then the error is ErrExists.
	Put(ctx context.Context, key string, data []byte) error
	// Replace stores an object durably, also if there is one of this key.
	Replace(ctx context.Context, key string, data []byte) error
	// Get returns an object. If it has more than limit bytes, the error is ErrTorn.
	Get(ctx context.Context, key string, limit int64) ([]byte, error)
	// List yields the objects whose keys begin with prefix, which is empty or ends with a slash. Objects whose
	// keys differ only behind the last slash come in ascending order. An error is the last item.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Delete deletes an object. It is no error if there is none.
	Delete(ctx context.Context, key string) error
}

// A Dir is a Store in a directory. No key has a part that begins with a dot, as the names of files that are being written.
type Dir struct{ path string }

// OpenDir returns the store in a directory, which is created by the first object.
func OpenDir(path string) *Dir { return &Dir{path} }

// file returns the path of the file of a key.
func (d *Dir) file(key string) (string, error) {
	if !fs.ValidPath(key) || key == "." || strings.HasPrefix(path.Base(key), ".") {
		return "", fmt.Errorf("%.200q is not the key of an object", key)
	}
	return filepath.Join(d.path, filepath.FromSlash(key)), nil
}

// Put implements Store.
func (d *Dir) Put(ctx context.Context, key string, data []byte) error {
	err := d.write(ctx, key, data, machine.CreateFile)
	if errors.Is(err, fs.ErrExist) {
		return ErrExists
	}
	return err
}

// Replace implements Store.
func (d *Dir) Replace(ctx context.Context, key string, data []byte) error {
	return d.write(ctx, key, data, machine.ReplaceFile)
}

func (d *Dir) write(ctx context.Context, key string, data []byte, write func(path string, content io.Reader, mode fs.FileMode) error) error {
	file, err := d.file(key)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := d.makeDir(filepath.Dir(file)); err != nil {
		return err
	}
	return write(file, bytes.NewReader(data), machine.PrivateMode)
}

// makeDir creates the directories of a key, and makes their names durable.
func (d *Dir) makeDir(dir string) error {
	if fi, err := os.Stat(dir); err == nil && fi.IsDir() {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for up := dir; up != d.path && len(up) > len(d.path); {
		up = filepath.Dir(up)
		if err := machine.SyncDir(up); err != nil {
			return err
		}
	}
	return nil
}

// Get implements Store.
func (d *Dir) Get(ctx context.Context, key string, limit int64) ([]byte, error) {
	file, err := d.file(key)
	if err != nil {
		return nil, err
	}
	fi, err := os.Lstat(file)
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is no regular file", ErrTorn, key)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return readLimited(f, key, limit)
}

// readLimited reads an object. The error is ErrTorn if it has more than limit bytes.
func readLimited(r io.Reader, key string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrTorn, key, limit)
	}
	return data, nil
}

// List implements Store.
func (d *Dir) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		if prefix != "" && !fs.ValidPath(strings.TrimSuffix(prefix, "/")) {
			yield(Object{}, fmt.Errorf("%.200q is not the prefix of keys", prefix))
			return
		}
		d.walk(ctx, prefix, yield)
	}
}

// walk yields the objects in a directory and below it, and reports whether the iteration continues.
func (d *Dir) walk(ctx context.Context, prefix string, yield func(Object, error) bool) bool {
	entries, err := os.ReadDir(filepath.Join(d.path, filepath.FromSlash(prefix)))
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if errors.Is(err, fs.ErrPermission) && strings.Count(prefix, "/") == 1 && !gate.ValidHost(strings.TrimSuffix(prefix, "/")) {
		return true // it has no recordings: lost+found of a file system, for example
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		yield(Object{}, err)
		return false
	}
	for _, e := range entries {
		key := prefix + e.Name()
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if e.IsDir() {
			if !d.walk(ctx, key+"/", yield) {
				return false
			}
			continue
		}
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // deleted since
			continue
		}
		if err != nil {
			yield(Object{}, err)
			return false
		}
		if !yield(Object{key, fi.Size(), fi.ModTime()}, nil) {
			return false
		}
	}
	return true
}

// Delete implements Store. It also removes the directory of the object if it is empty now.
func (d *Dir) Delete(_ context.Context, key string) error {
	file, err := d.file(key)
	if err != nil {
		return err
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = os.Remove(filepath.Dir(file)) // fails unless it is empty
	return nil
}

// isDraft reports whether a file has the name of one that is being written. Release 0.2.0 has used the second prefix.
func isDraft(name string) bool {
	return strings.HasPrefix(name, machine.TemporaryPrefix) || strings.HasPrefix(name, ".draft-")
}

// sweepDrafts removes files that a killed process has left behind in a directory before they were complete.
func (d *Dir) sweepDrafts(prefix string, before time.Time) error {
	top := filepath.Join(d.path, filepath.FromSlash(prefix))
	dirs, err := os.ReadDir(top)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		files, err := os.ReadDir(filepath.Join(top, dir.Name()))
		if err != nil {
			continue // it is no directory, or has just been removed
		}
		for _, f := range files {
			if fi, err := f.Info(); err == nil && isDraft(f.Name()) && fi.ModTime().Before(before) {
				errs = append(errs, os.Remove(filepath.Join(top, dir.Name(), f.Name())))
			}
		}
	}
	return errors.Join(errs...)
}
