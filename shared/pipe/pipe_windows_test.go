package pipe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"

	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

const roleEnv = "PIPE_TEST_ROLE"

// In a child of a test, TestMain connects to a pipe, and prints to it the peer that it sees.
func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) != "dial" {
		os.Exit(m.Run())
	}
	conn, peer, err := Dial(context.Background(), os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Fprintf(conn, "%d %s\n", peer.PID, peer.SID)
	_, _ = io.Copy(io.Discard, conn)
}

// ownName returns the name of a pipe that only this test and process use.
func ownName(t *testing.T) string {
	t.Helper()
	name, err := Own(fmt.Sprintf(`C:\%s\%d`, t.Name(), os.Getpid()), "test.sock")
	testkit.Must(t, err)
	return name
}

func mustListen(t *testing.T) *Listener {
	t.Helper()
	name := ownName(t)
	ln, err := Listen(name, Options{})
	testkit.Must(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	if underWine() {
		takeFirst(t, name)
	}
	return ln
}

// underWine reports whether the system is Wine.
func underWine() bool {
	return windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil
}

// takeFirst connects to the instance with which go-winio reserves a pipe's name. On Windows no client can
// connect to it. Wine connects the first client to it, where it is not served.
func takeFirst(t *testing.T, name string) {
	t.Helper()
	conn, err := winio.DialPipeContext(t.Context(), name)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
}

// pair returns both ends of a connection, and the peers that both see.
func pair(t *testing.T, ln *Listener) (server, client net.Conn, dialer, listener Peer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		var err error
		if client, listener, err = Dial(ctx, ln.Name()); err != nil {
			_ = ln.Close() // otherwise Accept would wait for ever
		}
		done <- err
	}()
	server, dialer, err := ln.Accept()
	testkit.Must(t, errors.Join(<-done, err))
	t.Cleanup(func() { _ = server.Close(); _ = client.Close() })
	return server, client, dialer, listener
}

// All written bytes must arrive in order, even if they are more than a pipe holds, and bytes that were
// written before a close must be readable after it.
// demand: S12
func TestEcho(t *testing.T) {
	server, client, _, _ := pair(t, mustListen(t))
	sent := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	go func() {
		_, _ = io.CopyN(server, server, int64(len(sent)))
		_ = server.Close()
	}()
	go func() { _, _ = client.Write(sent) }()
	got, err := io.ReadAll(client)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("got %d bytes of %d, the same %v, %v", len(got), len(sent), bytes.Equal(got, sent), err)
	}
}

// demand: S12
func TestPeers(t *testing.T) {
	own, err := ownSID()
	if err != nil || !strings.HasPrefix(own, "S-1-") {
		t.Fatalf("our SID: %s, %v", own, err)
	}
	_, _, dialer, listener := pair(t, mustListen(t))
	want := Peer{SID: own, PID: os.Getpid()}
	if dialer != want || listener != want {
		t.Errorf("got %+v and %+v, want %+v", dialer, listener, want)
	}
}

// Each side must see the process of the other side, not its own.
// demand: S12
func TestPeersAcrossProcesses(t *testing.T) {
	ln := mustListen(t)
	exe, err := os.Executable()
	testkit.Must(t, err)
	cmd := exec.Command(exe, ln.Name())
	cmd.Env = append(os.Environ(), roleEnv+"=dial")
	cmd.Stdout = os.Stderr
	testkit.Must(t, cmd.Start())
	server, peer, err := ln.Accept()
	testkit.Must(t, err)
	if peer.PID != cmd.Process.Pid {
		t.Errorf("the peer of the server is process %d, want the client, %d", cmd.Process.Pid, peer.PID)
	}
	want := fmt.Sprintf("%d %s\n", os.Getpid(), peer.SID)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(server, got); err != nil || string(got) != want {
		t.Errorf("the client printed %q, want %q, %v", got, want, err)
	}
	if err := errors.Join(server.Close(), cmd.Wait()); err != nil {
		t.Error(err)
	}
}

// demand: S12
func TestOneListener(t *testing.T) {
	if underWine() {
		t.Skip("Wine does not refuse a second first instance")
	}
	ln := mustListen(t)
	second, err := Listen(ln.Name(), Options{})
	var inUse *socket.InUseError
	if !errors.As(err, &inUse) {
		t.Errorf("a second Listen: %v, %v", second, err)
	}
	pair(t, ln) // the first listener still serves
	testkit.Must(t, ln.Close())
	again, err := Listen(ln.Name(), Options{})
	if err != nil {
		t.Fatalf("Listen after Close of the first: %v", err)
	}
	_ = again.Close()
}

// The access list that the system reports for a pipe must contain only the owner.
// demand: S12
func TestPermissions(t *testing.T) {
	server, client, _, _ := pair(t, mustListen(t))
	own, err := ownSID()
	testkit.Must(t, err)
	for side, conn := range map[string]net.Conn{"server": server, "client": client} {
		sd, err := windows.GetSecurityInfo(handle(conn), windows.SE_KERNEL_OBJECT, windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION)
		testkit.Must(t, err)
		// The system may have mapped GA to FA, which is all access to a file.
		got := strings.ReplaceAll(sd.String(), ";FA;", ";GA;")
		if want := SecurityDescriptor(own); got != want {
			t.Errorf("%s: got %s, want %s", side, got, want)
		}
	}
}

