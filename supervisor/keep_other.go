//go:build !linux && !darwin

package main

import "errors"

// runKeeper returns errors.ErrUnsupported, because there are no terminals on this system.
func runKeeper(*options) error { return errors.ErrUnsupported }
