//go:build unix

package socket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/shared/machine"
	"holdfast/shared/testkit"
)

func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	testkit.Must(t, err)
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		testkit.Must(t, err)
		_ = f.Close()
		t.Cleanup(func() { _ = c.Close() })
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1]
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// numbered returns n files, each of which contains its number.
func numbered(t *testing.T, n int) []*os.File {
	t.Helper()
	var files []*os.File
	for i := range n {
		f, err := os.CreateTemp(t.TempDir(), "n")
		testkit.Must(t, err)
		fmt.Fprint(f, i)
		files = append(files, f)
	}
	t.Cleanup(func() { closeAll(files) })
	return files
}

func openFDs(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/dev/fd")
	testkit.Must(t, err)
	return len(names)
}

func TestSendRecvFiles(t *testing.T) {
	for _, tt := range []struct {
		name           string
		payload, files int
		want           int
	}{
		{"nothing", 0, 0, 0},
		{"one file alone", 0, 1, 1},
		{"bytes alone", 10, 0, 0},
		{"both", 10, 3, 3},
		{"as many as announced", 10, 5, -1},
		{"the most", MaxPayload, MaxFiles, MaxFiles},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := pair(t)
			_ = a.SetWriteBuffer(4 << 10) // so that the kernel divides long messages
			payload := bytes.Repeat([]byte{0xa5}, tt.payload)
			files := numbered(t, tt.files)
			sent := make(chan error, 1)
			go func() {
				// The message is sent twice, to check the boundary between messages.
				sent <- errors.Join(SendFiles(a, payload, files), SendFiles(a, payload, files))
			}()
			buf := make([]byte, MaxPayload)
			for range 2 {
				n, got, err := RecvFiles(b, buf, tt.want)
				testkit.Must(t, err)
				defer closeAll(got)
				if !bytes.Equal(buf[:n], payload) || len(got) != tt.files {
					t.Fatalf("%d bytes and %d files", n, len(got))
				}
				for i, f := range got {
					text := make([]byte, 8)
					k, _ := f.ReadAt(text, 0)
					if string(text[:k]) != fmt.Sprint(i) {
						t.Fatalf("file %d is %q", i, text[:k])
					}
					checkCloseOnExec(t, f)
				}
			}
			testkit.Must(t, <-sent)
			_ = a.Close()
			if _, _, err := RecvFiles(b, buf, 0); err != io.EOF {
				t.Errorf("after the last message: %v, want EOF", err)
			}
		})
	}
}

func checkCloseOnExec(t *testing.T, f *os.File) {
	t.Helper()
	err := machine.Control(f, func(fd int) error {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			err = errors.New("not close-on-exec")
		}
		return err
	})
	if err != nil {
		t.Errorf("%s: %v", f.Name(), err)
	}
}

func TestSendFilesLimits(t *testing.T) {
	a, _ := pair(t)
	if err := SendFiles(a, make([]byte, MaxPayload+1), nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("payload: %v", err)
	}
	if err := SendFiles(a, nil, make([]*os.File, MaxFiles+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("files: %v", err)
	}
}

// Whatever is wrong with a message, none of its files may stay open.
func TestRecvFilesRefuses(t *testing.T) {
	message := func(size uint32, count uint16, body string) []byte {
		m := binary.BigEndian.AppendUint32(nil, size)
		return append(binary.BigEndian.AppendUint16(m, count), body...)
	}
	for _, tt := range []struct {
		name  string
		msg   []byte
		files int // the number of files that are sent
		want  int
		err   error
	}{
		{"fewer than announced", message(2, 3, "hi"), 2, 3, ErrFilesLost},
		{"more than announced", message(2, 1, "hi"), 2, 1, ErrFilesLost},
		{"none at all", message(2, 1, "hi"), 0, 1, ErrFilesLost},
		{"not what is wanted", message(2, 2, "hi"), 2, 1, ErrFilesLost},
		{"more than we take", message(2, MaxFiles+1, "hi"), MaxFiles + 1, -1, ErrFilesLost}, // the control buffer is truncated
		{"too many announced", message(2, MaxFiles+1, "hi"), 1, -1, ErrTooLarge},
		{"payload over the buffer", message(1000, 1, "hi"), 1, 1, ErrTooLarge},
		{"payload of 4 GiB", message(1<<32-1, 1, "hi"), 1, 1, ErrTooLarge},
		{"ends in the head", message(2, 1, "")[:3], 1, 1, io.ErrUnexpectedEOF},
		{"ends before the payload", message(2, 1, ""), 1, 1, io.ErrUnexpectedEOF},
		{"ends in the payload", message(2, 1, "h"), 1, 1, io.ErrUnexpectedEOF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := pair(t)
			testkit.Must(t, sendMsg(a, tt.msg, numbered(t, tt.files)))
			_ = a.Close()
			before := openFDs(t)
			n, files, err := RecvFiles(b, make([]byte, 100), tt.want)
			if !errors.Is(err, tt.err) || n != 0 || files != nil {
				t.Errorf("got %d, %d files, %v, want %v", n, len(files), err, tt.err)
			}
			if after := openFDs(t); after != before {
				t.Errorf("%d descriptors are open, want %d", after, before)
			}
		})
	}
}

// If descriptors are short, the kernel drops files without an error. RecvFiles must notice it.
func TestRecvFilesOutOfDescriptors(t *testing.T) {
	a, b := pair(t)
	testkit.Must(t, SendFiles(a, []byte("hi"), numbered(t, 3)))
	var was unix.Rlimit
	testkit.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	free, err := unix.Dup(0) // the lowest free number
	testkit.Must(t, err)
	_ = unix.Close(free)
	// At most two of the three files fit, or none if lower numbers are used.
	testkit.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(free + 2), Max: was.Max}))
	_, files, err := RecvFiles(b, make([]byte, 100), 3)
	if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); e != nil {
		t.Fatal(e)
	}
	if !errors.Is(err, ErrFilesLost) || files != nil {
		t.Errorf("got %d files, %v", len(files), err)
	}
}

// FuzzRecvFiles checks that no bytes cause a panic, or a file that the message did not announce.
func FuzzRecvFiles(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 0, 1, 'h', 'i'}, 1)
	f.Add([]byte{0, 0, 0, 0, 0, 0}, 0)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, -1)
	f.Fuzz(func(t *testing.T, in []byte, want int) {
		a, b := pair(t)
		go func() {
			if len(in) > 0 {
				_ = sendMsg(a, in, []*os.File{os.Stdin})
			}
			_ = a.Close()
		}()
		buf := make([]byte, 256)
		n, files, err := RecvFiles(b, buf, want)
		defer closeAll(files)
		if err != nil {
			return
		}
		if size := int(binary.BigEndian.Uint32(in)); n != size || !bytes.Equal(buf[:n], in[headLen:headLen+n]) {
			t.Errorf("%d bytes of %d", n, size)
		}
		if count := int(binary.BigEndian.Uint16(in[4:])); len(files) != count || want >= 0 && count != want {
			t.Errorf("%d files of %d, wanted %d", len(files), count, want)
		}
	})
}
