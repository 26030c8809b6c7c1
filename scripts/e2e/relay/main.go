// Command relay is one of three processes that stand between a program and a person's terminal and only copy. A benchmark
// compares Holdfast, which has as many processes, with them.
//
//	relay hold SOCKET BYTES PROGRAM [ARG...]  runs a program on a terminal; sends a new viewer so many bytes first
//	relay pass SOCKET TO                      copies between the clients of two sockets
//	relay attach SOCKET                       copies between a socket and its own terminal
//
// Each process has one client and ends with it.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"

	"github.com/creack/pty"
	"golang.org/x/term"

	"holdfast/shared/machine"
)

func main() {
	machine.Share() // as the processes of Holdfast
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch args[0] {
	case "hold":
		first, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		program, err := pty.StartWithSize(exec.Command(args[3], args[4:]...), &pty.Winsize{Rows: 24, Cols: 80})
		if err != nil {
			return err
		}
		c, err := accept(args[1])
		if err != nil {
			return err
		}
		if _, err := c.Write(bytes.Repeat([]byte("."), first)); err != nil {
			return err
		}
		return copyBoth(c, program)
	case "pass":
		c, err := accept(args[1])
		if err != nil {
			return err
		}
		to, err := net.Dial("unix", args[2])
		if err != nil {
			return err
		}
		return copyBoth(c, to)
	}
	if _, err := term.MakeRaw(0); err != nil {
		return err
	}
	c, err := net.Dial("unix", args[1])
	if err != nil {
		return err
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return copyBoth(tty, c)
}

// accept returns the first client of a socket.
func accept(socket string) (net.Conn, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	return l.Accept()
}

// copyBoth copies in both directions until one of them ends. It passes on each piece as it has read it, as Holdfast does.
func copyBoth(a, b io.ReadWriter) error {
	ended := make(chan error, 2)
	direction := func(to io.Writer, from io.Reader) {
		_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 64<<10))
		ended <- err
	}
	go direction(a, b)
	go direction(b, a)
	return <-ended
}
