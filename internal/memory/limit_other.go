//go:build !linux

package memory

// containerLimit returns 0: only Linux has control groups.
func containerLimit() int64 { return 0 }
