package linkserver

import (
	"runtime"
	"runtime/metrics"

	wire "holdfast/protocol/link"
	"holdfast/shared/machine"
)

// overtaken counts a viewer that has missed output and receives a snapshot instead.
func (s *Server) overtaken(missed uint64) {
	if missed > 0 {
		s.resyncs.Add(1)
		s.missed.Add(missed)
	}
}

// stats returns the numbers of this supervisor. The proxy chooses the names under which they
// are exported.
func (s *Server) stats() wire.StatsReport {
	c, u := s.cfg.Sessions.Counts(), machine.Used()
	return wire.StatsReport{
		StartedAt: s.started, Links: int(s.links.Load()),
		Starting: c.Starting, Running: c.Running, Draining: c.Draining, Exited: c.Exited,
		Attachments: int(s.viewers.Load()), BytesPrinted: c.BytesPrinted, BytesTyped: c.BytesTyped,
		Spawns: c.Spawns, SpawnsFailed: c.SpawnsFailed,
		ExitsNatural: c.ExitsNatural, ExitsSoft: c.ExitsSoft, ExitsHard: c.ExitsHard,
		Resyncs: s.resyncs.Load(), BytesMissed: s.missed.Load(),
		RecordingsFailing: int(c.Recording.Failing), RecordingFailures: c.Recording.Failures,
		BytesStored: c.Recording.Written, BytesUnstored: c.Recording.Missing,
		PTYs: u.PTYs, MaxPTYs: u.MaxPTYs, Files: u.Files, MaxFiles: u.MaxFiles,
		Goroutines: runtime.NumGoroutine(), HeapBytes: heapBytes(), RSSBytes: u.RSSBytes,
	}
}

// heapBytes returns the bytes of the heap's objects. Unlike runtime.ReadMemStats it does not
// stop the program.
func heapBytes() uint64 {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	if heap[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return heap[0].Value.Uint64()
}
