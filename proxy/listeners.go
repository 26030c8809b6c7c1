package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/rs/zerolog"

	"holdfast/proxy/internal/handoff"
	"holdfast/shared/config"
	"holdfast/shared/logging"
	"holdfast/shared/socket"
	"holdfast/shared/version"
)

// listeners are what a proxy holds, and hands to its successor.
type listeners struct {
	api, web, control *socket.Listener
	tcp               *net.TCPListener // nil unless asked for
	borrowed          bool             // another proxy still serves them

	noted atomic.Pointer[string] // the file that says where tcp is, to be removed at the end
}

// listen takes over the listeners of the running proxy, or makes them.
func (a *app) listen(ctx context.Context, o *serveOptions, dirs config.Dirs, log zerolog.Logger) (*handoff.Take, *listeners, error) {
	refused := logging.Refuser(log)
	opts := socket.Options{OnRefuse: func(p socket.Peer, err error) { refused(p.UID, p.PID, err) }}
	var take *handoff.Take
	if o.takeOver {
		var err error
		hello := handoff.Hello{Build: version.String(), Records: records, Timeout: o.timeout}
		take, err = handoff.Begin(ctx, dirs.Socket(config.ControlSocket(a.proxy)), hello)
		if err != nil && !nobodyListens(err) && !errors.Is(err, handoff.ErrGone) { // Listen finds out whether it really has
			return nil, nil, err
		}
		if err != nil {
			log.Info().Msg("no proxy runs here to take over from")
		}
	}
	ls := &listeners{borrowed: take != nil}
	for _, l := range []struct {
		to   **socket.Listener
		name string
		file string
	}{
		{&ls.api, groupAPI, config.APISocket(a.proxy)},
		{&ls.web, groupWeb, config.WebSocket(a.proxy)},
		{&ls.control, groupControl, config.ControlSocket(a.proxy)},
	} {
		var err error
		path := dirs.Socket(l.file)
		if files := takeFiles(take, l.name); files != nil {
			*l.to, err = socket.Adopt(path, files, opts)
		} else {
			*l.to, err = socket.Listen(path, opts)
		}
		if err != nil {
			ls.giveUp(take, err)
			return nil, nil, err
		}
	}
	var err error
	if take == nil {
		err = ls.listenAgain(o.web, pageFile(dirs, a.proxy), log)
	} else {
		err = ls.listenTCP(o.web, takeFiles(take, groupTCP))
	}
	if err != nil {
		ls.giveUp(take, err)
		return nil, nil, err
	}
	return take, ls, nil
}

// The groups of files that a handoff passes on.
const (
	groupAPI     = "api"
	groupWeb     = "web"
	groupControl = "control"
	groupTCP     = "tcp"
)

func takeFiles(t *handoff.Take, name string) []*os.File {
	if t == nil {
		return nil
	}
	return t.Files(name)
}

// listenTCP goes on with the old proxy's listener, or makes the one asked for.
func (ls *listeners) listenTCP(addr string, files []*os.File) error {
	var l net.Listener
	var err error
	switch {
	case len(files) == 1:
		l, err = net.FileListener(files[0])
		err = errors.Join(err, files[0].Close())
	case addr != "":
		if err := loopback(addr); err != nil {
			return err
		}
		l, err = net.Listen("tcp", addr)
	default:
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen for WebSockets: %w", err)
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return errors.Join(errors.New("the file passed on is no TCP listener"), l.Close())
	}
	ls.tcp = tcp
	return nil
}

// pageFile says where the page is served. It is there while a proxy serves it, and
// after its sudden end: browsers come back to that place.
func pageFile(dirs config.Dirs, proxy string) string {
	return filepath.Join(dirs.Runtime, proxy+".page")
}

// listenAgain goes on where the page was when a proxy died, unless another place is
// asked for. Where that cannot be had it is no reason not to serve.
func (ls *listeners) listenAgain(asked, file string, log zerolog.Logger) error {
	b, err := os.ReadFile(file)
	before := strings.TrimSpace(string(b))
	if err != nil || asked != "" && !anyPortThere(asked, before) {
		return ls.listenTCP(asked, nil)
	}
	if err := ls.listenTCP(before, nil); err != nil {
		log.Warn().Err(err).Msg("the web page is not where it was")
		return ls.listenTCP(asked, nil)
	}
	return nil
}

