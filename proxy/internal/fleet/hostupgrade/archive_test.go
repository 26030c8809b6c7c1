package hostupgrade

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"holdfast/protocol/gate"
	"holdfast/shared/testkit"
)

// programs are the files of a good archive.
func programs(version string) []tar.Header {
	return []tar.Header{
		{Name: "holdfast/", Typeflag: tar.TypeDir},
		{Name: "holdfast/README.md", PAXRecords: content("read me")},
		{Name: "holdfast/bin/proxy", PAXRecords: content("#!/bin/sh\n[ \"$1\" = --version ] && exec echo proxy version " + version + "\nexit 0\n")},
		{Name: "holdfast/bin/supervisor", PAXRecords: content("#!/bin/sh\nexit 1\n")},
	}
}

// content keeps the content of a file in its header until pack writes it.
func content(text string) map[string]string { return map[string]string{"TEST.content": text} }

// pack makes an archive.
func pack(t *testing.T, files ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	w := tar.NewWriter(zipped)
	for _, h := range files {
		text := h.PAXRecords["TEST.content"]
		h.PAXRecords, h.Size, h.Mode = nil, int64(len(text)), 0o755
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		err := w.WriteHeader(&h)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		testkit.Must(t, err)
	}
	testkit.Must(t, errors.Join(w.Close(), zipped.Close()))
	return b.Bytes()
}

