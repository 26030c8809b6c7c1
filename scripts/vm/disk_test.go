//go:build linux

package vm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// sectorBytes is the size of a sector, which the disk writes completely or not at all.
const sectorBytes = 512

// A disk is the machine's disk, with a volatile cache as real disks have: a write is durable only after a
// later flush. The machine reaches the disk at the socket by the protocol of network block devices (NBD).
type disk struct {
	socket string
	ln     net.Listener

	mu     sync.Mutex
	now    []byte // the contents that a read returns
	safe   []byte // the contents that survive a loss of power
	cached []cachedWrite
	isOff  bool
	fault  diskFault
}

// A cachedWrite is a write that was acknowledged but not flushed.
type cachedWrite struct {
	at   int
	data []byte
}

// A diskFault is a failure of the disk.
type diskFault struct {
	delay time.Duration // of each write and flush
	err   syscall.Errno // of each write and flush
}

// newDisk returns a disk with an empty ext4 file system.
func newDisk(t *testing.T, size int) *disk {
	t.Helper()
	mkfs, err := exec.LookPath("mkfs.ext4")
	if err != nil {
		mkfs = "/usr/sbin/mkfs.ext4"
	}
	dir := t.TempDir()
	image := filepath.Join(dir, "image")
	testkit.Must(t, errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, int64(size))))
	if out, err := exec.Command(mkfs, "-q", "-F", "-O", "^resize_inode", image).CombinedOutput(); err != nil {
		if os.Getenv("HOLDFAST_REQUIRE_VM") == "" {
			t.Skipf("no file system can be made: %v, %s", err, out)
		}
		t.Fatalf("%v, %s", err, out)
	}
	safe, err := os.ReadFile(image)
	testkit.Must(t, err)
	d := &disk{socket: filepath.Join(dir, "disk.sock"), safe: safe, now: make([]byte, size)}
	copy(d.now, safe)
	if d.ln, err = net.Listen("unix", d.socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.ln.Close() })
	go func() {
		for {
			c, err := d.ln.Accept()
			if err != nil {
				return
			}
			go func() {
				_ = d.serve(c) // the machine has closed the connection, or has lost power
				_ = c.Close()
			}()
		}
	}()
	return d
}

// cutPower ends all writes. Of the writes that were not flushed, the disk keeps none, all, the first ones and
// a part of the next one, a random subset, or a random subset of their sectors. It returns the numbers of
// lost and kept sectors.
func (d *disk) cutPower(r *rand.Rand) (lost, kept int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.isOff = true
	way, first := r.IntN(5), r.IntN(len(d.cached)+1)
	for i, w := range d.cached {
		sectors := len(w.data) / sectorBytes
		coin, torn := r.IntN(2) == 0, r.IntN(sectors+1)
		for s := range sectors {
			isKept := [...]bool{false, true, i < first || i == first && s < torn, coin, r.IntN(2) == 0}[way]
			if !isKept {
				lost++
				continue
			}
			kept++
			from, to := s*sectorBytes, (s+1)*sectorBytes
			copy(d.safe[w.at+from:], w.data[from:to])
		}
	}
	d.cached = nil
	copy(d.now, d.safe)
	return lost, kept
}

// powerOn accepts writes again.
func (d *disk) powerOn() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.isOff = false
}

// misbehave makes all following writes and flushes slow, or makes them fail.
func (d *disk) misbehave(f diskFault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = f
}

// Numbers of the NBD protocol.
const (
	nbdOptionMagic  = 0x49484156454F5054
	nbdReplyMagic   = 0x3e889045565a9
	nbdRequestMagic = 0x25609513
	nbdAnswerMagic  = 0x67446698

	nbdExportName = 1
	nbdAbort      = 2
	nbdGo         = 7

	nbdAck         = 1
	nbdInfo        = 3
	nbdUnsupported = 1<<31 + 1

	nbdHasFlush = 1<<0 | 1<<2

	nbdRead  = 0
	nbdWrite = 1
	nbdClose = 2
	nbdFlush = 3
)

