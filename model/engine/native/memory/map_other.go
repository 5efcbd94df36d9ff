//go:build !unix

package memory

func mapFloats(int) *Floats { return nil }

func unmap([]byte) {}
