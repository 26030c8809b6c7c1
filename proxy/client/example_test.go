package client_test

import (
	"context"
	"io"
	"log"
	"os"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

// Starts a shell, sends input, and reads the output until the shell exits.
func Example() {
	ctx := context.Background()
	c, err := client.Dial(ctx, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s, err := c.Spawn(ctx, client.SpawnRequest{SpawnSpec: protocol.SpawnSpec{Argv: []string{"/bin/sh"}}})
	if err != nil {
		log.Fatal(err)
	}
	a, err := c.Attach(ctx, s.SessionID, client.AttachOptions{Cols: 80, Rows: 24})
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	if _, err := io.WriteString(a, "echo hello; exit 3\n"); err != nil {
		log.Fatal(err)
	}
	if _, err := io.Copy(os.Stdout, a); err != nil {
		log.Fatal(err)
	}
	log.Printf("it exited with code %d", a.Exit().ExitCode)
}
