package gguf_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/model/files/gguf"
)

// golden is what llama.cpp's Python package makes of testdata/blocks.gguf.
type golden struct {
	Decoded, Encoded map[string]string
	Numbers          []uint32
}

func load(t *testing.T) (file []byte, g golden) {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("testdata", "blocks.gguf"))
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join("testdata", "blocks.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &g))
	return file, g
}

func open(t *testing.T, file []byte) *gguf.File {
	t.Helper()
	f, err := gguf.Open(bytes.NewReader(file), int64(len(file)))
	require.NoError(t, err)
	return f
}

// numbers reads a tensor a few rows at a time.
func numbers(t *testing.T, tensor gguf.Tensor, rows int) []float32 {
	t.Helper()
	all := make([]float32, tensor.Rows()*tensor.Width())
	for first := 0; first < tensor.Rows(); first += rows {
		raw := make([]byte, min(rows, tensor.Rows()-first)*tensor.RowBytes())
		require.NoError(t, tensor.ReadRows(raw, first))
		tensor.Decode(all[first*tensor.Width():], raw)
	}
	return all
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func TestBlocksAreReadAsLlamaCppReadsThem(t *testing.T) {
	t.Parallel()
	file, g := load(t)
	f := open(t, file)
	require.Len(t, f.Tensors, len(gguf.Supported()))
	for _, kind := range gguf.Supported() {
		tensor, ok := f.Find(kind.String())
		require.True(t, ok, kind)
		require.Equal(t, kind, tensor.Type)
		require.Equal(t, []int{3, 512}, tensor.Shape)
		for rows := 1; rows < 4; rows++ {
			b, err := gguf.Encode(nil, gguf.F32, numbers(t, tensor, rows))
			require.NoError(t, err)
			require.Equal(t, g.Decoded[kind.String()], digest(b), "%s, %d rows at a time", kind, rows)
		}
	}
}

func TestNumbersAreQuantizedAsLlamaCppDoes(t *testing.T) {
	t.Parallel()
	_, g := load(t)
	x := make([]float32, len(g.Numbers))
	for i, bits := range g.Numbers {
		x[i] = math.Float32frombits(bits)
	}
	for name, want := range g.Encoded {
		kind, err := gguf.ParseType(name)
		require.NoError(t, err)
		b, err := gguf.Encode(nil, kind, x)
		require.NoError(t, err)
		require.Equal(t, want, digest(b), name)
	}
}

func TestWhatCannotBeStoredIsRefused(t *testing.T) {
	t.Parallel()
	_, err := gguf.Encode(nil, gguf.F16, []float32{1e6})
	require.ErrorContains(t, err, "beyond the numbers of F16")
	_, err = gguf.Encode(nil, gguf.Q8_0, make([]float32, 33))
	require.ErrorContains(t, err, "not whole blocks")
	for _, x := range []float32{float32(math.NaN()), float32(math.Inf(1)), 1e8} {
		block := make([]float32, 32)
		block[7] = x
		_, err = gguf.Encode(nil, gguf.Q8_0, block)
		require.Error(t, err)
	}
	_, err = gguf.Encode(nil, gguf.Q4_K, make([]float32, 256))
	require.ErrorContains(t, err, "Q4_K is not written")
}

func TestMetadataIsReadAsLlamaCppWritesIt(t *testing.T) {
	t.Parallel()
	file, _ := load(t)
	m := open(t, file).Metadata
	n, err := m.Int("llama.block_count", 0)
	require.NoError(t, err)
	require.Equal(t, 7, n)
	x, err := m.Float("llama.attention.layer_norm_rms_epsilon", 0)
	require.NoError(t, err)
	require.Equal(t, 1e-5, x)
	x, err = m.Float("absent", 3)
	require.NoError(t, err)
	require.Equal(t, 3.0, x)
	tokens, err := m.Strings("tokenizer.ggml.tokens")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "Ġé", "<|end|>"}, tokens)
	kinds, err := m.Ints("tokenizer.ggml.token_type")
	require.NoError(t, err)
	require.Equal(t, []int64{1, 1, 3}, kinds)
	yes, err := m.Bool("tokenizer.ggml.add_bos_token")
	require.NoError(t, err)
	require.True(t, yes)
	_, err = m.String("llama.block_count")
	require.ErrorContains(t, err, "llama.block_count is int64, want a string")
}

func TestFilesRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := gguf.Metadata{
			{Key: "general.architecture", Value: rapid.String().Draw(t, "text")},
			{Key: "a.count", Value: rapid.Uint32Max(1<<30).Draw(t, "count")},
			{Key: "a.yes", Value: rapid.Bool().Draw(t, "yes")},
			{Key: "a.x", Value: float32(0.25)},
			{Key: "a.texts", Value: rapid.SliceOf(rapid.String()).Draw(t, "texts")},
			{Key: "a.kinds", Value: rapid.SliceOf(rapid.Int32()).Draw(t, "kinds")},
		}
		kinds := []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0}
		entries := make([]gguf.Entry, rapid.IntRange(0, 4).Draw(t, "tensors"))
		for i := range entries {
			entries[i] = gguf.Entry{
				Name: string(rune('a' + i)), Type: rapid.SampledFrom(kinds).Draw(t, "type"),
				Shape: []int{rapid.IntRange(1, 5).Draw(t, "rows"), 32 * rapid.IntRange(1, 3).Draw(t, "width")},
			}
		}
		var b bytes.Buffer
		w, err := gguf.NewWriter(&b, m, entries)
		require.NoError(t, err)
		for i, e := range entries {
			require.ErrorContains(t, w.Close(), e.Name)
			row := make([]float32, e.Shape[1])
			for r := range e.Shape[0] {
				for j := range row {
					row[j] = float32(i + r) // every type holds it exactly or nearly
				}
				require.NoError(t, w.Write(row))
			}
		}
		require.NoError(t, w.Close())
		require.Error(t, w.Write(make([]float32, 32)))

		f, err := gguf.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
		require.NoError(t, err)
		require.Len(t, f.Metadata, len(m))
		require.Equal(t, m[0], f.Metadata[0])
		require.Equal(t, int64(m[1].Value.(uint32)), f.Metadata[1].Value)
		require.Equal(t, m[2:5], f.Metadata[2:5])
		require.Len(t, f.Tensors, len(entries))
		for i, e := range entries {
			tensor := f.Tensors[i]
			require.Equal(t, e, gguf.Entry{Name: tensor.Name, Shape: tensor.Shape, Type: tensor.Type})
			raw, row := make([]byte, tensor.RowBytes()), make([]float32, tensor.Width())
			for r := range tensor.Rows() {
				require.NoError(t, tensor.ReadRows(raw, r))
				tensor.Decode(row, raw)
				require.InDelta(t, float64(i+r), float64(row[len(row)-1]), 0.01)
			}
			require.Error(t, tensor.ReadRows(raw, tensor.Rows()))
		}
	})
}
