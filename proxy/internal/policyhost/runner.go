package policyhost

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/hashicorp/go-plugin/runner"
)

var _ runner.Runner = (*program)(nil)

// These methods implement the other parts of runner.Runner.

func (p *program) Stdout() io.ReadCloser           { return p.first }
func (p *program) Stderr() io.ReadCloser           { return io.NopCloser(strings.NewReader("")) }
func (p *program) Name() string                    { return p.cfg.Path }
func (p *program) Diagnose(context.Context) string { return "" } // explain has this task

func (p *program) ID() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 {
		return ""
	}
	return strconv.Itoa(p.pid)
}

func (p *program) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

func (p *program) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}
