//go:build unix && !linux

package process

// Conceal does nothing: elsewhere nothing like it is known to hold.
func Conceal() error { return nil }
