package machine

import (
	"os"
	"strings"
)

// Boot returns a text that identifies the present boot of this machine, and the mount namespace of this process: two processes
// with the same text see the same files. It returns "" if the system does not tell.
func Boot() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, nsErr := os.Readlink("/proc/self/ns/mnt")
	if err != nil || nsErr != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + namespace
}
