package serve

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

	"github.com/rs/zerolog"

	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/handoff"
	"holdfast/shared/config"
	"holdfast/shared/logging"
	"holdfast/shared/socket"
	"holdfast/shared/version"
)

// listeners are the listeners of a proxy, which a handoff passes to its successor.
type listeners struct {
	api, web, control *socket.Listener
	tcp               *net.TCPListener // nil if the proxy has no web address
	borrowed          bool             // another proxy still serves them

	pageFile atomic.Pointer[string] // the file with the address of tcp, which must be removed at the end
}

// listen takes over the listeners of the running proxy, or creates listeners.
func (o *Options) listen(ctx context.Context, dirs config.Dirs, log zerolog.Logger) (*handoff.Take, *listeners, error) {
	refused := logging.Refuser(log)
	opts := socket.Options{OnRefuse: func(p socket.Peer, err error) { refused(p.UID, p.PID, err) }}
	var take *handoff.Take
	if o.TakeOver {
		var err error
		hello := handoff.Hello{Build: version.String(), Records: records, Timeout: o.Timeout}
		take, err = handoff.Begin(ctx, dirs.Socket(config.ControlSocket(o.Proxy)), hello)
		if err != nil && !socket.IsAbsent(err) && !errors.Is(err, handoff.ErrGone) { // if the old proxy is gone, Listen checks whether its sockets are free
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
		{&ls.api, groupAPI, config.APISocket(o.Proxy)},
		{&ls.web, groupWeb, config.WebSocket(o.Proxy)},
		{&ls.control, groupControl, config.ControlSocket(o.Proxy)},
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
		err = ls.listenAgain(o.web, pageFile(dirs, o.Proxy), log)
	} else {
		err = ls.listenTCP(o.web, takeFiles(take, groupTCP))
	}
	if err != nil {
		ls.giveUp(take, err)
		return nil, nil, err
	}
	return take, ls, nil
}

// The names of the groups of files that a handoff passes on.
const (
	groupAPI     = "api"
	groupWeb     = "web"
	groupControl = "control"
	groupTCP     = "tcp"
)

// takeFiles returns the files of a group, or nil if there is no handoff.
func takeFiles(t *handoff.Take, name string) []*os.File {
	if t == nil {
		return nil
	}
	return t.Files(name)
}

// listenTCP continues the old proxy's TCP listener, or creates one for addr.
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
		return errors.Join(errors.New("the file of the old proxy is not a TCP listener"), l.Close())
	}
	ls.tcp = tcp
	return nil
}

// pageFile returns the path of the file with the address of the page. The file exists while a proxy
// serves the page, and after a crash of that proxy, because browsers reconnect to the same address.
func pageFile(dirs config.Dirs, proxy string) string {
	return filepath.Join(dirs.Runtime, proxy+".page")
}

// listenAgain listens at the address where the page was before a crash of the proxy, unless another
// address was requested. If that address cannot be used, the proxy serves nevertheless.
func (ls *listeners) listenAgain(asked, file string, log zerolog.Logger) error {
	b, err := os.ReadFile(file)
	before := strings.TrimSpace(string(b))
	if err != nil || asked != "" && !anyPortThere(asked, before) {
		return ls.listenTCP(asked, nil)
	}
	if err := ls.listenTCP(before, nil); err != nil {
		log.Warn().Err(err).Msg("web page cannot be served at its previous address")
		return ls.listenTCP(asked, nil)
	}
	return nil
}

// anyPortThere reports whether asked leaves the port open, and has the same host as other.
func anyPortThere(asked, other string) bool {
	host, port, err := net.SplitHostPort(asked)
	there, _, otherErr := net.SplitHostPort(other)
	if host == "localhost" {
		host = there
	}
	return err == nil && otherErr == nil && (port == "0" || port == "") && host == there
}

