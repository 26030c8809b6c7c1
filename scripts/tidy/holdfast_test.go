package tidy

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// heavy are packages that would slow down the start of a program.
var heavy = []string{
	"github.com/hashicorp/go-plugin", "github.com/klauspost/compress", "github.com/modelcontextprotocol", "github.com/nats-io",
	"github.com/prometheus", "google.golang.org/grpc", "google.golang.org/protobuf", "filippo.io/age", "net/http",
}

// Users start holdfast for each command, so it must not link packages that only proxy needs.
func TestHoldfast(t *testing.T) {
	out, err := run(filepath.Join("..", ".."), nil, "list", "-deps", "./proxy/holdfast")
	if err != nil {
		t.Fatal(err)
	}
	linked := strings.Fields(string(out))
	if !slices.Contains(linked, "holdfast/proxy/client") {
		t.Fatalf("holdfast links only %q", linked)
	}
	for _, path := range linked {
		for _, h := range heavy {
			if path == h || strings.HasPrefix(path, h+"/") {
				t.Errorf("holdfast links %s; go list -deps ./proxy/holdfast", path)
			}
		}
	}
}
