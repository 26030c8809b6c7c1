package cli

import (
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/api"
)

// An empty part of the past must be refused with the name of the flag that was given.
func TestStretch(t *testing.T) {
	at := func(offset uint64) *protocol.Moment { return &protocol.Moment{Offset: &offset} }
	c := proxyOf(t, func(_ string, id protocol.Request) protocol.Message {
		return api.PastContent{Request: id, PastContent: protocol.PastContent{Start: 10, End: 20}}
	})
	for _, tt := range []struct {
		stretch
		from, until uint64
		fails       string
	}{
		{stretch{}, 10, 20, ""},
		{stretch{at(20), nil}, 20, 20, ""},
		{stretch{at(12), at(15)}, 12, 15, ""},
		{stretch{at(21), nil}, 0, 0, "--from is behind the output, which ends at offset 20"},
		{stretch{nil, at(9)}, 0, 0, "--until is before the output that is kept, which begins at offset 10"},
		{stretch{at(15), at(12)}, 0, 0, "--until is a moment before --from"},
	} {
		from, until, err := tt.offsets(t.Context(), c, "s")
		text := ""
		if err != nil {
			text = err.Error()
		}
		if from != tt.from || until != tt.until || !strings.HasSuffix(text, tt.fails) || (err != nil) != (tt.fails != "") {
			t.Errorf("%d to %d, %q; want %d to %d, %q", from, until, text, tt.from, tt.until, tt.fails)
		}
	}
}
