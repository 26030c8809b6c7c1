package handoff

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"holdfast/shared/socket"
)

// A Conn is a client's connection, as it is given to another proxy.
type Conn struct {
	Record []byte // what apiserver or web notes of it
	File   *os.File
}

// AtOnce is how many connections one message gives: two files each, of which it
// carries 100 at most.
const AtOnce = socket.MaxFiles / filesOfConn

const (
	filesOfConn = 2         // the connection, and a file with its record
	maxRecord   = 160 << 20 // 256 attachments with their windows, and a frame of each kind
	groupConn   = "conn"
)

// give passes connections on, and returns when they are the other's.
func give(conn *net.UnixConn, conns []Conn) error {
	var groups []Group
	var files, records []*os.File
	defer func() { _ = closeAll(records) }()
	for _, c := range conns {
		f, err := recordFile(c.Record)
		if err != nil {
			return fmt.Errorf("record of a connection: %w", err)
		}
		records = append(records, f)
		files = append(files, c.File, f)
		groups = append(groups, Group{Name: groupConn, Files: filesOfConn})
	}
	if err := send(conn, message{Do: "conns", Groups: groups}, files); err != nil {
		return err
	}
	_, err := hear(conn, "started")
	return err
}

// taken reads what came with a message that gives connections. The files are its
// own.
func taken(groups []Group, files []*os.File) (conns []Conn, err error) {
	for i, g := range groups {
		if g.Name != groupConn || g.Files != filesOfConn {
			return nil, errors.Join(fmt.Errorf("%d files of %.40q", g.Files, g.Name), closeAll(files))
		}
		f := files[i*filesOfConn+1]
		record, err := io.ReadAll(io.LimitReader(io.NewSectionReader(f, 0, maxRecord), maxRecord))
		if err != nil {
			return nil, errors.Join(err, closeAll(files))
		}
		conns = append(conns, Conn{Record: record, File: files[i*filesOfConn]})
	}
	for i := range groups {
		err = errors.Join(err, files[i*filesOfConn+1].Close())
	}
	return conns, err
}

// fill writes a record into a file that has no name.
func fill(f *os.File, record []byte) (*os.File, error) {
	if _, err := f.WriteAt(record, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
