package parity_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// golden is what transformers computed with one model.
type golden struct {
	architecture model.Architecture
	weights      model.Weights
	loss         float64
	arrays       []hf.Array
}

// eachGolden runs f for the files of testdata, or of the folder that
// FULGURITE_PARITY names.
func eachGolden(t *testing.T, f func(t *testing.T, name string, g golden)) {
	t.Helper()
	if testing.Short() {
		t.Skip("arithmetic")
	}
	folder := cmp.Or(os.Getenv("FULGURITE_PARITY"), "testdata")
	paths, err := filepath.Glob(filepath.Join(folder, "*.safetensors"))
	require.NoError(t, err)
	require.Len(t, paths, 6)
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".safetensors")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, name, open(t, path))
		})
	}
}

func open(t *testing.T, path string) golden {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	info, err := file.Stat()
	require.NoError(t, err)
	arrays, metadata, err := hf.ReadArrays(file, info.Size())
	require.NoError(t, err)
	g := golden{arrays: arrays}
	g.architecture, err = hf.ReadConfig([]byte(metadata["config"]))
	require.NoError(t, err)
	seed, err := strconv.ParseUint(metadata["seed"], 10, 64)
	require.NoError(t, err)
	g.loss, err = strconv.ParseFloat(metadata["loss"], 64)
	require.NoError(t, err)
	g.weights = weights(g.architecture, seed)
	return g
}

// find returns the array of a kind and an index.
func find[E hf.Element](t *testing.T, g golden, kind string, index any) []E {
	t.Helper()
	data, err := hf.Find[E](g.arrays, fmt.Sprint(kind, ".", index))
	require.NoError(t, err)
	return data
}

// rows returns the sequences of g.
func (g golden) rows(t *testing.T) []model.Row {
	t.Helper()
	rows := make([]model.Row, 4)
	for i := range rows {
		rows[i].Tokens = find[int32](t, g, "rows", i)
	}
	return rows
}

// weights returns the weights that golden/make.py uses: tensor i, in the order of names,
// is drawn from seed + i.
func weights(a model.Architecture, seed uint64) model.Weights {
	w := a.Zeros()
	order := make([]int, len(w))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return strings.Compare(w[i].Name, w[j].Name) })
	for rank, i := range order {
		next := seed + uint64(rank)
		for j := range w[i].Data {
			next += 0x9e3779b97f4a7c15
			w[i].Data[j] = scaled(w[i], uniform(next))
		}
	}
	return w
}

// uniform returns a number from -1 to 1, computed from the state of a SplitMix64
// generator (Steele, Lea and Flood, 2014).
func uniform(z uint64) float32 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	return float32(int64(z>>40)-1<<23) / (1 << 23)
}

func scaled(tensor model.Tensor, u float32) float32 {
	switch {
	case strings.HasSuffix(tensor.Name, "norm.weight"):
		return 1 + float32(u*0.25)
	case strings.HasSuffix(tensor.Name, "embed_tokens.weight"):
		return u
	case len(tensor.Shape) > 1:
		return u * 0.375
	}
	return u * 0.5
}
