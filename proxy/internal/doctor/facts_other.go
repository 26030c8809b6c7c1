//go:build !unix

package doctor

import "errors"

func writable(string) error { return nil }

func openPtmx(string) error { return errors.ErrUnsupported }
