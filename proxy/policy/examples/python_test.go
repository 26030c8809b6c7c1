package examples

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"holdfast/proxy/policy"
	"holdfast/proxy/policy/policypb"
)

// An error in a copy of the Python example fails only the question in which it occurs.
func TestPythonFails(t *testing.T) {
	pythonExample(t)
	python, err := filepath.Abs("python")
	if err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
	command := filepath.Join(dir, "policy")
	text := fmt.Sprintf(`#!/usr/bin/python3
import sys
sys.path.insert(0, %q)
import plugin
import policy_pb2 as pb

class Policy:
    def authenticate(self, q):
        raise KeyError("no such key")
    def resolve_task(self, q):
        return pb.ResolveTaskResponse()
    def authorize(self, q):
        raise plugin.Refused("unauthorized", "of another question")
    def observe(self, q):
        return None

plugin.serve(Policy())
`, python)
	if err := os.WriteFile(command, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	p := start(t, command, dir, "")
	for range 2 {
		_, err1 := p.Authenticate(t.Context(), policy.Credentials{})
		_, err2 := p.ResolveTask(t.Context(), policy.TaskRequest{})
		for i, err := range []error{err1, err2, p.Authorize(t.Context(), policy.Access{}), p.Observe(t.Context(), policy.Event{})} {
			if no := (*policy.Refusal)(nil); (err == nil) != (i == 1) || errors.As(err, &no) {
				t.Errorf("question %d: got %v, want an error that is no refusal", i, err)
			}
		}
		if err1 == nil || !strings.Contains(err1.Error(), "no such key") {
			t.Errorf("got %v, want the reason", err1)
		}
	}
}

// Its messages are those of policy.proto.
func TestPythonMessages(t *testing.T) {
	pythonExample(t)
	cmd := exec.Command("/usr/bin/python3", "-B", "-c", "import sys, policy_pb2; sys.stdout.buffer.write(policy_pb2.DESCRIPTOR.serialized_pb)")
	cmd.Dir = "python"
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var got descriptorpb.FileDescriptorProto
	if err := proto.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	want := protodesc.ToFileDescriptorProto(policypb.File_proxy_policy_policypb_policy_proto)
	want.Name = got.Name // the names are the paths of the files, which differ
	for _, m := range want.MessageType {
		for _, f := range append(m.Field, nested(m)...) {
			f.JsonName = nil // Python's descriptor has no JSON names
		}
	}
	if !proto.Equal(&got, want) {
		t.Errorf("got %v, want %v: python/generate.sh makes them anew", &got, want)
	}
}

func nested(m *descriptorpb.DescriptorProto) (fields []*descriptorpb.FieldDescriptorProto) {
	for _, n := range m.NestedType {
		fields = append(fields, n.Field...)
	}
	return fields
}
