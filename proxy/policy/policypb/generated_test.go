package policypb

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
)

// What is here was made of policy.proto as it is.
func TestGenerated(t *testing.T) {
	if _, err := exec.LookPath("protoc"); err != nil {
		t.Skip("there is no protoc")
	}
	root := filepath.Join("..", "..", "..")
	const name = "proxy/policy/policypb/policy.proto"
	out := filepath.Join(t.TempDir(), "set")
	if said, err := exec.Command("protoc", "-I", root, "--descriptor_set_out="+out, filepath.Join(root, name)).CombinedOutput(); err != nil {
		t.Fatalf("protoc: %v %s", err, said)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(text, &set); err != nil {
		t.Fatal(err)
	}
	got := protodesc.ToFileDescriptorProto(File_proxy_policy_policypb_policy_proto)
	if len(set.File) != 1 || !proto.Equal(got, set.File[0]) {
		t.Errorf("got %v, want %v: generate.sh makes them anew", got, set.File)
	}
}
