//go:build !linux && !darwin

package keeper

import (
	"errors"
	"os"
)

// A Conn does not exist here: NewConn never returns one.
type Conn struct{ *os.File }

// NewConn returns an error.
func NewConn(int) (*Conn, error) { return nil, errors.ErrUnsupported }

// Run has nothing to keep: it returns 69.
func Run(Config) int { return exitUnavailable }

func (*Conn) FD() int                          { return 0 }
func (*Conn) Partial() bool                    { return false }
func (*Conn) Receive() (Message, []int, error) { return Message{}, nil, errors.ErrUnsupported }
func (*Conn) Send([]byte, []int) (int, error)  { return 0, errors.ErrUnsupported }
