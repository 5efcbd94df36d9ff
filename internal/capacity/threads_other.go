//go:build !linux

package capacity

// freeThreads returns 0: limits on threads are only known on Linux.
func freeThreads() int { return 0 }
