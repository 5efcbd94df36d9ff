//go:build unix && !linux

package process

// On systems other than Linux, what descendants take is not known.
func preferForOOM(int) {}

func sumOver(int, func(string) int64) int64 { return 0 }

func procOf(int) string  { return "" }
func children(int) []int { return nil }

func riseAbove() {}

func residentSet(string) int64     { return 0 }
func proportionalSet(string) int64 { return 0 }
func threads(string) int           { return 0 }
func processorTime(string) int64   { return 0 }
