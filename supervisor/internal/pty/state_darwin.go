package pty

func deviceNumber(n uint64) int32 { return int32(n) }

func openPidfd(int) int { return -1 }

// tiocgsid is TIOCGSID of <sys/ttycom.h>: _IOR('t', 99, int).
const tiocgsid = 0x40047463

func exitOf(int, uint64, int) (Status, bool) { return Status{}, false }

// maxRSSUnit is the unit of ru_maxrss in bytes.
const maxRSSUnit = 1
