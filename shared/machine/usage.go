package machine

// Usage is what this process uses of the machine, and all processes of its
// terminals. What is not known is 0.
type Usage struct {
	Files, MaxFiles int // descriptors
	RSSBytes        uint64
	PTYs, MaxPTYs   int // of the whole system
}
