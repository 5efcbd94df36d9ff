//go:build unix && !linux

package process

// On systems other than Linux, the memory of descendants is not known.
func preferForOOM(int) {}

func resident(int, func(string) int64) int64 { return 0 }

func residentSet(string) int64     { return 0 }
func proportionalSet(string) int64 { return 0 }
