//go:build !unix

package archive

import "context"

// Run returns at once, because this system has no sessions.
func (r *Recorder) Run(context.Context) {}
