//go:build unix

package member

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol/gate"
	"holdfast/proxy/client"
	"holdfast/proxy/internal/fleet/bus"
	"holdfast/proxy/internal/fleet/credential"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/shared/testkit"
)

// A host tells the gate again that it leaves if the gate ends after it has received the message and before it has removed
// the host.
func TestLeaveIsLost(t *testing.T) {
	store, err := credential.Open(filepath.Join(t.TempDir(), "gate"))
	testkit.Must(t, err)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{store.Certificate()}, MinVersion: tls.VersionTLS13})
	testkit.Must(t, err)
	defer func() { _ = ln.Close() }()
	var leaves atomic.Int32
	var isRemoved atomic.Bool
	present := make(chan net.Conn, 1) // the connection of the host
	b, err := bus.Start(func(_, kind string, _ []byte) {
		if kind != record.KindLeave {
			return
		}
		select {
		case conn := <-present:
			isRemoved.Store(leaves.Add(1) == 2)
			_ = conn.Close()
		default: // the message came once more over the same connection
		}
	}, func(string, []byte) {})
	testkit.Must(t, err)
	defer b.Close()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				m, err := gate.Read(conn, gate.MaxFirst)
				hello, ok := m.(*gate.Bus)
				if err != nil || !ok {
					return
				}
				if isRemoved.Load() {
					_ = gate.Write(conn, gate.Refused{Code: gate.RefusedUnauthorized})
					return
				}
				if _, err := gate.Ask[*gate.Proof](conn, gate.Challenge{}); err != nil {
					return
				}
				server, password, err := b.Admit(hello.Key)
				if err != nil {
					return
				}
				defer func() { _ = server.Close() }()
				present <- conn
				if gate.Write(conn, gate.Accepted{Password: password}) == nil {
					go func() { _, _ = io.Copy(conn, server) }()
					_, _ = io.Copy(server, conn)
				}
			}()
		}
	}()
	state, err := NewState(gate.Entry{Addresses: []string{ln.Addr().String()}, Fingerprint: store.Fingerprint()}, "h", nil)
	testkit.Must(t, err)
	path := filepath.Join(t.TempDir(), "join.json")
	testkit.Must(t, state.Save(path))
	leave, result := make(chan chan error, 1), make(chan error, 1)
	leave <- result
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := Run(ctx, Options{
		Path: path, Log: zerolog.Nop(), Leave: leave,
		Connect: func(context.Context) (*client.Client, error) { return nil, errors.New("no proxy runs") },
	}); err != nil {
		t.Fatal(err)
	}
	if err := testkit.Within(t, limit, "the leave has a result", result); err != nil || !isRemoved.Load() {
		t.Errorf("the host has left: %v; the gate has removed it: %v", err, isRemoved.Load())
	}
}
