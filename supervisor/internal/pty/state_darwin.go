package pty

func deviceNumber(n uint64) int32 { return int32(n) }

func openPidfd(int) int { return -1 }
