package machine

import "golang.org/x/sys/unix"

// Boot returns a text that identifies the present boot of this machine. It returns "" if the system does not tell.
func Boot() string {
	boot, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return boot
}
