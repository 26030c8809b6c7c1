package handoff

import (
	"errors"
	"fmt"
	"io"
	"os"

	"holdfast/shared/machine"
	"holdfast/shared/socket"
)

// A Conn is a client's connection on its way to another proxy.
type Conn struct {
	Record []byte // the connection state, encoded by package apiserver
	File   *os.File
}

// AtOnce is the largest number of connections in one message. Each needs two files, and one file
// is reserved for other state. It is at most 100.
const AtOnce = (socket.MaxFiles - 1) / filesOfConn

const (
	filesOfConn = 2 // the connection, and a file with its state
	// maxRecord is the largest state of a connection in bytes. It must be larger than all that a client can make the proxy
	// keep, because a handoff fails if one connection cannot be moved: input of 256 attachments, 256 KiB each (package
	// linkclient); 64 answers of at most 1 MiB, and a piece of output for each attachment, that the client has not read; both in
	// base64; and 1,024 waits of 128 KiB (package apiserver). Together that is about 320 MiB.
	maxRecord  = 512 << 20
	groupConn  = "conn"
	groupState = "state" // state that belongs to no connection
)

// A parcel is the content of a message: connections and, if there is any, other state.
type parcel struct {
	conns []Conn
	state []byte
}

// send sends a parcel. The caller must still close the connections' files.
func (p parcel) send(to *peer, m message) error {
	var files, made []*os.File
	defer func() { _ = closeAll(made) }()
	pack := func(name string, record []byte, with ...*os.File) error {
		f, err := machine.MemoryFileWith("holdfast-record", record)
		if err != nil {
			return fmt.Errorf("save the state of a %s: %w", name, err)
		}
		made = append(made, f)
		files = append(append(files, with...), f)
		m.Groups = append(m.Groups, Group{Name: name, Files: len(with) + 1})
		return nil
	}
	if len(p.state) > 0 {
		if err := pack(groupState, p.state); err != nil {
			return err
		}
	}
	for _, c := range p.conns {
		if err := pack(groupConn, c.Record, c.File); err != nil {
			return err
		}
	}
	return to.send(m, files)
}

// unpack reads the parcel of a message. The caller must close the connections' files; unpack
// closes all others.
func unpack(groups []Group, files []*os.File) (p parcel, err error) {
	defer func() {
		if err != nil {
			for _, c := range p.conns {
				err = errors.Join(err, c.File.Close())
			}
			p = parcel{}
		}
		err = errors.Join(err, closeAll(files)) // files that no connection owns
	}()
	for _, g := range groups {
		conn := g.Name == groupConn && g.Files == filesOfConn
		if !conn && (g.Name != groupState || g.Files != 1) {
			return p, fmt.Errorf("%d files of %.40q", g.Files, g.Name)
		}
		f := files[g.Files-1]
		record, err := readRecord(f)
		if err != nil {
			return p, err
		}
		if conn {
			p.conns = append(p.conns, Conn{Record: record, File: files[0]})
		} else {
			p.state = record
		}
		files = files[g.Files:]
		if err := f.Close(); err != nil {
			return p, err
		}
	}
	return p, nil
}

func readRecord(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxRecord {
		return nil, fmt.Errorf("the state of a connection has %d bytes, the limit is %d", info.Size(), maxRecord)
	}
	record := make([]byte, info.Size())
	_, err = io.ReadFull(io.NewSectionReader(f, 0, info.Size()), record)
	return record, err
}
