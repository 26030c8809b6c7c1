//go:build !unix

package machine

import "math"

// FilesLeft is how many files this process may still open; a lot where that is
// not known.
func FilesLeft() int { return math.MaxInt }
