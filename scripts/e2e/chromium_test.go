package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// chromium is the first of the names that it goes by which is there.
var chromium = func() string {
	names := []string{"chromium-headless-shell", "chromium", "google-chrome"}
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			return name
		}
	}
	return names[0]
}()

// The real xterm.js in a real browser types through handoffs on one raw
// WebSocket, and shows each line once. HOLDFAST_SCREENSHOT says where to put a
// picture of it.
// demand: S9
func TestXtermInChromium(t *testing.T) {
	t.Parallel()
	p := servePage(t, oracle(t, "@xterm/addon-attach", chromium))
	w := newWorld(t)
	address, _ := w.webProxy("--web-origin", p.URL)
	c := w.connect(client.Options{Name: "e2e"})
	w.spawn(c, "s", shell("stty -echo; echo ready; exec cat"))
	w.attach(c, "s", client.AttachOptions{}).until("ready\r\n")
	p.socket.Store(w.rawURL(c, address, "s") + "&cols=80&rows=24")
	browser := p.browse()
	p.shows(1)
	for range handoffsTyped {
		w.handOff()
		p.shows(32) // more than was under way
	}
	p.over.Store(true)
	said := p.hears()
	if said.Screen == nil {
		t.Fatalf("the page says %+v, and not what it shows", said)
	}
	lines := len(said.Screen)
	want := []string{"ready"}
	for n := range lines - 1 {
		want = append(want, strconv.Itoa(n+1))
	}
	if !slices.Equal(said.Screen, want) {
		t.Errorf("the terminal shows %q", said.Screen)
	}
	if said = p.hears(); said.Closed != "1000" {
		t.Errorf("at the end the page says %+v", said)
	}
	t.Logf("%d lines through %d handoffs", lines, handoffsTyped)
	close(p.loaded)
	select {
	case <-browser:
	case <-time.After(limit):
		t.Error("Chromium does not end")
	}
}

// A page is scripts/oracle/page.html, and its server.
type page struct {
	*httptest.Server
	t      *testing.T
	socket atomic.Value  // the URL of its WebSocket, a string
	shown  atomic.Int64  // lines
	said   chan pageNews // all else; more than there may be is dropped
	over   atomic.Bool   // it shall finish
	loaded chan struct{} // closed when it shall be loaded
}

// pageNews is what a page tells.
type pageNews struct {
	Shown          int64
	Screen         []string
	Closed, Failed string
}

func servePage(t *testing.T, dir string) *page {
	p := &page{t: t, said: make(chan pageNews, 8), loaded: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServer(http.Dir(dir)))
	mux.HandleFunc("GET /socket", func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, p.socket.Load().(string)) })
	mux.HandleFunc("POST /tell", p.tell)
	mux.HandleFunc("GET /over", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-p.loaded:
		case <-r.Context().Done():
		}
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *page) tell(rw http.ResponseWriter, r *http.Request) {
	var news pageNews
	if err := json.NewDecoder(r.Body).Decode(&news); err != nil {
		news.Failed = err.Error()
	}
	if news.Shown > 0 {
		p.shown.Store(news.Shown)
	} else {
		select {
		case p.said <- news:
		default:
		}
	}
	_, _ = fmt.Fprintf(rw, `{"over":%v}`, p.over.Load())
}

// browse opens the page in a browser, which ends when the page is loaded.
func (p *page) browse() (ended chan struct{}) {
	p.t.Helper()
	home := testkit.Dir(p.t)
	// In a container root has no sandbox, and nothing here is a stranger's.
	args := []string{"--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + home, "--window-size=800,480", "--dump-dom"}
	if path := os.Getenv("HOLDFAST_SCREENSHOT"); path != "" {
		path, err := filepath.Abs(path)
		if err != nil {
			p.t.Fatal(err)
		}
		args[len(args)-1] = "--screenshot=" + path
	}
	var output bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), 5*limit)
	cmd := exec.CommandContext(ctx, chromium, append(args, p.URL+"/page.html")...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended = make(chan struct{})
	var err error
	go func() {
		err = cmd.Wait()
		close(ended)
	}()
	p.t.Cleanup(func() {
		cancel()
		<-ended
		if p.t.Failed() {
			p.t.Logf("Chromium ended with %v: %s", err, last(output.String(), 4<<10))
		}
	})
	return ended
}

// shows returns when the page shows so many lines more than it does now.
func (p *page) shows(more int64) {
	p.t.Helper()
	n := p.shown.Load() + more
	testkit.Eventually(p.t, limit, func() bool { return p.shown.Load() >= n || len(p.said) > 0 }, fmt.Sprintf("the page shows line %d", n))
	if p.shown.Load() < n {
		p.t.Fatalf("the page showed %d lines, and says %+v", p.shown.Load(), p.hears())
	}
}

// hears returns what the page tells next.
func (p *page) hears() pageNews {
	p.t.Helper()
	select {
	case news := <-p.said:
		return news
	case <-time.After(limit):
		p.t.Fatalf("the page showed %d lines, and says no more", p.shown.Load())
		return pageNews{}
	}
}
