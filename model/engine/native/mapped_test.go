package native_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
)

// mappedSize returns an architecture that is large enough for a base in any precision to
// be kept in a file.
func mappedSize() model.Architecture {
	return model.Architecture{
		VocabSize: 2048, HiddenSize: 256, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 48, FeedForward: 320,
		MaxPositions: 64, RopeTheta: 10000, NormEpsilon: 1e-6, QKVBias: true,
	}
}

// results returns the bits of scores, an update and a reply, computed by a new engine.
func results(t *testing.T, c model.Checkpoint, batch []model.Row) (all [][]uint32) {
	t.Helper()
	e := engine("", 2)
	tr := trainerOf(t, e, c)
	_, err := tr.Update(t.Context(), batch, likelihood(100), adamW())
	require.NoError(t, err)
	scores, _ := score(t, tr, batch)
	for _, s := range scores {
		all = append(all, bits(s))
	}
	d, err := e.NewDecoder(c)
	require.NoError(t, err)
	defer d.Close()
	reply, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{5, 7, 11}, MaxTokens: 9, Temperature: 1, Seed: 3})
	require.NoError(t, err)
	return append(all, bits(reply.Logprobs))
}

// A base gives the same bits from memory, from the file that was just written, and from
// the file that another process left. In the last case the weights are not read at all.
func TestAMappedBaseHasTheSameBits(t *testing.T) {
	t.Parallel()
	a := mappedSize()
	batch := rows(a, 3, 20, 2)
	for _, p := range model.Precisions() {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			c := adapted(a, lora(), 1)
			c.Adapter.BasePrecision = p
			want := results(t, c, batch)

			dir, reads, each := t.TempDir(), 0, c.Adapter.Base.Each
			c.Adapter.Base.Beside = func(name string) string { return filepath.Join(dir, name) }
			c.Adapter.Base.Each = func(use func(model.Tensor) error) error { reads++; return each(use) }
			for range 2 {
				require.Equal(t, want, results(t, c, batch))
			}
			files, err := filepath.Glob(filepath.Join(dir, "native-*[0-9a-f]"))
			require.NoError(t, err)
			if native.PackedBytes(a, p) == 0 {
				require.Empty(t, files)
				return // this system maps no files
			}
			require.Equal(t, 1, reads)
			require.Len(t, files, 1)
			stat, err := os.Stat(files[0])
			require.NoError(t, err)
			require.Equal(t, native.PackedBytes(a, p), stat.Size())
		})
	}
}

func TestASmallBaseHasNoFile(t *testing.T) {
	t.Parallel()
	a := architectures()["everything"]
	c, dir := adapted(a, lora(), 1), t.TempDir()
	c.Adapter.Base.Beside = func(name string) string { return filepath.Join(dir, name) }
	trainerOf(t, engine("", 1), c)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files)
	require.Zero(t, native.PackedBytes(a, model.F32))
}
