package gate

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/frame"
)

func TestEntry(t *testing.T) {
	digits := strings.Repeat("0f", 32)
	for _, addresses := range [][]string{{"[::1]:7684"}, {"a:1", "b.example:2", "[::1]:3"}} {
		good := Entry{ForClients, addresses, digits, digits}
		if got, err := ParseEntry(ForClients, good.String()+"\n"); err != nil || !reflect.DeepEqual(got, good) {
			t.Errorf("got %+v, %v, want %+v", got, err, good)
		}
	}
	open := Entry{ForClients, []string{"a:1"}, digits, ""}
	if got, err := ParseEntry(ForClients, open.String()); err != nil || !strings.HasSuffix(open.String(), "/none") || !reflect.DeepEqual(got, open) {
		t.Errorf("an entry without a token: %+v, %v", got, err)
	}
	if _, err := ParseEntry(ForHosts, strings.Replace(open.String(), ForClients, ForHosts, 1)); err == nil {
		t.Error("ParseEntry accepts a text for hosts without a secret")
	}
	for _, tt := range []struct{ name, text, says string }{
		{"empty", "", "has not the form"},
		{"of another kind", "holdfast-join/h:1/" + digits + "/" + digits, "holdfast-client is required"},
		{"without a port", "holdfast-client/h/" + digits + "/" + digits, "HOST:PORT"},
		{"without a host", "holdfast-client/:1/" + digits + "/" + digits, "HOST:PORT"},
		{"an empty address", "holdfast-client/h:1,/" + digits + "/" + digits, "HOST:PORT"},
		{"too many addresses", "holdfast-client/h:1" + strings.Repeat(",h:1", MaxGates) + "/" + digits + "/" + digits, "at most 16"},
		{"a long address", "holdfast-client/" + strings.Repeat("h", MaxAddress) + ":1/" + digits + "/" + digits, "HOST:PORT"},
		{"short fingerprint", "holdfast-client/h:1/0f/" + digits, "64 hexadecimal digits"},
		{"short secret", "holdfast-client/h:1/" + digits + "/beef", "64 hexadecimal digits"},
		{"capitals", "holdfast-client/h:1/" + digits + "/" + strings.ToUpper(digits), "64 hexadecimal digits"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseEntry(ForClients, tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %q", err, tt.says)
			}
			if err != nil && strings.Contains(err.Error(), "beef") {
				t.Errorf("the error contains the secret: %v", err)
			}
		})
	}
}

func TestValidHost(t *testing.T) {
	for name, want := range map[string]bool{
		"build-1.example": true, "a": true, strings.Repeat("a", 64): true, "A_b": true,
		"": false, "-a": false, ".": false, "user@host": false, "a/b": false, "a b": false, "é": false, strings.Repeat("a", 65): false,
	} {
		if got := ValidHost(name); got != want {
			t.Errorf("%q: got %v, want %v", name, got, want)
		}
	}
}

// Read must read its frame and no byte more, because the frames of the api follow.
func TestReadTakesOneFrame(t *testing.T) {
	var wire bytes.Buffer
	for _, m := range []protocol.Message{Enter{Token: "t", Host: "h", Start: true}, Arrive{Ticket: "x"}} {
		if err := Write(&wire, m); err != nil {
			t.Fatal(err)
		}
	}
	wire.WriteString("after")
	for _, want := range []protocol.Message{&Enter{Token: "t", Host: "h", Start: true}, &Arrive{Ticket: "x"}} {
		if got, err := Read(&wire, MaxFirst); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	if wire.String() != "after" {
		t.Errorf("%q is left, want %q", wire.String(), "after")
	}
}

func TestReadRefuses(t *testing.T) {
	refused := frame.Append(nil, frame.Control, []byte(`{"type":"refused","code":"busy","message":"full"}`))
	for _, tt := range []struct {
		name string
		wire []byte
		want error
	}{
		{"a refusal", refused, &Refused{RefusedBusy, "full"}},
		{"a frame above the limit", frame.Append(nil, frame.Control, make([]byte, 1<<17)), protocol.Errorf(protocol.CodeFrameTooLarge, "")},
		{"length zero", make([]byte, 8), protocol.Errorf(protocol.CodeFrameTooLarge, "")},
		{"output", frame.Append(nil, frame.Output, []byte(`{"type":"hosts"}`)), protocol.Errorf(protocol.CodeBadFrame, "")},
		{"an unknown type", frame.Append(nil, frame.Control, []byte(`{"type":"spawn"}`)), protocol.Errorf(protocol.CodeUnsupported, "")},
		{"a torn frame", refused[:9], io.ErrUnexpectedEOF},
		{"nothing", nil, io.EOF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Read(bytes.NewReader(tt.wire), MaxFirst)
			if !errors.Is(err, tt.want) && !reflect.DeepEqual(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// FuzzRead checks that no bytes make Read panic or read beyond its frame.
func FuzzRead(f *testing.F) {
	for _, typ := range Messages.Types() {
		f.Add(frame.Append(nil, frame.Control, []byte(`{"type":"`+typ+`","token":"t","user_token":"u","labels":{"a":"b"},"address":"a:1","gates":["a:1"],"command":"c","id":"i"}`)))
	}
	f.Add([]byte{0, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := bytes.NewReader(wire)
		_, err := Read(r, MaxFirst)
		want, _, _ := frame.NewReader(bytes.NewReader(wire), MaxFirst).Next()
		if err == nil && want != frame.Control {
			t.Errorf("Read accepts a frame of kind %d", want)
		}
		if took := len(wire) - r.Len(); err == nil && took != 4+int(wire[0])<<24+int(wire[1])<<16+int(wire[2])<<8+int(wire[3]) {
			t.Errorf("Read has read %d bytes of a frame that begins with % x", took, wire[:4])
		}
	})
}