// serve answers the requests of one connection.
func (d *disk) serve(c net.Conn) error {
	if err := d.negotiate(c); err != nil {
		return err
	}
	var head [28]byte
	for {
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return err
		}
		if magic := binary.BigEndian.Uint32(head[:]); magic != nbdRequestMagic {
			return fmt.Errorf("request begins with %x", magic)
		}
		kind := binary.BigEndian.Uint16(head[6:])
		at, n := int(binary.BigEndian.Uint64(head[16:])), int(binary.BigEndian.Uint32(head[24:]))
		if kind == nbdClose {
			return nil
		}
		var data []byte
		if kind == nbdRead || kind == nbdWrite {
			data = make([]byte, n)
		}
		if kind == nbdWrite {
			if _, err := io.ReadFull(c, data); err != nil {
				return err
			}
		}
		failed, err := d.do(kind, at, data)
		if err != nil {
			return err
		}
		answer := binary.BigEndian.AppendUint32(nil, nbdAnswerMagic)
		answer = binary.BigEndian.AppendUint32(answer, uint32(failed))
		answer = append(answer, head[8:16]...)
		if kind == nbdRead && failed == 0 {
			answer = append(answer, data...)
		}
		if _, err := c.Write(answer); err != nil {
			return err
		}
	}
}

// do executes a request. An error ends the connection.
func (d *disk) do(kind uint16, at int, data []byte) (syscall.Errno, error) {
	d.mu.Lock()
	fault := d.fault
	d.mu.Unlock()
	if kind != nbdRead {
		time.Sleep(fault.delay)
		if fault.err != 0 {
			return fault.err, nil
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isOff {
		return 0, errors.New("the power is off")
	}
	if at < 0 || at+len(data) > len(d.now) {
		return syscall.EINVAL, nil
	}
	switch kind {
	case nbdRead:
		copy(data, d.now[at:])
	case nbdWrite:
		copy(d.now[at:], data)
		d.cached = append(d.cached, cachedWrite{at, data})
	case nbdFlush:
		for _, w := range d.cached {
			copy(d.safe[w.at:], w.data)
		}
		d.cached = nil
	default:
		return syscall.EINVAL, nil
	}
	return 0, nil
}

// negotiate sends the size of the disk.
func (d *disk) negotiate(c net.Conn) error {
	const fixed, noZeroes = 1, 2
	hello := binary.BigEndian.AppendUint64([]byte("NBDMAGIC"), nbdOptionMagic)
	if _, err := c.Write(binary.BigEndian.AppendUint16(hello, fixed|noZeroes)); err != nil {
		return err
	}
	var flags [4]byte
	if _, err := io.ReadFull(c, flags[:]); err != nil {
		return err
	}
	export := binary.BigEndian.AppendUint64(nil, uint64(len(d.now)))
	export = binary.BigEndian.AppendUint16(export, nbdHasFlush)
	for {
		var head [16]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return err
		}
		option := binary.BigEndian.Uint32(head[8:])
		if _, err := io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head[12:]))); err != nil {
			return err
		}
		reply := func(kind uint32, data []byte) []byte {
			p := binary.BigEndian.AppendUint64(nil, nbdReplyMagic)
			p = binary.BigEndian.AppendUint32(p, option)
			p = binary.BigEndian.AppendUint32(p, kind)
			return append(binary.BigEndian.AppendUint32(p, uint32(len(data))), data...)
		}
		answer := reply(nbdUnsupported, nil)
		switch option {
		case nbdExportName:
			answer = export
			if flags[3]&noZeroes == 0 {
				answer = append(answer, make([]byte, 124)...)
			}
		case nbdGo:
			answer = append(reply(nbdInfo, append([]byte{0, 0}, export...)), reply(nbdAck, nil)...)
		case nbdAbort:
			answer = reply(nbdAck, nil)
		}
		if _, err := c.Write(answer); err != nil {
			return err
		}
		switch option {
		case nbdExportName, nbdGo:
			return nil
		case nbdAbort:
			return errors.New("the machine has aborted the negotiation")
		}
	}
}