// anyPortThere reports whether an address that is asked for leaves the port open, and
// is of the same host as another.
func anyPortThere(asked, other string) bool {
	host, port, err := net.SplitHostPort(asked)
	there, _, otherErr := net.SplitHostPort(other)
	if host == "localhost" {
		host = there
	}
	return err == nil && otherErr == nil && (port == "0" || port == "") && host == there
}

// note says in a file where the page is, or that it is nowhere.
func (ls *listeners) note(file string) error {
	if ls.tcp == nil {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	ls.noted.Store(&file)
	return writeWhole(file, []byte(ls.tcp.Addr().String()+"\n"))
}

// loopback refuses an address that other machines could reach.
func loopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return usage(fmt.Errorf("--web: %w", err))
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return usage(fmt.Errorf("--web: %s is not a loopback address; to be reached from elsewhere, put a tunnel in front", host))
	}
	return nil
}

func (ls *listeners) each(f func(*socket.Listener) error) {
	for _, l := range []*socket.Listener{ls.api, ls.web, ls.control} {
		if l != nil {
			_ = f(l) // the process is on its way out, or has another listener
		}
	}
}

// files returns what a successor needs.
func (ls *listeners) files() ([]handoff.Group, []*os.File, error) {
	var groups []handoff.Group
	var all []*os.File
	add := func(name string, files []*os.File, err error) error {
		groups = append(groups, handoff.Group{Name: name, Files: len(files)})
		all = append(all, files...)
		return err
	}
	var errs []error
	for _, g := range []struct {
		name string
		l    *socket.Listener
	}{{groupAPI, ls.api}, {groupWeb, ls.web}, {groupControl, ls.control}} {
		files, err := g.l.Files()
		errs = append(errs, add(g.name, files, err))
	}
	if ls.tcp != nil {
		f, err := ls.tcp.File()
		errs = append(errs, err)
		if f != nil {
			errs = append(errs, add(groupTCP, []*os.File{f}, nil))
		}
	}
	if err := errors.Join(errs...); err != nil {
		for _, f := range all {
			_ = f.Close()
		}
		return nil, nil, err
	}
	return groups, all, nil
}

// release leaves the sockets to the successor: nothing is unlinked, and the
// locks stay held by it.
func (ls *listeners) release() {
	ls.noted.Store(nil)
	ls.each((*socket.Listener).Release)
	ls.closeTCP()
}

// close also removes the sockets, unless they are another proxy's: no way to end
// may do that, a panic included.
func (ls *listeners) close() {
	if ls.borrowed {
		ls.release()
		return
	}
	if file := ls.noted.Swap(nil); file != nil { // the next proxy has no page, and may be there once the sockets are free
		_ = os.Remove(*file)
	}
	ls.each((*socket.Listener).Close)
	ls.closeTCP()
}

// giveUp undoes a start that failed. What was taken over is still the old
// proxy's: only our copies are closed.
func (ls *listeners) giveUp(take *handoff.Take, err error) {
	ls.close()
	if take != nil {
		take.GiveUp(err)
	}
}

func (ls *listeners) closeTCP() {
	if ls.tcp != nil {
		_ = ls.tcp.Close()
	}
}

// nobodyListens reports whether err says for certain that no process has the
// socket.
func nobodyListens(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// netListener gives a private socket's connections to who knows nothing of
// peers.
type netListener struct{ *socket.Listener }

func (l netListener) Accept() (net.Conn, error) {
	nc, peer, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return peerConn{nc, peer.PID}, nil
}

// peerConn is a connection that knows whose it is.
type peerConn struct {
	*net.UnixConn
	pid int
}

func (c peerConn) PeerPID() int { return c.pid }

func (l netListener) Addr() net.Addr {
	return &net.UnixAddr{Name: l.Path(), Net: "unix"}
}
