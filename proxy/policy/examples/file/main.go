// Command file is a policy that reads who may do what from a file: an example to
// start from, and enough for a few people on one machine.
//
//	HOLDFAST_POLICY_CONFIG=/etc/holdfast/policy.json proxy serve --policy ./file
//
// policy.example.json shows the file. It is read again when it has changed.
// Whoever is let in keeps the roles of that moment until the next hello.
//
// Invariant: a file with a mistake in it is never used, not even in part. At the
// start it ends the program, and later the last good one stays.
//
// Not here: how a question comes to it (package policy).
package main

import (
	"os"

	"github.com/hashicorp/go-hclog"

	"holdfast/proxy/policy"
)

const configVariable = "HOLDFAST_POLICY_CONFIG"

func main() {
	// Made before Serve, which puts other files in the place of stdout and stderr.
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: os.Stderr, JSONFormat: true})
	path := os.Getenv(configVariable)
	if path == "" {
		log.Error("no policy: " + configVariable + " does not name its file")
		os.Exit(1)
	}
	s, err := open(path, log)
	if err != nil {
		log.Error("no policy", "error", err)
		os.Exit(1)
	}
	policy.Serve(&filePolicy{s, log})
}
