#!/usr/bin/env bash
# Makes policy_pb2.py of policy.proto anew. It needs protoc 3.21; Python's
# protobuf may be that or newer.
set -euo pipefail
cd "$(dirname "$0")"
protoc -I ../../policypb --python_out=. policy.proto
