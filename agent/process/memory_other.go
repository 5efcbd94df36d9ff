//go:build unix && !linux

package process

// Elsewhere than on Linux nothing is known of what descendants take.
func preferForOOM(int) {}

func resident(int, func(string) int64) int64 { return 0 }

func residentSet(string) int64     { return 0 }
func proportionalSet(string) int64 { return 0 }
