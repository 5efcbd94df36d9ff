//go:build linux || darwin

package packed_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/memory"
	"github.com/fulgurite/fulgurite/model/engine/native/packed"
)

// opened returns the numbers of k, and requires that they are right.
func opened(t *testing.T, path string, k packed.Key, times *int) *memory.Floats {
	t.Helper()
	held, err := packed.Files{}.Open(path, k, counted(times))
	require.NoError(t, err)
	t.Cleanup(held.Free)
	require.Equal(t, drawn(k.Numbers), held.Data())
	return held
}

// mapped reports whether this process maps the file, shared and read-only.
func mapped(t *testing.T, path string) bool {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip("the system does not say what is mapped")
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), path) && strings.Contains(line, "r--s") {
			return true
		}
	}
	return false
}

func TestAFileIsMadeOnceAndMapped(t *testing.T) {
	t.Parallel()
	path, times := filepath.Join(t.TempDir(), "base"), 0
	for range 3 {
		opened(t, path, key(numbers), &times)
	}
	require.Equal(t, 1, times)
	stat, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, packed.Size(numbers), stat.Size())
	require.NoFileExists(t, path+".new")
	if runtime.GOOS == "linux" {
		require.True(t, mapped(t, path))
	}
}

func TestNumbersStayWhenTheFileGoes(t *testing.T) {
	t.Parallel()
	path, times := filepath.Join(t.TempDir(), "base"), 0
	held := opened(t, path, key(numbers), &times)
	require.NoError(t, os.Remove(path))
	require.Equal(t, drawn(numbers), held.Data())
}

func TestAFileThatIsNotOfTheKeyOrDamagedIsMadeAnew(t *testing.T) {
	t.Parallel()
	other := key(numbers)
	for name, spoil := range map[string]func(t *testing.T, path string){
		"empty":   func(t *testing.T, path string) { truncate(t, path, 0) },
		"short":   func(t *testing.T, path string) { truncate(t, path, packed.Size(numbers)-1) },
		"long":    func(t *testing.T, path string) { truncate(t, path, packed.Size(numbers)+4) },
		"header":  func(t *testing.T, path string) { flip(t, path, 3) },
		"first":   func(t *testing.T, path string) { flip(t, path, packed.Size(0)) },
		"last":    func(t *testing.T, path string) { flip(t, path, packed.Size(numbers)-1) },
		"base":    func(t *testing.T, path string) { k := other; k.Base = "sha256:c"; replace(t, path, k) },
		"layout":  func(t *testing.T, path string) { k := other; k.Layout = "test of 64 columns"; replace(t, path, k) },
		"numbers": func(t *testing.T, path string) { replace(t, path, key(numbers+1)) },
		"precision": func(t *testing.T, path string) {
			k := other
			k.Precision = model.BF16
			replace(t, path, k)
		},
		"architecture": func(t *testing.T, path string) {
			k := other
			k.Architecture.HeadDim++
			replace(t, path, k)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, times := filepath.Join(t.TempDir(), "base"), 0
			opened(t, path, key(numbers), &times)
			spoil(t, path)
			opened(t, path, key(numbers), &times)
			require.Equal(t, 2, times)
			opened(t, path, key(numbers), &times)
			require.Equal(t, 2, times, "it is whole again")
		})
	}
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	// Write a new file of that size, so that the mapped one is not cut.
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	text = append(text, make([]byte, 16)...)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, text[:size], 0o600))
}

func flip(t *testing.T, path string, at int64) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	text[at] ^= 1
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.WriteFile(path, text, 0o600))
}

// replace puts the file of another key at path.
func replace(t *testing.T, path string, k packed.Key) {
	t.Helper()
	from, times := filepath.Join(t.TempDir(), "other"), 0
	opened(t, from, k, &times)
	require.NoError(t, os.Rename(from, path))
}

