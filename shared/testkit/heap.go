package testkit

import (
	"runtime/metrics"
	"time"
)

// WatchHeap returns the size of the heap, and a function that ends the watch and returns by how much
// the heap was larger meanwhile, at most. The size counts objects that are not yet collected. WatchHeap
// reads it every 2 ms.
func WatchHeap() (base uint64, peak func() uint64) {
	base = heapSize()
	done, result := make(chan struct{}), make(chan uint64)
	go func() {
		most := base
		for {
			select {
			case <-done:
				result <- max(most, heapSize()) - base
				return
			case <-time.After(2 * time.Millisecond):
				most = max(most, heapSize())
			}
		}
	}()
	return base, func() uint64 {
		close(done)
		return <-result
	}
}

// heapSize returns the bytes of objects that are not yet collected. Unlike runtime.ReadMemStats it does
// not stop the program, so that a watch adds little to the processor time that a test measures meanwhile.
func heapSize() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
