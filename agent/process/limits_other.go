//go:build unix && !linux

package process

// On systems other than Linux, what descendants take is not known.
func preferForOOM(int) {}

func riseAbove() {}

func usageBelow(int, int) usage      { return usage{} }
func proportionalSetBelow(int) int64 { return 0 }