// Dial must refuse a pipe with the right name that another user has made first. Here the pipe belongs to a
// group of the user.
// demand: S12
func TestSquatter(t *testing.T) {
	own, err := ownSID()
	testkit.Must(t, err)
	name := ownName(t)
	const other = "S-1-5-32-544" // administrators; a user in this group may make it an owner
	ln, err := winio.ListenPipe(name, &winio.PipeConfig{SecurityDescriptor: "O:" + other + "D:P(A;;GA;;;WD)"})
	if err != nil {
		t.Skipf("cannot make a pipe of another owner: %v", err)
	}
	defer func() { _ = ln.Close() }()
	if underWine() {
		takeFirst(t, name)
	}
	accepted := make(chan []byte, 1)
	go func() {
		var got []byte
		if conn, err := ln.Accept(); err == nil {
			got, _ = io.ReadAll(conn)
		}
		accepted <- got
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, _, err = Dial(ctx, name)
	var refused *PeerError
	if !errors.As(err, &refused) || refused.Peer.SID != other || refused.Want != own {
		t.Errorf("got %v, want a PeerError of %s", err, other)
	}
	if !underWine() { // see TestOneListener
		var inUse *socket.InUseError
		if _, err := Listen(name, Options{}); !errors.As(err, &inUse) {
			t.Errorf("Listen beside the other user's pipe: %v", err)
		}
	}
	_ = ln.Close() // a client that leaves early enough was never accepted
	if got := <-accepted; len(got) > 0 {
		t.Errorf("the other user's pipe received %q", got)
	}
}

// Accept must disconnect a client of another user, must report a security event, and must accept the next
// client. Here the listener pretends to belong to another user.
// demand: S12
func TestRefused(t *testing.T) {
	ln := mustListen(t)
	own := ln.sid
	refused := make(chan error, 1)
	ln.opts.OnRefuse = func(peer Peer, err error) {
		if peer.PID != os.Getpid() || peer.SID != own {
			t.Errorf("refused %+v", peer)
		}
		refused <- err
		ln.sid = own
	}
	ln.sid = bob
	accepted := make(chan error, 1)
	go func() {
		conn, _, err := ln.Accept()
		if err == nil {
			err = conn.Close()
		}
		accepted <- err
	}()
	for _, how := range []string{"refused", "let in"} {
		conn, _, err := Dial(t.Context(), ln.Name())
		if err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		if got, err := io.ReadAll(conn); len(got) > 0 || err != nil {
			t.Errorf("%s: got %q, %v", how, got, err)
		}
		_ = conn.Close()
	}
	var perr *PeerError
	if err := <-refused; !errors.As(err, &perr) || perr.Want != bob {
		t.Errorf("refused with %v", err)
	}
	if err := <-accepted; err != nil {
		t.Error(err)
	}
}

// demand: S12
func TestDeadline(t *testing.T) {
	server, client, _, _ := pair(t, mustListen(t))
	testkit.Must(t, client.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
	if n, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %d, %v", n, err)
	}
	testkit.Must(t, client.SetDeadline(time.Time{}))
	// A deadline that is set during a read must end the read.
	ended := make(chan error, 1)
	go func() {
		_, err := client.Read(make([]byte, 1))
		ended <- err
	}()
	testkit.Must(t, client.SetReadDeadline(time.Unix(1, 0)))
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
	testkit.Must(t, client.SetReadDeadline(time.Time{}))
	// No byte may be lost by that, and a write into a full pipe must end at its deadline.
	if _, err := server.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := client.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("read: %d, %v", n, err)
	}
	err := server.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	for err == nil {
		_, err = server.Write(make([]byte, bufferBytes))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("write: %v", err)
	}
}

// demand: S12
func TestClose(t *testing.T) {
	ln := mustListen(t)
	accepted := make(chan error, 1)
	go func() {
		_, _, err := ln.Accept()
		accepted <- err
	}()
	if err := errors.Join(ln.Close(), ln.Close()); err != nil {
		t.Error(err)
	}
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
	if _, _, err := Dial(t.Context(), ln.Name()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("dial: %v", err)
	}
}

// Connections must outlive their listener, and a reader must notice the end of the other side.
// demand: S12
func TestConnectionsOutliveTheListener(t *testing.T) {
	ln := mustListen(t)
	server, client, _, _ := pair(t, ln)
	testkit.Must(t, ln.Close())
	go func() { _, _ = server.Write([]byte("x")) }()
	if n, err := client.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("read: %d, %v", n, err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := client.Read(make([]byte, 1))
		ended <- err
	}()
	testkit.Must(t, server.Close())
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("read after the close of the other side: %v", err)
	}
	if _, err := client.Write([]byte("x")); err == nil {
		t.Error("Write succeeded after the close of the other side")
	}
}

// If the server does not accept, Dial must wait until its context ends.
// demand: S12
func TestDialWaits(t *testing.T) {
	ln := mustListen(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := Dial(ctx, ln.Name()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// A client that connects and closes at once must not cost another client its connection.
// demand: S12
func TestManyConnections(t *testing.T) {
	const many = 100
	ln := mustListen(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	go func() {
		for {
			conn, _, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { _, _ = io.Copy(conn, conn); _ = conn.Close() })
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	errs := make(chan error, many)
	for i := range many {
		go func() { errs <- once(ctx, ln.Name(), i) }()
	}
	for range many {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	_ = ln.Close()
}

func once(ctx context.Context, name string, i int) error {
	conn, _, err := Dial(ctx, name)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if i%5 == 0 {
		return nil
	}
	sent := fmt.Appendf(nil, "connection %d", i)
	if _, err := conn.Write(sent); err != nil {
		return err
	}
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
		return fmt.Errorf("sent %q, got %q, %w", sent, got, err)
	}
	return nil
}