// note saves the address of the page in the file, or removes the file if the page is not served.
func (ls *listeners) note(file string) error {
	if ls.tcp == nil {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	ls.pageFile.Store(&file)
	if err := os.WriteFile(file+".tmp", []byte(ls.tcp.Addr().String()+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file) // a reader never sees half of it
}

// loopback returns an error if other machines could reach the address.
func loopback(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return exitcode.WrongUsagef("--web: %v", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return exitcode.WrongUsagef("--web: %s is not a loopback address; use a tunnel to reach the page from elsewhere", addr)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return exitcode.WrongUsagef("--web: %v", err)
	}
	return nil
}

// TryWeb returns an error if a proxy with this name could not serve at the web address of the settings. If mustBeFree is set,
// TryWeb also listens there for a moment.
func TryWeb(proxy string, cfg config.Config, mustBeFree bool) error {
	if proxy != config.DefaultProxy || cfg.Web == "" {
		return nil
	}
	if err := loopback(cfg.Web); err != nil || !mustBeFree {
		return err
	}
	ls := &listeners{}
	if err := ls.listenTCP(cfg.Web, nil); err != nil {
		return err
	}
	return ls.tcp.Close()
}

// each calls f with each socket. It ignores errors, because the process is about to end or has
// another listener.
func (ls *listeners) each(f func(*socket.Listener) error) {
	for _, l := range []*socket.Listener{ls.api, ls.web, ls.control} {
		if l != nil {
			_ = f(l)
		}
	}
}

// files returns duplicates of the files of all listeners, in groups.
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

// check makes sure that this process has the locks and the paths of all sockets, after the old proxy
// has left. An old proxy that ended during the handoff by itself may have removed the paths and
// unlocked the locks, which it shared with this process. check returns an error if another process
// serves there now. It only logs other errors, because the paths are checked again later.
func (ls *listeners) check(log zerolog.Logger) error {
	var taken *socket.InUseError
	for _, l := range []*socket.Listener{ls.api, ls.web, ls.control} {
		rebound, err := l.Check()
		if errors.As(err, &taken) {
			return err
		}
		if rebound || err != nil {
			warnRemoved(log, l, rebound, err)
		}
	}
	return nil
}

// warnRemoved logs that the path of a socket was removed.
func warnRemoved(log zerolog.Logger, l *socket.Listener, rebound bool, err error) {
	log.Warn().Err(err).Bool("rebound", rebound).Str(logging.Path, l.Path()).Msg("path of the socket was removed")
}

// release closes this process's files, and leaves sockets and locks to the successor.
func (ls *listeners) release() {
	ls.pageFile.Store(nil)
	ls.each((*socket.Listener).Release)
	ls.closeTCP()
}

// close closes the listeners and removes the sockets, unless they still belong to another proxy. In
// that case they must not be removed, even after a panic.
func (ls *listeners) close() {
	if ls.borrowed {
		ls.release()
		return
	}
	if file := ls.pageFile.Swap(nil); file != nil { // remove it before the sockets are free, because the next proxy may write its own
		_ = os.Remove(*file)
	}
	ls.each((*socket.Listener).Close)
	ls.closeTCP()
}

// giveUp undoes a failed start. Sockets that were taken over still belong to the old proxy, so only
// this process's duplicates are closed.
func (ls *listeners) giveUp(take *handoff.Take, err error) {
	ls.close()
	if take != nil {
		take.GiveUp(err)
	}
}

// closeTCP closes the TCP listener if there is one.
func (ls *listeners) closeTCP() {
	if ls.tcp != nil {
		_ = ls.tcp.Close()
	}
}

// netListener adapts a private socket for package web, which expects a net.Listener.
type netListener struct{ *socket.Listener }

// Accept implements net.Listener. The connection knows the pid of its peer.
func (l netListener) Accept() (net.Conn, error) {
	nc, peer, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return peerConn{nc, peer.PID}, nil
}

// peerConn is a connection with the pid of its peer.
type peerConn struct {
	*net.UnixConn
	pid int
}

// PeerPID returns the pid of the peer.
func (c peerConn) PeerPID() int { return c.pid }

// Addr implements net.Listener.
func (l netListener) Addr() net.Addr {
	return &net.UnixAddr{Name: l.Path(), Net: "unix"}
}
