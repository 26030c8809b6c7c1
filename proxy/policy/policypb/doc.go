// Package policypb is policy.proto in Go, as protoc makes it.
//
// Invariant: nothing here is written by hand but this file and policy.proto.
//
// Not here: what the questions mean (package policy).
package policypb

//go:generate ./generate.sh
