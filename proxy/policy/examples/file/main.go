// Command file is a policy that reads users, tasks and permissions from a file. It is an example
// to start from, and sufficient for a few people on one machine.
//
//	HOLDFAST_POLICY_CONFIG=/etc/holdfast/policy.json proxy serve --policy ./file
//
// policy.example.json shows the file's format. The file is read again after a change. A connected
// client keeps its roles until its next hello.
//
// Invariant: a file with a mistake is never used, not even in part. A mistake at the start ends
// the program. After a later mistake the last valid file remains in force.
//
// Not here: the transport of questions (package policy).
package main

import (
	"os"

	"github.com/hashicorp/go-hclog"

	"holdfast/proxy/policy"
)

const configVariable = "HOLDFAST_POLICY_CONFIG"

func main() {
	// The logger must exist before Serve, which replaces os.Stdout and os.Stderr.
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: os.Stderr, JSONFormat: true})
	path := os.Getenv(configVariable)
	if path == "" {
		log.Error("no policy: " + configVariable + " must name the policy's file")
		os.Exit(1)
	}
	s, err := open(path, log)
	if err != nil {
		log.Error("no policy", "error", err)
		os.Exit(1)
	}
	policy.Serve(&filePolicy{s, log})
}
