package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"holdfast/proxy/internal/daemon"
	"holdfast/shared/version"
)

// handoff starts this program as the successor of the running proxy: in the
// background, reporting here how it went, or as this process.
func (a *app) handoff(ctx context.Context, foreground bool) error {
	if foreground {
		return a.serve(ctx, &serveOptions{takeOver: true})
	}
	old, err := a.proxyPID(ctx)
	if err != nil && !nobodyListens(err) {
		return err
	}
	start := time.Now()
	p, err := a.startDaemon(ctx, "serve", "--background", "--take-over")
	if err != nil {
		return err
	}
	if err := a.waitServing(ctx, p); err != nil {
		return err
	}
	from := "no proxy ran before"
	if old != 0 {
		from = fmt.Sprintf("took over from pid %d", old)
	}
	fmt.Printf("proxy %s serves as pid %d, %s, in %v\n", cmp.Or(version.String(), "dev"), p.PID, from, time.Since(start).Round(time.Millisecond))
	return nil
}

// proxyPID asks the proxy who it is.
func (a *app) proxyPID(ctx context.Context) (int, error) {
	c, err := a.dial(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	return c.ProxyPID(), nil
}

// waitServing returns when the process answers as the proxy.
func (a *app) waitServing(ctx context.Context, p *daemon.Process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if pid, err := a.proxyPID(ctx); err == nil && pid == p.PID {
			return nil
		}
		select {
		case <-p.Exited:
			return fmt.Errorf("the successor gave up, the old proxy serves on: %s", a.lastError())
		case <-ctx.Done():
			return fmt.Errorf("the successor (pid %d) does not serve yet: %w", p.PID, ctx.Err())
		case <-time.After(startPoll):
		}
	}
}
