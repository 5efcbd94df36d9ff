package checkpoint_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/blob"
)

// state returns a policy after the given number of updates.
func state(updates int) model.Checkpoint {
	a := model.Architecture{
		VocabSize: 12, HiddenSize: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4,
		FeedForward: 8, MaxPositions: 16, RopeTheta: 10000, NormEpsilon: 1e-6,
	}
	c := model.Checkpoint{Architecture: a, Weights: a.Init(1), Updates: updates}
	if updates > 0 {
		c.Mean, c.Variance = a.Init(2), a.Init(3)
	}
	return c
}

func manifest(number int) model.Manifest {
	return model.Manifest{Policy: "main", Number: number, Parent: number - 1, Codec: "compact", Engine: "native", Fingerprint: "f"}
}

// ordered remembers what was put, in order.
type ordered struct {
	*blob.Store
	digests []string
}

func (o *ordered) Put(ctx context.Context, data []byte) (string, error) {
	digest, err := o.Store.Put(ctx, data)
	o.digests = append(o.digests, digest)
	return digest, err
}

func (o *ordered) PutFrom(ctx context.Context, r io.Reader) (string, error) {
	digest, err := o.Store.PutFrom(ctx, r)
	o.digests = append(o.digests, digest)
	return digest, err
}

func blobs(t *testing.T) *ordered {
	t.Helper()
	s, err := blob.Open(t.TempDir())
	require.NoError(t, err)
	return &ordered{Store: s}
}

func TestAStateIsReadAsItWasSaved(t *testing.T) {
	t.Parallel()
	for _, updates := range []int{0, 7} {
		b := blobs(t)
		digest, weights, err := checkpoint.Save(t.Context(), b, state(updates), manifest(3))
		require.NoError(t, err)
		got, m, err := checkpoint.Load(t.Context(), b, digest)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(state(updates), got))
		require.Equal(t, weights, m.Files[model.WeightsFile].Digest)
		require.Equal(t, updates, m.Updates)
		_, moments := m.Files[model.OptimizerFile]
		require.Equal(t, updates > 0, moments)

		got, _, err = checkpoint.LoadWeights(t.Context(), b, digest)
		require.NoError(t, err)
		require.Empty(t, cmp.Diff(state(updates).Weights, got.Weights))
		require.Nil(t, got.Mean)
	}
}

func TestEqualStatesHaveEqualBlobsAndTheManifestIsLast(t *testing.T) {
	t.Parallel()
	one, other := blobs(t), blobs(t)
	a, _, err := checkpoint.Save(t.Context(), one, state(2), manifest(3))
	require.NoError(t, err)
	b, _, err := checkpoint.Save(t.Context(), other, state(2), manifest(3))
	require.NoError(t, err)
	require.Equal(t, a, b)
	require.ElementsMatch(t, one.digests, other.digests)
	require.Equal(t, a, one.digests[len(one.digests)-1])
}

// The files of a version are the same as those of other tools: streaming does not change
// their bytes.
func TestStreamedFilesHaveTheBytesOfWholeOnes(t *testing.T) {
	t.Parallel()
	b, c := blobs(t), state(2)
	digest, weights, err := checkpoint.Save(t.Context(), b, c, manifest(3))
	require.NoError(t, err)
	require.Equal(t, "sha256:6736740deba64cc95686be27969849bcb951924f9410e8739173ec60cae12992", weights)
	require.Equal(t, "sha256:2001ef574555e2cb5bcd5348d1923760d970c35795dfa21c3f7c041de9a590e6", digest)
	var whole bytes.Buffer
	require.NoError(t, hf.WriteSafetensors(&whole, c.Weights, map[string]string{"format": "pt"}))
	got, err := b.Get(t.Context(), weights)
	require.NoError(t, err)
	require.True(t, bytes.Equal(whole.Bytes(), got))
}

// A model of 16 MB is saved with only a part of a copy in memory, and loaded with one
// copy.
//
//nolint:paralleltest // it counts what the process allocates
func TestSavingAndLoadingMakeNoCopies(t *testing.T) {
	a := model.Architecture{
		VocabSize: 4096, HiddenSize: 512, Layers: 2, Heads: 8, KVHeads: 4, HeadDim: 64,
		FeedForward: 512, MaxPositions: 16, RopeTheta: 10000, NormEpsilon: 1e-6, Tied: true,
	}
	w := a.Init(1)
	size, b := uint64(4*a.Parameters()), blobs(t)
	c := model.Checkpoint{Architecture: a, Weights: w, Updates: 1, Mean: w, Variance: w}
	before := allocated()
	digest, _, err := checkpoint.Save(t.Context(), b, c, manifest(3))
	require.NoError(t, err)
	require.Less(t, allocated()-before, size/4)
	before = allocated()
	_, _, err = checkpoint.Load(t.Context(), b, digest)
	require.NoError(t, err)
	require.Less(t, allocated()-before, 3*size+size/4)
}

// allocated returns how many bytes the process has allocated so far.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// breaking fails in the middle of a write and does not read the rest.
type breaking struct{ *ordered }

var errBroken = errors.New("the disk is gone")

