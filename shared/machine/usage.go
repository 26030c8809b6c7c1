package machine

import "math"

// Usage tells how much of the machine this process uses, and how many PTYs the whole system
// uses. A field is 0 if its value is not known.
type Usage struct {
	Files, MaxFiles int    // open descriptors, and the limit of this process
	RSSBytes        uint64 // memory of this process
	PTYs, MaxPTYs   int    // PTYs of the whole system, and their limit
}

// Used returns the present Usage.
func Used() Usage {
	var u Usage
	if open, limit, err := Files(); err == nil {
		u.Files, u.MaxFiles = int(open), int(min(limit, math.MaxInt32))
	}
	u.addKernels()
	return u
}

// FilesLeft returns how many more files this process may open, or math.MaxInt if that is not
// known.
func FilesLeft() int {
	open, limit, err := Files()
	if err != nil {
		return math.MaxInt
	}
	return int(min(limit, math.MaxInt32)) - int(open)
}
