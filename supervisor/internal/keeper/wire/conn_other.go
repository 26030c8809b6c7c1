//go:build !linux && !darwin

package wire

import (
	"errors"
	"os"
)

// A Conn does not exist here: NewConn never returns one.
type Conn struct {
	*os.File
	FD int
}

// NewConn returns an error.
func NewConn(int) (*Conn, error) { return nil, errors.ErrUnsupported }

func (*Conn) Partial() bool                    { return false }
func (*Conn) Receive() (Message, []int, error) { return Message{}, nil, errors.ErrUnsupported }
func (*Conn) Send([]byte, []int) (int, error)  { return 0, errors.ErrUnsupported }

// Close has nothing to close.
func Close([]int) {}
