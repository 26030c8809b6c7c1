package cli

import (
	"bytes"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/proxy/client"
)

// A child that fails after the time for which it is watched has started, however late the answer comes: its exit record stays.
func TestDetachedExit(t *testing.T) {
	const early = time.Second
	for _, tt := range []struct {
		name  string
		lived time.Duration
		code  int
		fails bool
	}{
		{"it has failed at once", early, 3, true},
		{"it has failed later", early + 1, 3, false},
		{"it has done its work", early, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			isForgotten := false
			c := proxyOf(t, func(request string, id protocol.Request) protocol.Message {
				switch request {
				case "wait":
					now := time.Now()
					return api.Waited{Request: id, Exit: protocol.ExitRecord{ExitCode: tt.code, StartedAt: now.Add(-tt.lived), ExitedAt: now}}
				case "forget":
					isForgotten = true
				}
				return api.OK{Request: id}
			})
			var out bytes.Buffer
			cmd := &cobra.Command{}
			cmd.SetContext(t.Context())
			cmd.SetOut(&out)
			err := newApp(nil).detached(cmd, c, &client.Spawned{SessionID: "s"}, early, early/10)
			if (err != nil) != tt.fails || isForgotten != tt.fails || (out.String() == "s\n") == tt.fails {
				t.Errorf("%v, output %q; the session is forgotten: %v", err, out.String(), isForgotten)
			}
		})
	}
}
