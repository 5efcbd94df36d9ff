package demo

import (
	"runtime"
	"syscall"
)

// peakRSS is the most memory that this process had resident, in bytes.
func peakRSS() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return u.Maxrss // bytes there, kilobytes elsewhere
	}
	return u.Maxrss << 10
}
