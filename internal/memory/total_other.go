//go:build !linux && !darwin

package memory

// Total returns the machine's memory in bytes, and 0 if it is not known.
func Total() int64 { return 0 }
