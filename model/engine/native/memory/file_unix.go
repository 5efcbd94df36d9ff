//go:build linux || darwin

package memory

import (
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MapsFiles reports whether this system supports MapFile.
const MapsFiles = true

// MapFile maps n numbers of a file from byte offset on, read-only: all processes that map
// the file share the system's one copy of it. A write to Data ends the process. offset is
// a multiple of 4. While the numbers are in use, the file may be closed, renamed or
// removed, but it must not be made shorter.
func MapFile(f *os.File, offset, n int) (*Floats, error) {
	stat, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if want := int64(offset) + 4*int64(n); n < 1 || stat.Size() < want {
		return nil, fmt.Errorf("map %s: it has %d bytes, want %d", f.Name(), stat.Size(), want)
	}
	region, err := unix.Mmap(int(f.Fd()), 0, offset+4*n, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	first := (*float32)(unsafe.Pointer(&region[offset]))
	return &Floats{data: unsafe.Slice(first, n), mapped: region}, nil
}

// Free returns how many bytes may still be written to the file system of a directory.
func Free(dir string) (int64, error) {
	var fsys unix.Statfs_t
	if err := unix.Statfs(dir, &fsys); err != nil {
		return 0, fmt.Errorf("look at the free space of %s: %w", dir, err)
	}
	return int64(fsys.Bavail) * int64(fsys.Bsize), nil //nolint:unconvert // its type differs from system to system
}

// lockEvery is the interval at which Lock tries again.
const lockEvery = 20 * time.Millisecond

// Lock takes the lock on an open file. The lock ends when the file is closed or the
// process ends. While another process holds it, Lock waits, but no longer than maxWait.
func Lock(f *os.File, maxWait time.Duration) error {
	for end := time.Now().Add(maxWait); ; time.Sleep(lockEvery) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Now().After(end) {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}
