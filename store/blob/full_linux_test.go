package blob_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/store/blob"
)

// The child is root in a new user namespace, where it mounts a file system of 256 KiB.
func TestFullDiskIsReportedAndOnceThereIsSpaceAllGoesOn(t *testing.T) {
	t.Parallel()
	c := child(t, "put until full", t.TempDir())
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := c.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || strings.Contains(string(out), noMount) {
		t.Skipf("this machine lets nobody mount: %v %s", err, out)
	}
	require.NoError(t, err, "%s", out)
	require.Equal(t, "ok\n", string(out))
}

const noMount = "can't mount"

func putUntilFull(directory string) int {
	if err := syscall.Mount("tmpfs", directory, "tmpfs", 0, "size=256k"); err != nil {
		fmt.Println(noMount, err)
		return 1
	}
	if err := fill(directory); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ok")
	return 0
}

func fill(directory string) error {
	ctx := context.Background()
	ballast := filepath.Join(directory, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 128<<10), 0o600); err != nil {
		return err
	}
	s, err := blob.Open(filepath.Join(directory, "blobs"))
	if err != nil {
		return err
	}
	small, err := s.Put(ctx, make([]byte, 20_000))
	if err != nil {
		return err
	}
	large := make([]byte, 200_000)
	if _, err := s.Put(ctx, large); !errors.Is(err, blob.ErrFull) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), directory) {
		return fmt.Errorf("a full disk is reported as %w", err)
	}
	left, err := filepath.Glob(filepath.Join(directory, "blobs", ".put-*"))
	if err != nil || len(left) > 0 {
		return fmt.Errorf("remains %v, %w", left, err)
	}
	if _, err := s.Get(ctx, small); err != nil {
		return err
	}
	if err := os.Remove(ballast); err != nil {
		return err
	}
	digest, err := s.Put(ctx, large)
	if err != nil {
		return err
	}
	_, err = s.Get(ctx, digest)
	return err
}
