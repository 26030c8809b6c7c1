package policypb

import (
	"path/filepath"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
)

// The generated Go code has the descriptor of the present policy.proto.
func TestGenerated(t *testing.T) {
	const name = "proxy/policy/policypb/policy.proto"
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{filepath.Join("..", "..", "..")}}}
	files, err := compiler.Compile(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	want := protodesc.ToFileDescriptorProto(files.FindFileByPath(name))
	got := protodesc.ToFileDescriptorProto(File_proxy_policy_policypb_policy_proto)
	if !proto.Equal(got, want) {
		t.Errorf("got %v, want %v: generate.sh makes them anew", got, want)
	}
}
