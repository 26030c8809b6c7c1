package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"
)

// archive writes a target's archive. All files are in one directory with the archive's name.
func (r *release) archive(t target, files []file) error {
	if t.os == "windows" {
		return r.pack(r.name(t)+".zip", writeZip, r.name(t), files)
	}
	return r.pack(r.name(t)+".tar.gz", writeTar, r.name(t), files)
}

// pack writes files below the directory top into a file of the release, with writeTar or writeZip.
func (r *release) pack(name string, write func(w io.Writer, top string, files []file, date time.Time) error, top string, files []file) error {
	var buf bytes.Buffer
	if err := write(&buf, top, files, r.date); err != nil {
		return err
	}
	return os.WriteFile(r.path(name), buf.Bytes(), 0o644)
}

// dirs returns the directories of files, which must be sorted. Each directory stands before its
// contents.
func dirs(top string, files []file) []string {
	seen := map[string]bool{top: true}
	all := []string{top}
	var add func(dir string)
	add = func(dir string) {
		if !seen[dir] {
			seen[dir] = true
			add(path.Dir(dir))
			all = append(all, dir)
		}
	}
	for _, f := range files {
		add(path.Dir(path.Join(top, f.path)))
	}
	return all
}

// writeTar writes a compressed tar file that does not depend on the machine: every file belongs to
// root and has the time of the release.
func writeTar(w io.Writer, top string, files []file, date time.Time) error {
	zw := gzip.NewWriter(w) // the best compression takes more than twice the time, and saves 0.3 %
	tw := tar.NewWriter(zw)
	for _, dir := range dirs(top, files) {
		h := &tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: date, Uname: "root", Gname: "root", Format: tar.FormatUSTAR}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
	}
	for _, f := range files {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: path.Join(top, f.path), Size: int64(len(f.data)), Mode: int64(f.mode.Perm()),
			ModTime: date, Uname: "root", Gname: "root", Format: tar.FormatUSTAR,
		}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		if _, err := tw.Write(f.data); err != nil {
			return err
		}
	}
	return errors.Join(tw.Close(), zw.Close())
}

func writeZip(w io.Writer, top string, files []file, date time.Time) error {
	zw := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: path.Join(top, f.path), Method: zip.Deflate, Modified: date}
		h.SetMode(f.mode)
		fw, err := zw.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := fw.Write(f.data); err != nil {
			return err
		}
	}
	return zw.Close()
}

// zipped compresses data as gzip -9n does, without a name and a time.
func zipped(data []byte) ([]byte, error) {
	var buf bytes.Buffer
	zw, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := zw.Write(data); err != nil {
		return nil, err
	}
	err = zw.Close() // writes the end of the data into buf, so it must precede buf.Bytes
	return buf.Bytes(), err
}

const sumsName = "SHA256SUMS"

// writeSums writes the sum of every file of a directory into a file, as sha256sum does.
func writeSums(dir string) error {
	list, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return err
	}
	var out bytes.Buffer
	for _, e := range list {
		sum, err := sumFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%s  %s\n", sum, e.Name())
	}
	return os.WriteFile(filepath.Join(dir, sumsName), out.Bytes(), 0o644)
}

func sumFile(name string) (string, error) {
	data, err := os.ReadFile(name)
	return fmt.Sprintf("%x", sha256.Sum256(data)), err
}
