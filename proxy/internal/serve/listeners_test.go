package serve

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
)

// After a start the page has the same address as before, unless another one is configured.
func TestListenAgain(t *testing.T) {
	before, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	there := before.Addr().String()
	_ = before.Close()
	for _, tt := range []struct {
		name, asked, file string
		want              string // "" for none, "other" if the address is not available
	}{
		{"not configured", "", there + "\n", there},
		{"any port", "127.0.0.1:0", there, there},
		{"any port of a name", "localhost:0", there, there},
		{"any port of another host", "[::1]:0", there, "other"},
		{"another port", "127.0.0.1:1", there, "other"},
		{"never served", "", "none", ""},
		{"never served, and asked for", "127.0.0.1:0", "none", "other"},
		{"damaged", "", "no address", ""},
		{"damaged, and asked for", "127.0.0.1:0", "no address", "other"},
		{"of another machine", "", "192.0.2.1:80", ""},
		{"empty", "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "proxy.page")
			if tt.file != "none" {
				if err := os.WriteFile(file, []byte(tt.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ls := &listeners{}
			err := ls.listenAgain(tt.asked, file, zerolog.Nop())
			got := "other" // this machine may lack the address
			if err == nil && ls.tcp == nil {
				got = ""
			} else if err == nil && ls.tcp.Addr().String() == there {
				got = there
			}
			ls.closeTCP()
			if got != tt.want {
				t.Errorf("the address is %q (%v), want %q", got, err, tt.want)
			}
		})
	}
}
