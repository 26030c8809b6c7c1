//go:build !linux && !darwin

package main

import "errors"

// keep has nothing to keep here.
func keep(*options) error { return errors.ErrUnsupported }
