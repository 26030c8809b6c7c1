package machine

import "math"

// Usage is what this process uses of the machine, and all processes of its
// terminals. What is not known is 0.
type Usage struct {
	Files, MaxFiles int // descriptors
	RSSBytes        uint64
	PTYs, MaxPTYs   int // of the whole system
}

// Used returns what is used now.
func Used() Usage {
	var u Usage
	if open, limit, err := Files(); err == nil {
		u.Files, u.MaxFiles = int(open), int(min(limit, math.MaxInt32))
	}
	u.addKernels()
	return u
}

// FilesLeft is how many files this process may still open; a lot where that is
// not known.
func FilesLeft() int {
	open, limit, err := Files()
	if err != nil {
		return math.MaxInt
	}
	return int(min(limit, math.MaxInt32)) - int(open)
}
