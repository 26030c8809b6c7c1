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

	"holdfast/shared/machine"

	"golang.org/x/sys/unix"
)

const headLen = 6 // header of a message: [u32 payload length][u16 number of files], big-endian

// SendFiles sends one message with a payload of at most MaxPayload bytes and at most
// MaxFiles open files. Both may be empty. The caller still owns the files and must keep
// them open until the receiver has acknowledged them. After an error the caller must
// close the connection.
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

// sendMsg sends the files with the first bytes of msg. If the kernel accepts only a part
// of msg, sendMsg sends the remainder without files.
func sendMsg(conn *net.UnixConn, msg []byte, files []*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		var err error
		if fds[i], err = machine.Descriptor(f); err != nil {
			return err
		}
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	n, _, err := conn.WriteMsgUnix(msg, oob, nil)
	runtime.KeepAlive(files)
	if err != nil || n == len(msg) { // an empty Write would fail if the peer has closed the connection
		return err
	}
	_, err = conn.Write(msg[n:])
	return err
}

// RecvFiles receives one message of SendFiles. It writes the payload to buf and returns
// the payload's length and the files. The caller owns the files, which are close-on-exec.
// If want is not negative, the message must have exactly want files.
//
// RecvFiles returns io.EOF if the connection ends between two messages, and ErrTooLarge
// if the payload is larger than buf. It returns ErrFilesLost if the number of files
// differs from the number announced or wanted, as happens if this process has no free
// descriptors. If RecvFiles fails, it closes all files of the message, and the caller
// must close the connection.
func RecvFiles(conn *net.UnixConn, buf []byte, want int) (n int, files []*os.File, err error) {
	r := fileReader{conn: conn}
	n, err = r.message(buf, want)
	if err != nil {
		for _, f := range r.files {
			_ = f.Close() // the caller receives no file of a message that failed
		}
		return 0, nil, err
	}
	return n, r.files, nil
}

// A fileReader reads a stream and collects the files that arrive with the bytes. If the
// reader used a plain read(2), the kernel would drop the files.
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
		return 0, fmt.Errorf("receive: %d files announced, %d expected: %w", count, want, ErrFilesLost)
	}
	n, err := io.ReadFull(r, buf[:size])
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return 0, fmt.Errorf("receive %d bytes: %w", size, err)
	}
	if len(r.files) != count {
		return 0, fmt.Errorf("receive: %d files arrived, %d announced: %w", len(r.files), count, ErrFilesLost)
	}
	return n, nil
}

// Read reads bytes into p and appends the files that arrive with them to r.files.
func (r *fileReader) Read(p []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4*MaxFiles))
	n, oobn, flags, _, err := r.conn.ReadMsgUnix(p, oob)
	if errors.Is(err, io.EOF) {
		return 0, io.EOF // unlike Read, ReadMsgUnix wraps io.EOF, and io.ReadFull compares without unwrapping
	}
	if err != nil {
		return 0, err
	}
	// Each error below is returned with 0 bytes. If Read returned an error together
	// with the last bytes, io.ReadFull would drop the error.
	if err := r.collectFiles(oob[:oobn]); err != nil {
		return 0, err
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return 0, fmt.Errorf("receive: the kernel dropped files, probably because the limit of open files (ulimit -n) is reached: %w", ErrFilesLost)
	}
	if len(r.files) > MaxFiles {
		return 0, fmt.Errorf("receive more than %d files: %w", MaxFiles, ErrTooLarge)
	}
	return n, nil
}

// collectFiles appends the files of the control messages in oob to r.files.
func (r *fileReader) collectFiles(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue // a control message without files, such as credentials
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			r.files = append(r.files, os.NewFile(uintptr(fd), fmt.Sprintf("received-%d", len(r.files))))
		}
	}
	return nil
}
