package handoff

import (
	"errors"
	"fmt"
	"io"
	"os"

	"holdfast/shared/machine"
	"holdfast/shared/socket"
)

// A Conn is a client's connection, as it is given to another proxy.
type Conn struct {
	Record []byte // what apiserver notes of it
	File   *os.File
}

// AtOnce is how many connections one message can give: two files each, and one
// with the state, of which it carries 100 at most.
const AtOnce = (socket.MaxFiles - 1) / filesOfConn

const (
	filesOfConn = 2         // the connection, and a file with its record
	maxRecord   = 160 << 20 // 256 attachments with their windows, and a frame of each kind
	groupConn   = "conn"
	groupState  = "state" // what belongs to no connection
)

// A parcel is what a message gives: connections and, where there is some, state.
type parcel struct {
	conns []Conn
	state []byte
}

// send sends a parcel. The connections' files stay the caller's.
func (p parcel) send(l *line, m message) error {
	var files, made []*os.File
	defer func() { _ = closeAll(made) }()
	pack := func(name string, record []byte, with ...*os.File) error {
		f, err := recordFile(record)
		if err != nil {
			return fmt.Errorf("record of a %s: %w", name, err)
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
	return l.send(m, files)
}

// unpack reads what came with a message. The connections' files are the
// caller's.
func unpack(groups []Group, files []*os.File) (p parcel, err error) {
	defer func() {
		if err != nil {
			for _, c := range p.conns {
				err = errors.Join(err, c.File.Close())
			}
			p = parcel{}
		}
		err = errors.Join(err, closeAll(files)) // those that are nobody's yet
	}()
	for _, g := range groups {
		conn := g.Name == groupConn && g.Files == filesOfConn
		if !conn && (g.Name != groupState || g.Files != 1) {
			return p, fmt.Errorf("%d files of %.40q", g.Files, g.Name)
		}
		f := files[g.Files-1]
		record, err := io.ReadAll(io.LimitReader(io.NewSectionReader(f, 0, maxRecord), maxRecord))
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

// recordFile is a file that holds a record.
func recordFile(record []byte) (*os.File, error) {
	f, err := machine.MemoryFile("holdfast-record")
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(record, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
