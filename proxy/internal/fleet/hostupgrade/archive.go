package hostupgrade

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdfast/protocol/gate"
)

// Limits of an archive.
const (
	maxArchive   = 256 << 20 // bytes
	maxUnpacked  = 1 << 30   // bytes of all its files
	fetchLimit   = 4 * time.Minute
	maxRedirects = 5
	// maxFetched is how many releases are kept besides the one that runs, because a keeper may start the program of
	// an earlier release again if that of a new one dies.
	maxFetched = 3
)

// partPrefix begins the names of files and directories that are not complete.
const partPrefix = ".part-"

// permitURL returns an error unless a URL is, or is below, one that the owner has permitted.
func permitURL(text string, permitted []string) error {
	u, err := gate.ParseArchiveURL(text)
	if err != nil {
		return err
	}
	for _, p := range permitted {
		if begin, err := gate.ParseArchiveURL(p); err == nil && gate.IsArchiveBelow(u, begin) {
			return nil
		}
	}
	return fmt.Errorf("the owner of this host permits upgrades from %s, and not from %.200s", strings.Join(permitted, ", "), text)
}

// fetch returns a directory with the programs of the archive at url, whose SHA-256 must be sum. It downloads the
// archive unless the programs are here already. Only one call may run at a time.
func (u *Upgrader) fetch(ctx context.Context, j *job, url, sum string, running Running) (dir string, err error) {
	dir = filepath.Join(u.o.Fetched, sum)
	if err := os.Chtimes(dir, time.Time{}, time.Now()); err == nil { // so that prune keeps it
		return dir, nil
	}
	if err := os.MkdirAll(u.o.Fetched, 0o700); err != nil {
		return "", err
	}
	u.prune(maxFetched-1, running)
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	j.step("downloading %s", url)
	archive, err := os.CreateTemp(u.o.Fetched, partPrefix)
	if err != nil {
		return "", err
	}
	defer func() { _, _ = archive.Close(), os.Remove(archive.Name()) }()
	if err := u.download(ctx, archive, url, sum); err != nil {
		return "", fmt.Errorf("download of %.200s: %w", url, err)
	}
	part, err := os.MkdirTemp(u.o.Fetched, partPrefix)
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(part) }() // it is gone after the rename
	if err := unpack(archive, part, u.maxUnpacked); err != nil {
		return "", fmt.Errorf("archive %.200s: %w", url, err)
	}
	return dir, os.Rename(part, dir)
}

// download writes the content of url to a file, and compares its SHA-256. Each redirect must lead to a permitted URL, too.
func (u *Upgrader) download(ctx context.Context, to *os.File, url, sum string) error {
	client := http.Client{Transport: u.o.Transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return fmt.Errorf("there are more than %d redirects", maxRedirects)
		}
		permitted, err := u.o.Permitted()
		if err == nil {
			err = permitURL(r.URL.String(), permitted)
		}
		return err
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept-Encoding", "identity") // the sum is that of the archive as it is
	r, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answers %s", r.Status)
	}
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, hash), io.LimitReader(r.Body, u.maxArchive+1))
	switch {
	case err != nil:
		return err
	case n > u.maxArchive:
		return fmt.Errorf("the archive has more than %d bytes", u.maxArchive)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != sum {
		return fmt.Errorf("the archive has the SHA-256 %s, and not %s", got, sum)
	}
	return nil
}

// unpack writes the two programs of a release archive into a directory, and ignores its other files. It refuses an
// archive with a link or with a path that leads out of it, because no release has one. What exceeds the limit of
// bytes is missing at the end of the archive, which is an error as well.
func unpack(archive io.ReadSeeker, dir string, limit int64) error {
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return err
	}
	unzipped, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	files := tar.NewReader(io.LimitReader(unzipped, limit))
	count := 0
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(h.Name, "/")
		isFile := h.Typeflag == tar.TypeReg
		if !fs.ValidPath(name) || !isFile && h.Typeflag != tar.TypeDir {
			return fmt.Errorf("%.200q is a link, or leads out of the archive", h.Name)
		}
		program := path.Base(name)
		if isProgram, _ := path.Match("*/bin/*", name); !isFile || !isProgram || program != proxyName && program != supervisorName {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, program), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, files)
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			return err
		}
		count++
	}
	if count != 2 {
		return errors.New("it has no bin/proxy or no bin/supervisor")
	}
	return nil
}

// prune removes incomplete downloads, and all releases except those that run and the given number of those that were
// used last.
func (u *Upgrader) prune(most int, running Running) {
	inUse := map[string]bool{}
	for _, p := range []Process{running.Supervisor, running.Proxy} {
		if path, err := programOf(p.PID); err == nil {
			program, _ := os.Readlink(path)
			inUse[filepath.Base(filepath.Dir(program))] = true // the name of a release is its sum
		}
	}
	all, err := os.ReadDir(u.o.Fetched)
	if err != nil {
		return
	}
	usedAt := func(e fs.DirEntry) time.Time {
		info, err := e.Info()
		if err != nil || strings.HasPrefix(e.Name(), partPrefix) {
			return time.Time{}
		}
		return info.ModTime()
	}
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return usedAt(b).Compare(usedAt(a)) })
	for i, e := range all {
		if i >= most && !inUse[e.Name()] || usedAt(e).IsZero() {
			_ = os.RemoveAll(filepath.Join(u.o.Fetched, e.Name())) // it is tried again with the next one
		}
	}
}