func TestWhatAKilledProcessLeftIsReplaced(t *testing.T) {
	t.Parallel()
	whole, times := filepath.Join(t.TempDir(), "whole"), 0
	opened(t, whole, key(numbers), &times)
	text, err := os.ReadFile(whole)
	require.NoError(t, err)
	for _, n := range []int{0, 100, int(packed.Size(0)), len(text) / 2, len(text)} {
		path := filepath.Join(t.TempDir(), "base")
		require.NoError(t, os.WriteFile(path+".lock", nil, 0o600))
		require.NoError(t, os.WriteFile(path+".new", text[:n], 0o444))
		times = 0
		opened(t, path, key(numbers), &times)
		require.Equal(t, 1, times, "a file without its name is not believed")
		require.NoFileExists(t, path+".new")
		opened(t, path, key(numbers), &times)
		require.Equal(t, 1, times)
	}
}

func TestTheLockOfAKilledProcessIsFree(t *testing.T) {
	t.Parallel()
	path, times := filepath.Join(t.TempDir(), "base"), 0
	killed := exec.Command(os.Args[0])
	killed.Env = append(os.Environ(), killedVariable+"="+path)
	out, err := killed.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, string(out))
	require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), string(out))
	require.FileExists(t, path+".lock")
	require.NoFileExists(t, path)
	opened(t, path, key(numbers), &times)
	require.FileExists(t, path)
}

func TestManyAtOnceMakeOneFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "base")
	var times atomic.Int32
	var g errgroup.Group
	for range 8 {
		g.Go(func() error {
			held, err := packed.Files{Patience: time.Hour}.Open(path, key(numbers), func(to []float32) error {
				times.Add(1)
				copy(to, drawn(len(to)))
				return nil
			})
			if err != nil {
				return err
			}
			defer held.Free()
			if held.Data()[numbers-1] != drawn(numbers)[numbers-1] {
				return errors.New("other numbers")
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.EqualValues(t, 1, times.Load())
}

// Another holder keeps the lock and does not continue: Open does not wait for it for
// ever, and writes nothing without the lock.
func TestWhereNoFileCanBeMadeNumbersAreInMemory(t *testing.T) {
	t.Parallel()
	stopped := filepath.Join(t.TempDir(), "base")
	lock, err := os.Create(stopped + ".lock")
	require.NoError(t, err)
	t.Cleanup(func() { _ = lock.Close() })
	require.NoError(t, memory.Lock(lock, 0))
	for _, path := range []string{"", filepath.Join(t.TempDir(), "absent", "base"), stopped} {
		times := 0
		held, err := packed.Files{Patience: time.Nanosecond}.Open(path, key(numbers), counted(&times))
		require.NoError(t, err)
		require.Equal(t, drawn(numbers), held.Data())
		held.Free()
		require.Equal(t, 1, times)
		require.NoFileExists(t, path)
	}
	require.NoFileExists(t, stopped+".new")

	// Another kind of failure comes after the numbers are made: the file can't be
	// renamed.
	path, times := filepath.Join(t.TempDir(), "base"), 0
	require.NoError(t, os.MkdirAll(filepath.Join(path, "in the way"), 0o700))
	opened(t, path, key(numbers), &times)
	require.Equal(t, 1, times)
	require.NoFileExists(t, path+".new")
}

func TestNumbersThatCannotBeMadeAreAnError(t *testing.T) {
	t.Parallel()
	wrong, path := errors.New("a damaged base"), filepath.Join(t.TempDir(), "base")
	for _, at := range []string{"", path} {
		_, err := packed.Files{}.Open(at, key(numbers), func([]float32) error { return wrong })
		require.ErrorIs(t, err, wrong)
	}
	require.NoFileExists(t, path)
	times := 0
	opened(t, path, key(numbers), &times)
}

func TestKeysThatDifferHaveFilesOfTheirOwn(t *testing.T) {
	t.Parallel()
	names := map[string]bool{key(1).Name(): true}
	for _, change := range []func(*packed.Key){
		func(k *packed.Key) { k.Base = "sha256:c" },
		func(k *packed.Key) { k.Precision = model.Q8_0 },
		func(k *packed.Key) { k.Layout = "another" },
		func(k *packed.Key) { k.Numbers = 2 },
		func(k *packed.Key) { k.Architecture.Tied = true },
	} {
		k := key(1)
		change(&k)
		require.False(t, names[k.Name()])
		names[k.Name()] = true
	}
	require.True(t, names[key(1).Name()], "a name does not change")
}
