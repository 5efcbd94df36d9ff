package memory

import "golang.org/x/sys/unix"

// Total returns the machine's memory in bytes, and 0 if it is not known.
func Total() int64 {
	bytes, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(bytes)
}
