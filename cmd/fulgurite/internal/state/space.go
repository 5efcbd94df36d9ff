package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
)

// Thresholds for the free space of the directory's file system, in bytes.
const (
	// spaceToStart is the disk space that a stack needs to start and to show anything.
	spaceToStart = 32 << 20
	// spaceLow is the space below which a warning asks to make room. A small run fills it
	// in minutes.
	spaceLow = 16 << 20
	// spaceNone is the space below which the databases can't write any more.
	spaceNone = 1 << 20
)

// spaceEvery is how often a stack looks.
const spaceEvery = time.Second

// space returns the free bytes of the file system where the directory is or will be made.
func (s *Flags) space() (int64, error) { return FreeSpace(s.Dir) }

// FreeSpace returns how many bytes may be written to the file system where path is or
// will be made.
func FreeSpace(path string) (int64, error) {
	for dir := path; ; dir = filepath.Dir(dir) {
		var fsys syscall.Statfs_t
		err := syscall.Statfs(dir, &fsys)
		if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
			continue // it is made at the start
		}
		if err != nil {
			return 0, fmt.Errorf("look at the free space of %s: %w", path, err)
		}
		return int64(fsys.Bavail) * int64(fsys.Bsize), nil //nolint:unconvert // its type differs from system to system
	}
}

// filesLow is the number of further files below which a file system counts as full: each
// version and each rollout makes some.
const filesLow = 64

// noFiles returns a text if the file system of the directory can take hardly any more files,
// although it may have space. It is empty for file systems without such a limit.
func (s *Flags) noFiles() string {
	for dir := s.Dir; ; dir = filepath.Dir(dir) {
		var fsys syscall.Statfs_t
		err := syscall.Statfs(dir, &fsys)
		if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
			continue // it is made at the start
		}
		if err != nil || fsys.Files == 0 || fsys.Ffree >= filesLow {
			return ""
		}
		return fmt.Sprintf("the file system of %s has inodes for %d more files, although %d MB are free", s.Dir, fsys.Ffree, int64(fsys.Bavail)*int64(fsys.Bsize)>>20) //nolint:unconvert // its type differs from system to system
	}
}

// CheckSpace refuses to start where there is hardly any space.
func (s *Flags) CheckSpace() error {
	free, err := s.space()
	switch text := s.noFiles(); {
	case err != nil:
	case free < spaceToStart:
		err = terminal.Usagef("%s: %d MB are free, and at least %d are needed; make room, or choose another --dir", s.Dir, free>>20, spaceToStart>>20)
	case text != "":
		err = terminal.Usagef("%s: remove files, or choose another --dir", text)
	}
	return err
}

// FreeForRun returns how many bytes are free for runs of this directory's stack. known is
// false if commands use another stack, whose disk this process can't see.
func (s *Flags) FreeForRun() (free int64, known bool) {
	if _, err := s.running(); errors.Is(err, ErrNoStack) {
		return 0, false
	}
	free, err := s.space()
	return free, err == nil
}

// SpaceWarning returns a text that says that space is low or used up, and what follows
// from that. It is empty if there is enough space. full is true if nothing can be written
// any more.
func (s *Flags) SpaceWarning() (text string, full bool) {
	free, err := s.space()
	switch files := s.noFiles(); {
	case err == nil && files != "":
		return files + ": runs wait, and go on when files are removed", true
	case err != nil || free >= spaceLow:
		return "", false
	case free >= spaceNone:
		return fmt.Sprintf("only %d MB are free for %s: make room before runs have to wait", free>>20, s.Dir), false
	}
	return fmt.Sprintf("the disk of %s is full: runs wait, and go on when there is space again", s.Dir), true
}

// WatchSpace prints a message when space gets low, when it is used up, and when there is
// enough again, each once. It returns when ctx ends.
func (s *Flags) WatchSpace(ctx context.Context, t *terminal.Terminal) {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	const fine, low, none = 0, 1, 2
	for last := fine; ; {
		now := fine
		text, full := s.SpaceWarning()
		switch {
		case full:
			now = none
		case text != "":
			now = low
		}
		switch {
		case now > last:
			fmt.Fprintln(t.Err, text)
			last = now
		case now == fine && last > fine:
			fmt.Fprintf(t.Err, "there is space again for %s: runs go on\n", s.Dir)
			last = now
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
