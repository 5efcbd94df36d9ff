package devserver

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrInUse says that another server has the directory.
var ErrInUse = errors.New("directory is in use by another server")

// ErrLost says that the directory was removed, or replaced by another one, while the
// server had it. What the server writes from then on can't be found any more.
var ErrLost = errors.New("directory was removed or replaced while the server had it")

const lockFile = "temporal.lock"

// lock takes dir for this server. The lock is the kernel's and ends with the
// returned file or with the process; the number in the file is for people.
func lock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if err := exclude(f); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fmt.Errorf("%w: process %s has it", ErrInUse, holder(f))
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// probeTime is how long the lock may be held by a process that only asks whether another
// one has it (Holder).
const probeTime = 200 * time.Millisecond

// exclude takes the kernel's lock.
func exclude(f *os.File) error {
	for deadline := time.Now().Add(probeTime); ; time.Sleep(probeTime / 20) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(deadline) {
			return err
		}
	}
}

// Holder returns the process id of the server that has a directory. It returns "" if none
// has it, and "unknown" in the instant before the server has written its id.
func Holder(dir string) (_ string, err error) {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }() // this also releases the lock
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return holder(f), nil
	}
	return "", err
}

// CheckDirectory returns nil while the directory is the one that this server has locked,
// and ErrLost once it was removed or replaced. Call it only before Stop. For a server
// without a directory it always returns nil.
func (s *Server) CheckDirectory() error {
	if s.lock == nil {
		return nil
	}
	locked, err := s.lock.Stat()
	if err != nil {
		return fmt.Errorf("look at the lock of %s: %w", s.options.Dir, err)
	}
	there, err := os.Stat(filepath.Join(s.options.Dir, lockFile))
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !os.SameFile(locked, there):
		return fmt.Errorf("%s: %w", s.options.Dir, ErrLost)
	case err != nil:
		return fmt.Errorf("look at the lock of %s: %w", s.options.Dir, err)
	}
	return nil
}

// holder reads who has the lock. It can be empty for the instant between the
// holder's locking and its writing.
func holder(f *os.File) string {
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if pid := strings.TrimSpace(string(text)); err == nil && pid != "" {
		return pid
	}
	return "unknown"
}
