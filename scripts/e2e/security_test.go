package e2e

func stranger(args []string) error { return nil }
