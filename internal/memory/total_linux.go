package memory

import "syscall"

// Total returns the machine's memory in bytes, and 0 if it is not known.
func Total() int64 {
	var s syscall.Sysinfo_t
	if syscall.Sysinfo(&s) != nil {
		return 0
	}
	return int64(s.Totalram) * int64(s.Unit)
}
