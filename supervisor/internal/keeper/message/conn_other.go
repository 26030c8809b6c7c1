//go:build !linux && !darwin

package message

import (
	"errors"
	"os"
)

// A Conn has no instances on this system, because NewConn always fails.
type Conn struct {
	*os.File
	FD int
}

// NewConn returns errors.ErrUnsupported.
func NewConn(int) (*Conn, error) { return nil, errors.ErrUnsupported }

func (*Conn) Partial() bool                    { return false }
func (*Conn) Receive() (Message, []int, error) { return Message{}, nil, errors.ErrUnsupported }
func (*Conn) Send([]byte, []int) (int, error)  { return 0, errors.ErrUnsupported }

// Close does nothing, because no descriptor is ever received here.
func Close([]int) {}
