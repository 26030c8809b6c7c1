package archive

import (
	"fmt"
	"strconv"
	"strings"

	"holdfast/protocol"
	"holdfast/protocol/gate"
)

const (
	// digits is the length of an offset in the name of a segment, so that names sort by offset.
	digits    = 19
	suffix    = ".zst"
	sealed    = ".zst.age" // the suffix of a segment that is encrypted
	indexName = "index.json"
)

// A Name names a recording: one life of a session on a host.
type Name struct {
	Host     string
	ID       protocol.SessionID
	Instance protocol.Instance
}

// ParseName parses HOST/ID@INSTANCE.
func ParseName(text string) (Name, error) {
	host, life, _ := strings.Cut(text, "/")
	id, instance, _ := strings.Cut(life, "@")
	n := Name{host, protocol.SessionID(id), protocol.Instance(instance)}
	if !n.isValid() {
		return Name{}, fmt.Errorf("the name of a recording has the form HOST/ID@INSTANCE, but it is %.200q", text)
	}
	return n, nil
}

// HostName returns the name of a host as it may stand in the name of a recording: other characters than those of
// gate.ValidHost become hyphens.
func HostName(name string) string {
	name = strings.Map(func(r rune) rune {
		if gate.ValidHost("a" + string(r)) {
			return r
		}
		return '-'
	}, name)
	if name = name[:min(len(name), 64)]; !gate.ValidHost(name) {
		return "localhost"
	}
	return name
}

func (n Name) isValid() bool {
	return gate.ValidHost(n.Host) && protocol.ValidID(string(n.ID)) && protocol.ValidID(string(n.Instance))
}

// String returns HOST/ID@INSTANCE.
func (n Name) String() string { return n.Host + "/" + string(n.ID) + "@" + string(n.Instance) }

func (n Name) prefix() string { return n.String() + "/" }

func (n Name) indexKey() string { return n.prefix() + indexName }

// segmentKey returns the key of the segment of output from one offset to another.
func (n Name) segmentKey(start, end uint64, isSealed bool) string {
	last := suffix
	if isSealed {
		last = sealed
	}
	return fmt.Sprintf("%s%0*d-%0*d%s", n.prefix(), digits, start, digits, end, last)
}

// A key is the parsed key of an object.
type key struct {
	name       Name
	isIndex    bool
	start, end uint64 // of a segment
	isSealed   bool
}

// parseKey parses the key of an object, and reports whether a recorder has made it.
func parseKey(text string) (k key, ok bool) {
	slash := strings.LastIndexByte(text, '/')
	if slash < 0 {
		return k, false
	}
	name, err := ParseName(text[:slash])
	if err != nil {
		return k, false
	}
	k.name = name
	file := text[slash+1:]
	if k.isIndex = file == indexName; k.isIndex {
		return k, true
	}
	offsets, isSealed := strings.CutSuffix(file, sealed)
	if k.isSealed = isSealed; !isSealed {
		if offsets, ok = strings.CutSuffix(file, suffix); !ok {
			return k, false
		}
	}
	start, end, _ := strings.Cut(offsets, "-")
	var startOK, endOK bool
	k.start, startOK = parseOffset(start)
	k.end, endOK = parseOffset(end)
	return k, startOK && endOK && k.start <= k.end
}

func parseOffset(text string) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, 63)
	return n, err == nil && len(text) == digits
}
