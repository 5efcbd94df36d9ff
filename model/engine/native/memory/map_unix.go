//go:build unix

package memory

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapFloats returns nil if the system refuses. The caller then tries the heap, which may
// have room or reports the cause.
func mapFloats(n int) *Floats {
	region, err := unix.Mmap(-1, 0, 4*n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	preferHugePages(region)
	return &Floats{data: unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(region))), n), mapped: region}
}

func unmap(region []byte) { _ = unix.Munmap(region) }
