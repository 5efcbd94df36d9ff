//go:build !linux

package memory

// containerLimit is 0: only Linux has control groups.
func containerLimit() int64 { return 0 }