func sumText(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// A store is an HTTPS server with archives.
type store struct {
	*httptest.Server
	files    map[string][]byte // by path
	requests atomic.Int64
}

func (h *host) store() *store {
	s := &store{files: map[string][]byte{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		data, isThere := s.files[r.URL.Path]
		switch {
		case strings.HasPrefix(r.URL.Path, "/ok/moved/"):
			http.Redirect(w, r, strings.TrimPrefix(r.URL.Path, "/ok/moved"), http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/ok/cut/"):
			w.Header().Set("Content-Length", fmt.Sprint(len(s.files["/ok/good.tar.gz"])))
			_, _ = w.Write(s.files["/ok/good.tar.gz"][:100])
		case strings.HasPrefix(r.URL.Path, "/ok/endless/"):
			for part := make([]byte, 1<<20); ; {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
		case !isThere:
			http.NotFound(w, r)
		default:
			_, _ = w.Write(data)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // a client refuses the certificate
	s.StartTLS()
	h.t.Cleanup(s.Close)
	h.o.Transport = s.Client().Transport
	h.o.Fetched = filepath.Join(h.t.TempDir(), "fetched")
	h.permitted = []string{s.URL + "/ok"}
	return s
}

// put adds an archive, and returns a request to upgrade to it.
func (s *store) put(path string, data []byte) gate.Upgrade {
	s.files[path] = data
	m := request(gate.UpgradeTry, s.URL+path)
	m.SHA256 = sumText(data)
	return m
}

// fetched returns the names in the directory of programs that were downloaded.
func (h *host) fetched() (names []string) {
	all, err := os.ReadDir(h.o.Fetched)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Error(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// A host downloads an archive once, and goes on as with a directory. It keeps the last releases.
func TestArchive(t *testing.T) {
	h := newHost(t)
	s := h.store()
	m := s.put("/ok/good.tar.gz", pack(t, programs("v2")...))
	for _, action := range []gate.UpgradeAction{gate.UpgradeCheck, gate.UpgradeTry} {
		m.Action = action
		if result, steps, err := h.ask(m); err != nil || result.State != gate.UpgradeReady || result.Target != "v2" || len(result.Sum) != 64 {
			t.Errorf("%s: %+v, %v, %q", action, result, err, steps)
		}
	}
	if n := s.requests.Load(); n != 1 || h.runs.Load() != 1 {
		t.Errorf("%d downloads, and %d runs", n, h.runs.Load())
	}
	for n := range maxFetched {
		if result, _, err := h.ask(s.put(fmt.Sprintf("/ok/%d.tar.gz", n), pack(t, programs(fmt.Sprint("w", n))...))); err != nil || result.Target != fmt.Sprint("w", n) {
			t.Errorf("%d: %+v, %v", n, result, err)
		}
	}
	if got := h.fetched(); len(got) != maxFetched || strings.Contains(fmt.Sprint(got), m.SHA256) {
		t.Errorf("%d releases are kept: %q", len(got), got)
	}
	kept, err := os.ReadFile("/bin/sleep")
	sleeps := filepath.Join(h.o.Fetched, h.fetched()[0], "sleeps")
	if err == nil {
		err = os.WriteFile(sleeps, kept, 0o700)
	}
	testkit.Must(t, err)
	process := exec.Command(sleeps, "1000") // of a release that runs
	testkit.Must(t, process.Start())
	t.Cleanup(func() { _, _ = process.Process.Kill(), process.Wait() })
	look := h.o.Look
	h.o.Look = func(ctx context.Context) (Running, error) {
		r, err := look(ctx)
		r.Supervisor.PID = process.Process.Pid
		return r, err
	}
	for n := range maxFetched + 1 {
		if result, _, err := h.ask(s.put(fmt.Sprintf("/ok/x%d.tar.gz", n), pack(t, programs(fmt.Sprint("x", n))...))); err != nil || result.State != gate.UpgradeReady {
			t.Errorf("%d: %+v, %v", n, result, err)
		}
	}
	if _, err := os.Stat(sleeps); err != nil {
		t.Errorf("a release that runs is not kept: %v", err)
	}
	moved := m
	moved.From = s.URL + "/ok/moved/ok/good.tar.gz"
	if result, _, err := h.ask(moved); err != nil || result.State != gate.UpgradeReady {
		t.Errorf("a redirect to a permitted URL: %+v, %v", result, err)
	}
}

// An archive that is wrong in any way leaves nothing, and no program of it runs.
func TestArchiveFails(t *testing.T) {
	h := newHost(t)
	s := h.store()
	h.maxArchive, h.maxUnpacked = 1<<20, 1<<20
	good := s.put("/ok/good.tar.gz", pack(t, programs("v2")...))
	secret := s.put("/other.tar.gz", pack(t, programs("v3")...))
	at := func(m gate.Upgrade, path string) gate.Upgrade { m.From = s.URL + path; return m }
	with := func(name string, more ...tar.Header) gate.Upgrade {
		return s.put("/ok/"+name+".tar.gz", pack(t, append(programs("v2"), more...)...))
	}
	wrong := good
	wrong.SHA256 = strings.Repeat("0", 64)
	for _, tt := range []struct {
		m    gate.Upgrade
		says string
	}{
		{wrong, "has the SHA-256 " + good.SHA256},
		{at(good, "/ok/none.tar.gz"), "404"},
		{at(good, "/ok/cut/x"), "unexpected EOF"},
		{at(good, "/ok/endless/x"), "has more than"},
		{at(secret, "/ok/moved/other.tar.gz"), "permits upgrades from"},
		{s.put("/ok/text", []byte("no archive")), "gzip"},
		{s.put("/ok/part.tar.gz", pack(t, programs("v2")...)[:200]), "unexpected EOF"},
		{s.put("/ok/empty.tar.gz", pack(t)), "no bin/proxy"},
		{s.put("/ok/half.tar.gz", pack(t, programs("v2")[:3]...)), "no bin/supervisor"},
		{with("up", tar.Header{Name: "holdfast/../../bin/proxy", PAXRecords: content("x")}), "leads out"},
		{with("absolute", tar.Header{Name: "/etc/passwd", PAXRecords: content("x")}), "leads out"},
		{with("link", tar.Header{Name: "holdfast/bin/other", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}), "is a link"},
		{with("hard", tar.Header{Name: "holdfast/bin/other", Typeflag: tar.TypeLink, Linkname: "holdfast/bin/proxy"}), "is a link"},
		{with("bomb", tar.Header{Name: "holdfast/zeros", PAXRecords: content(strings.Repeat("0", 2<<20))}), "unexpected EOF"},
		{with("twice", programs("v3")...), "file exists"},
	} {
		result, _, err := h.ask(tt.m)
		if err != nil || result.State != gate.UpgradeFailed || !strings.Contains(result.Error, tt.says) {
			t.Errorf("%s: %+v, %v, want %q", tt.m.From, result, err, tt.says)
		}
		if got := h.fetched(); len(got) > 0 {
			t.Errorf("%s leaves %q", tt.m.From, got)
		}
	}
	h.o.Transport = http.DefaultTransport
	if result, _, err := h.ask(good); err != nil || !strings.Contains(result.Error, "certificate") {
		t.Errorf("a server with an unknown certificate: %+v, %v", result, err)
	}
	if n := h.runs.Load(); n != 0 {
		t.Errorf("%d programs were run", n)
	}
}

// A URL that the owner has not permitted, or without a sum, is refused before anything is downloaded.
func TestArchiveRefused(t *testing.T) {
	h := newHost(t)
	s := h.store()
	good := s.put("/ok/good.tar.gz", pack(t, programs("v2")...))
	for _, tt := range []struct {
		from, sum string
		code      gate.Refusal
	}{
		{good.From, "", gate.RefusedInvalid},
		{good.From, "abc", gate.RefusedInvalid},
		{h.base, good.SHA256, gate.RefusedInvalid},
		{s.URL + "/okay/good.tar.gz", good.SHA256, gate.RefusedUnauthorized},
		{s.URL + "/good.tar.gz", good.SHA256, gate.RefusedUnauthorized},
		{"https://example.org/ok/good.tar.gz", good.SHA256, gate.RefusedUnauthorized},
		{s.URL + "/ok/../good.tar.gz", good.SHA256, gate.RefusedInvalid},
		{s.URL + "/ok/%2e%2e/good.tar.gz", good.SHA256, gate.RefusedInvalid},
		{s.URL + "/ok/good.tar.gz?x", good.SHA256, gate.RefusedInvalid},
		{strings.Replace(good.From, "https://", "https://user@", 1), good.SHA256, gate.RefusedInvalid},
		{strings.Replace(good.From, "https:", "http:", 1), good.SHA256, gate.RefusedInvalid},
		{"https://", good.SHA256, gate.RefusedInvalid},
	} {
		m := request(gate.UpgradeApply, tt.from)
		m.SHA256 = tt.sum
		var refused *gate.Refused
		if result, _, err := h.ask(m); !errors.As(err, &refused) || refused.Code != tt.code {
			t.Errorf("%s: %+v, %v, want %s", tt.from, result, err, tt.code)
		}
	}
	h.permitted = []string{h.base}
	var refused *gate.Refused
	if _, _, err := h.ask(good); !errors.As(err, &refused) || refused.Code != gate.RefusedUnauthorized {
		t.Errorf("only a directory is permitted: %v", err)
	}
	if n := s.requests.Load(); n != 0 {
		t.Errorf("%d requests came", n)
	}
}
