#!/usr/bin/env bash
# Makes what Go needs of policy.proto anew. It needs protoc 3.21 and Go; its
# plugins are of the versions named here, so that the same text comes out
# everywhere.
set -euo pipefail
cd "$(dirname "$0")/../../.." # names in the descriptor are relative to the module

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOBIN=$bin go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN=$bin go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2

PATH=$bin:$PATH protoc -I . \
	--go_out=. --go_opt=paths=source_relative \
	--go-grpc_out=. --go-grpc_opt=paths=source_relative \
	proxy/policy/policypb/policy.proto
