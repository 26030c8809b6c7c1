package linkserver

import (
	"runtime"
	"runtime/metrics"

	wire "holdfast/protocol/link"
	"holdfast/shared/machine"
)

// overtaken counts a viewer that missed bytes, and is given a snapshot for it.
func (s *Server) overtaken(missed uint64) {
	if missed > 0 {
		s.resyncs.Add(1)
		s.missed.Add(missed)
	}
}

// stats gives numbers. What they are called elsewhere is the proxy's concern.
func (s *Server) stats() wire.StatsReport {
	c, u := s.cfg.Sessions.Counts(), machine.Used()
	return wire.StatsReport{
		StartedAt: s.started, Links: int(s.links.Load()),
		Starting: c.Starting, Running: c.Running, Draining: c.Draining, Exited: c.Exited,
		Attachments: int(s.viewers.Load()), BytesPrinted: c.BytesPrinted, BytesTyped: c.BytesTyped,
		Spawns: c.Spawns, SpawnsFailed: c.SpawnsFailed,
		ExitsNatural: c.ExitsNatural, ExitsSoft: c.ExitsSoft, ExitsHard: c.ExitsHard,
		Resyncs: s.resyncs.Load(), BytesMissed: s.missed.Load(),
		PTYs: u.PTYs, MaxPTYs: u.MaxPTYs, Files: u.Files, MaxFiles: u.MaxFiles,
		Goroutines: runtime.NumGoroutine(), HeapBytes: heapBytes(), RSSBytes: u.RSSBytes,
	}
}

// heapBytes stops nothing, as runtime.ReadMemStats would.
func heapBytes() uint64 {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	if heap[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return heap[0].Value.Uint64()
}
