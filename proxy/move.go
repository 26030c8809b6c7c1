package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"holdfast/proxy/internal/apiserver"
	"holdfast/proxy/internal/handoff"
	"holdfast/shared/socket"
)

// moveTime is how long a batch of connections may take to come to rest.
const moveTime = time.Second

// move gives the clients' connections to the successor.
func (s *serving) move(pass func([]handoff.Conn) error) {
	ctx, cancel := context.WithTimeout(context.Background(), moveTime)
	defer cancel()
	begun := time.Now()
	n, err := s.server.Freeze(ctx, handoff.AtOnce, func(frozen []*apiserver.Frozen) error {
		conns := make([]handoff.Conn, len(frozen))
		defer func() {
			for _, c := range conns {
				if c.File != nil {
					_ = c.File.Close() // a duplicate
				}
			}
		}()
		for i, f := range frozen {
			var err error
			if conns[i], err = given(f); err != nil {
				return err
			}
		}
		return pass(conns)
	})
	s.log.Info().Err(err).Int("connections", n).Dur("took", time.Since(begun)).Msg("clients moved")
}

func given(f *apiserver.Frozen) (handoff.Conn, error) {
	record, err := json.Marshal(f.Record)
	if err != nil {
		return handoff.Conn{}, err
	}
	sc, ok := f.Client().(syscall.Conn)
	if !ok {
		return handoff.Conn{}, errors.New("a connection without a descriptor")
	}
	file, err := socket.Dup(sc, "client")
	return handoff.Conn{Record: record, File: file}, err
}

// adopt goes on with connections of the proxy before. It returns when each of
// them is where it was.
func (s *serving) adopt(ctx context.Context, conns []handoff.Conn) {
	var ready sync.WaitGroup
	for _, c := range conns {
		ready.Add(1)
		go func() {
			err := s.adoptOne(ctx, c, sync.OnceFunc(ready.Done))
			if err != nil {
				s.log.Warn().Err(err).Msg("client not taken over")
			}
		}()
	}
	ready.Wait()
}

func (s *serving) adoptOne(ctx context.Context, c handoff.Conn, ready func()) error {
	defer ready()
	nc, err := net.FileConn(c.File)
	if err = errors.Join(err, c.File.Close()); err != nil {
		return err
	}
	var r apiserver.Record
	if err := json.Unmarshal(c.Record, &r); err != nil || r.Version != apiserver.RecordVersion {
		return errors.Join(err, fmt.Errorf("a record of version %d", r.Version), nc.Close())
	}
	s.server.Restore(ctx, apiserver.NewStream(nc, r.In), &r, ready)
	return nil
}
