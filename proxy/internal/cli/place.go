package cli

import (
	"context"
	"math/rand/v2"
	"strings"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/plain"
	"holdfast/shared/sysexits"
)

// anyHost is the value of --place that demands no label.
const anyHost = "any"

// placeOn makes the command one for the host of the gate that leastLoaded chooses. labels is k=v,k=v, or
// anyHost.
func (a *App) placeOn(ctx context.Context, labels string) error {
	if a.Host != "" {
		return exitcode.WrongUsagef("--place chooses the host, but the command names %s", plain.Text(a.Host))
	}
	wanted := map[string]string{}
	for label := range strings.SplitSeq(labels, ",") {
		k, v, isLabel := strings.Cut(label, "=")
		switch {
		case isLabel && k != "":
			wanted[k] = v
		case labels != anyHost:
			return exitcode.WrongUsagef("--place must be labels of the form k=v,k=v, or any")
		}
	}
	_, hosts, err := a.gateHosts(ctx)
	if err != nil {
		return err
	}
	host := leastLoaded(hosts, wanted)
	if host == "" {
		return exitcode.Newf(sysexits.Unavailable, "no host that is connected with the gate has the labels %s; see proxy hosts", plain.Text(labels))
	}
	return a.setHost(host)
}

// leastLoaded returns the name of the reachable host that has all wanted labels and the fewest running
// sessions for each processor, or "" if there is none. Among equal hosts it chooses at random, so that
// commands at the same moment do not all choose the same one.
func leastLoaded(hosts []gate.HostInfo, wanted map[string]string) string {
	var best []gate.HostInfo
	for _, h := range hosts {
		if !h.IsReachable || !protocol.HasLabels(h.Labels, wanted) {
			continue
		}
		h.CPUs = max(h.CPUs, 1) // unknown
		if len(best) > 0 {
			load, least := h.Running*best[0].CPUs, best[0].Running*h.CPUs // over the product of both numbers of processors
			if load > least {
				continue
			}
			if load < least {
				best = nil
			}
		}
		best = append(best, h)
	}
	if len(best) == 0 {
		return ""
	}
	return best[rand.IntN(len(best))].Name
}
