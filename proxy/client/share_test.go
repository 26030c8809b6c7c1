package client

import (
	"testing"

	"holdfast/protocol"
)

// A client that has entered a host through a gate gets no link, and asks for none.
func TestShareThroughGate(t *testing.T) {
	t.Parallel()
	c := &Client{o: Options{Gate: &GateOptions{Host: "red"}}}
	if url, _, err := c.Share(t.Context(), "s", 0); protocol.CodeOf(err) != protocol.CodeUnsupported || url != "" {
		t.Errorf("the link is %q, %v", url, err)
	}
}
