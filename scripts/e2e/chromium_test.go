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

// chromium is the first installed program of these names.
var chromium = func() string {
	names := []string{"chromium-headless-shell", "chromium", "google-chrome"}
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			return name
		}
	}
	return names[0]
}()

// The real xterm.js in a real browser must receive its own input through handoffs on one raw WebSocket, and
// must show each line once. If HOLDFAST_SCREENSHOT is set, the test writes a picture of the page to this
// path.
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
		p.shows(32) // more than the lines that were in transit
	}
	p.over.Store(true)
	said := p.hears()
	if said.Screen == nil {
		t.Fatalf("the page reports %+v, want the rows of its screen", said)
	}
	lines := len(said.Screen)
	want := []string{"ready"}
	for n := range lines - 1 {
		want = append(want, strconv.Itoa(n+1))
	}
	if !slices.Equal(said.Screen, want) {
		t.Errorf("the rows of the terminal are %q", said.Screen)
	}
	if said = p.hears(); said.Closed != "1000" {
		t.Errorf("at the end the page reports %+v, want a close with 1000", said)
	}
	t.Logf("%d lines through %d handoffs", lines, handoffsTyped)
	close(p.loaded)
	select {
	case <-browser:
	case <-time.After(limit):
		t.Error("Chromium did not end within the limit")
	}
}

// A page is scripts/oracle/page.html with its server.
type page struct {
	*httptest.Server
	t      *testing.T
	socket atomic.Value  // the URL of its WebSocket, a string
	shown  atomic.Int64  // number of lines
	said   chan pageNews // the other reports; if it is full, a report is dropped
	over   atomic.Bool   // tells the page to finish
	loaded chan struct{} // closed when the page may finish loading
}

// pageNews is a report of a page.
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

// browse opens the page in a browser. The browser ends when the page is loaded.
func (p *page) browse() (ended chan struct{}) {
	p.t.Helper()
	home := testkit.Dir(p.t)
	// A container has no sandbox for root. The test opens only its own page.
	args := []string{"--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + home, "--window-size=800,480", "--dump-dom"}
	if path := os.Getenv("HOLDFAST_SCREENSHOT"); path != "" {
		path, err := filepath.Abs(path)
		testkit.Must(p.t, err)
		args[len(args)-1] = "--screenshot=" + path
	}
	var output bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), 5*limit)
	cmd := exec.CommandContext(ctx, chromium, append(args, p.URL+"/page.html")...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	testkit.Must(p.t, cmd.Start())
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

// shows waits until the page shows at least more additional lines.
func (p *page) shows(more int64) {
	p.t.Helper()
	n := p.shown.Load() + more
	testkit.Eventually(p.t, limit, func() bool { return p.shown.Load() >= n || len(p.said) > 0 }, fmt.Sprintf("the page shows line %d", n))
	if p.shown.Load() < n {
		p.t.Fatalf("the page shows %d lines, and reports %+v", p.shown.Load(), p.hears())
	}
}

// hears returns the next report of the page.
func (p *page) hears() pageNews {
	p.t.Helper()
	select {
	case news := <-p.said:
		return news
	case <-time.After(limit):
		p.t.Fatalf("the page shows %d lines, and sent no report within the limit", p.shown.Load())
		return pageNews{}
	}
}
