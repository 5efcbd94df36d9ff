package memory_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model/engine/native/memory"
)

func TestNumbersAreZeroAndWritable(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 1000, 1<<18 + 1, 3 << 20} {
		f := memory.New(n)
		data := f.Data()
		require.Len(t, data, n)
		for i, x := range data {
			require.Zero(t, x)
			data[i] = float32(i)
		}
		f.Free()
		require.Empty(t, f.Data())
		f.Free()
	}
	var none *memory.Floats
	none.Free()
}

func TestLargeArraysAreNotOnTheHeap(t *testing.T) {
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("no mapping here")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f := memory.New(64 << 20)
	defer f.Free()
	runtime.ReadMemStats(&after)
	require.Less(t, after.HeapAlloc, before.HeapAlloc+32<<20)
}