func (breaking) PutFrom(_ context.Context, r io.Reader) (string, error) {
	_, err := io.CopyN(io.Discard, r, 100)
	return "", errors.Join(errBroken, err)
}

func TestAWriteThatFailsInTheMiddleSavesNoManifest(t *testing.T) {
	t.Parallel()
	b := breaking{blobs(t)}
	_, _, err := checkpoint.Save(t.Context(), b, state(2), manifest(3))
	require.ErrorIs(t, err, errBroken)
	require.ErrorContains(t, err, model.WeightsFile)
	require.Len(t, b.digests, 1, "config.json alone")
}

func TestADamagedFileIsSaidToBeDamaged(t *testing.T) {
	t.Parallel()
	for _, at := range []int64{0, 9, -1} { // in the length, in the header, in the data
		b := blobs(t)
		digest, weights, err := checkpoint.Save(t.Context(), b, state(2), manifest(3))
		require.NoError(t, err)
		path, err := b.Path(weights)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(path, 0o644))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		data[(at+int64(len(data)))%int64(len(data))] ^= 0xff
		require.NoError(t, os.WriteFile(path, data, 0o644))
		_, _, err = checkpoint.Load(t.Context(), b, digest)
		require.ErrorIs(t, err, blob.ErrCorrupt)
		require.ErrorContains(t, err, path)
	}
}

func TestAStateThatCouldNotBeReadBackIsNotSaved(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*model.Checkpoint){
		"weights":   func(c *model.Checkpoint) { c.Weights = c.Weights[1:] },
		"means":     func(c *model.Checkpoint) { c.Mean = nil },
		"variances": func(c *model.Checkpoint) { c.Variance = c.Variance[:1] },
	} {
		c := state(2)
		spoil(&c)
		b := blobs(t)
		_, _, err := checkpoint.Save(t.Context(), b, c, manifest(3))
		require.ErrorIs(t, err, model.ErrArchitecture)
		require.ErrorContains(t, err, name)
		require.Empty(t, b.digests)
	}
}

func TestFilesThatContradictTheirManifestAreRefused(t *testing.T) {
	t.Parallel()
	var other bytes.Buffer
	require.NoError(t, hf.WriteSafetensors(&other, state(0).Weights[1:], nil))
	for name, c := range map[string]struct {
		file string
		data []byte // nil leaves the file unchanged, and gives it a wrong size in the manifest
	}{
		"other tensors":      {model.WeightsFile, other.Bytes()},
		"no tensors at all":  {model.WeightsFile, []byte("not safetensors")},
		"another size":       {model.WeightsFile, nil},
		"no moments at all":  {model.OptimizerFile, other.Bytes()},
		"a broken optimizer": {model.OptimizerFile, []byte("{")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := blobs(t)
			digest, _, err := checkpoint.Save(t.Context(), b, state(2), manifest(3))
			require.NoError(t, err)
			text, err := b.Get(t.Context(), digest)
			require.NoError(t, err)
			m, err := model.ParseManifest(text)
			require.NoError(t, err)
			f := m.Files[c.file]
			f.Size++
			if c.data != nil {
				f.Size = int64(len(c.data))
				f.Digest, err = b.Put(t.Context(), c.data)
				require.NoError(t, err)
			}
			m.Files[c.file] = f
			_, _, err = checkpoint.Load(t.Context(), b, b.manifest(t, m))
			require.ErrorIs(t, err, checkpoint.ErrCorrupt)
		})
	}
	t.Run("a file that the manifest lacks", func(t *testing.T) {
		t.Parallel()
		b := blobs(t)
		digest, _, err := checkpoint.Save(t.Context(), b, state(2), manifest(3))
		require.NoError(t, err)
		text, err := b.Get(t.Context(), digest)
		require.NoError(t, err)
		m, err := model.ParseManifest(text)
		require.NoError(t, err)
		delete(m.Files, model.OptimizerFile)
		_, _, err = checkpoint.Load(t.Context(), b, b.manifest(t, m))
		require.ErrorIs(t, err, checkpoint.ErrCorrupt)
		require.ErrorContains(t, err, "version 3 has no "+model.OptimizerFile)
		_, _, err = checkpoint.LoadWeights(t.Context(), b, b.manifest(t, m))
		require.NoError(t, err, "it can be sampled")
	})
}

func (o *ordered) manifest(t *testing.T, m model.Manifest) string {
	t.Helper()
	text, err := m.Encode()
	require.NoError(t, err)
	digest, err := o.Put(t.Context(), text)
	require.NoError(t, err)
	return digest
}

func TestAnAbsentBlobIsNotFound(t *testing.T) {
	t.Parallel()
	b := blobs(t)
	_, _, err := checkpoint.Load(t.Context(), b, fmt.Sprintf("sha256:%x", sha256.Sum256(nil)))
	require.ErrorIs(t, err, record.ErrNotFound)
	digest, err := b.Put(t.Context(), []byte(strings.Repeat("x", 9)))
	require.NoError(t, err)
	_, _, err = checkpoint.Load(t.Context(), b, digest)
	require.ErrorIs(t, err, model.ErrManifest)
}
