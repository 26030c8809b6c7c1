// Package policypb is the Go code that protoc generates from policy.proto.
//
// Invariant: only this file and policy.proto are written by hand.
//
// Not here: the meaning of the questions (package policy).
package policypb

//go:generate ./generate.sh
