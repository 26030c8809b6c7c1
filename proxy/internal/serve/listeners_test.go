package serve

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"holdfast/shared/config"
	"holdfast/shared/testkit"
)

// After a start the page has the same address as before, unless another one is configured.
func TestListenAgain(t *testing.T) {
	before, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
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
				testkit.Must(t, os.WriteFile(file, []byte(tt.file), 0o600))
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

// A proxy that could not serve at the address of the settings must be told apart from one that could.
func TestTryWeb(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer func() { _ = taken.Close() }()
	inUse := taken.Addr().String()
	for _, tt := range []struct {
		name, proxy, web string
		mustBeFree       bool
		want             string // a part of the error
	}{
		{"none", config.DefaultProxy, "", true, ""},
		{"any port", config.DefaultProxy, "localhost:0", true, ""},
		{"all addresses", config.DefaultProxy, "0.0.0.0:7681", false, "0.0.0.0:7681 is not a loopback address"},
		{"no host", config.DefaultProxy, ":7681", false, ":7681 is not a loopback address"},
		{"no port", config.DefaultProxy, "127.0.0.1", false, "missing port"},
		{"port too large", config.DefaultProxy, "127.0.0.1:99999", false, "invalid port"},
		{"in use", config.DefaultProxy, inUse, true, "in use"},
		{"in use by the proxy that serves", config.DefaultProxy, inUse, false, ""},
		{"of another proxy", "other", "0.0.0.0:7681", true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := TryWeb(tt.proxy, config.Config{Web: tt.web}, tt.mustBeFree)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, and must contain %q", err, tt.want)
			}
		})
	}
}
