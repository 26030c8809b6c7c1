//go:build unix

package socket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

const headLen = 6 // [u32 payload length][u16 number of files], big-endian

// SendFiles sends one message: payload and open files, either of which may be
// empty. The files stay the caller's, who keeps them open until the other side
// has said that it has them. After an error the connection is of no more use.
func SendFiles(conn *net.UnixConn, payload []byte, files []*os.File) error {
	if len(payload) > MaxPayload || len(files) > MaxFiles {
		return fmt.Errorf("send %d bytes and %d files: %w", len(payload), len(files), ErrTooLarge)
	}
	msg := binary.BigEndian.AppendUint32(make([]byte, 0, headLen+len(payload)), uint32(len(payload)))
	msg = binary.BigEndian.AppendUint16(msg, uint16(len(files)))
	msg = append(msg, payload...)
	if err := sendMsg(conn, msg, files); err != nil {
		return fmt.Errorf("send %d files: %w", len(files), err)
	}
	return nil
}

// sendMsg sends the files with the first bytes that the kernel takes, and the
// rest of a message that it takes in part by itself.
func sendMsg(conn *net.UnixConn, msg []byte, files []*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		if err := control(f, func(fd int) error { fds[i] = fd; return nil }); err != nil {
			return err
		}
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	n, _, err := conn.WriteMsgUnix(msg, oob, nil)
	runtime.KeepAlive(files)
	if err != nil || n == len(msg) { // a write of nothing would still fail where the peer has closed
		return err
	}
	_, err = conn.Write(msg[n:])
	return err
}

// RecvFiles receives one message of SendFiles: its payload into buf, and its
// files, which are the caller's and close-on-exec. want is how many files must
// come; a negative one takes as many as are announced.
//
// It returns io.EOF between messages, ErrTooLarge for a payload larger than
// buf, and ErrFilesLost where other files came than announced or wanted, as
// happens when we are out of descriptors. With an error no file is left open,
// and the connection is of no more use.
func RecvFiles(conn *net.UnixConn, buf []byte, want int) (n int, files []*os.File, err error) {
	r := fileReader{conn: conn}
	n, err = r.message(buf, want)
	if err != nil {
		for _, f := range r.files {
			_ = f.Close() // nobody has seen it
		}
		return 0, nil, err
	}
	return n, r.files, nil
}

// A fileReader reads a stream and gathers the files that come along. A plain
// Read would have the kernel drop them.
type fileReader struct {
	conn  *net.UnixConn
	files []*os.File
}

func (r *fileReader) message(buf []byte, want int) (int, error) {
	var head [headLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, err
	}
	size := binary.BigEndian.Uint32(head[:])
	count := int(binary.BigEndian.Uint16(head[4:]))
	switch {
	case uint64(size) > uint64(min(len(buf), MaxPayload)) || count > MaxFiles:
		return 0, fmt.Errorf("receive %d bytes and %d files: %w", size, count, ErrTooLarge)
	case want >= 0 && count != want:
		return 0, fmt.Errorf("receive: %d files announced, %d wanted: %w", count, want, ErrFilesLost)
	}
	n, err := io.ReadFull(r, buf[:size])
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return 0, fmt.Errorf("receive %d bytes: %w", size, err)
	}
	if len(r.files) != count {
		return 0, fmt.Errorf("receive: %d files came, %d announced: %w", len(r.files), count, ErrFilesLost)
	}
	return n, nil
}

// Read reads bytes, and takes the files that come with them.
func (r *fileReader) Read(p []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4*MaxFiles))
	n, oobn, flags, _, err := r.conn.ReadMsgUnix(p, oob)
	if errors.Is(err, io.EOF) {
		return 0, io.EOF // which ReadMsgUnix, unlike Read, wraps
	}
	if err != nil {
		return 0, err
	}
	// Errors come with no bytes: io.ReadFull forgets one that comes with the
	// last of them.
	if err := r.take(oob[:oobn]); err != nil {
		return 0, err
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return 0, fmt.Errorf("receive: the kernel dropped some, are we out of descriptors? %w", ErrFilesLost)
	}
	if len(r.files) > MaxFiles {
		return 0, fmt.Errorf("receive more than %d files: %w", MaxFiles, ErrTooLarge)
	}
	return n, nil
}

func (r *fileReader) take(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // credentials, or what else a kernel may add
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			r.files = append(r.files, os.NewFile(uintptr(fd), fmt.Sprintf("received-%d", len(r.files))))
		}
	}
	return nil
}
