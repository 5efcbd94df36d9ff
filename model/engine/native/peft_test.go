package native_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// peftGolden reads what golden/lora.py wrote: the policy with its adapter, in the files
// of transformers and PEFT, and all arrays by name. kind names one of its files.
func peftGolden(t *testing.T, kind string) (model.Checkpoint, map[string]hf.Array) {
	t.Helper()
	f, err := os.Open("testdata/" + kind + ".safetensors")
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	info, err := f.Stat()
	require.NoError(t, err)
	arrays, metadata, err := hf.ReadArrays(f, info.Size())
	require.NoError(t, err)
	a, err := hf.ReadConfig([]byte(metadata["config"]))
	require.NoError(t, err)
	l, _, err := hf.ReadPEFTConfig([]byte(metadata["adapter_config"]))
	require.NoError(t, err)
	byName, parts := map[string]hf.Array{}, map[string]model.Weights{}
	for _, x := range arrays {
		byName[x.Name] = x
		kind, name, _ := strings.Cut(x.Name, ".")
		if data, ok := x.Data.([]float32); ok {
			parts[kind] = append(parts[kind], model.Tensor{Name: name, Shape: x.Shape, Data: data})
		}
	}
	weights, err := hf.Arrange(a, parts["base"])
	require.NoError(t, err)
	read := func() (model.Weights, error) { return weights, nil }
	c := model.Checkpoint{Architecture: a, Adapter: &model.Adapter{LoRA: l, Base: &model.Base{Digest: "golden", Architecture: a, Each: model.EachOf(read)}}}
	c.Weights, err = hf.ArrangePEFT(c, parts["adapter"])
	require.NoError(t, err)
	return c, byName
}

// The gradient is read out of AdamW's first moment, as gradients does.
func TestAnAdapterComputesWhatPEFTDoes(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"peft", "tokens_tied", "tokens_untied"} {
		c, golden := peftGolden(t, kind)
		eachKernel(t, func(t *testing.T, kernelName string) { requireGolden(t, kernelName, c, golden) })
		if dir := os.Getenv("FULGURITE_PEFT_WRITE"); dir != "" { // for golden/lora.py DIRECTORY
			require.NoError(t, hf.WritePEFT(filepath.Join(dir, kind), c, "golden"))
		}
	}
}

func requireGolden(t *testing.T, kernelName string, c model.Checkpoint, golden map[string]hf.Array) {
	t.Helper()
	tr := trainerOf(t, engine(kernelName, 2), c)
	batch, n := make([]model.Row, 3), 0
	for i := range batch {
		batch[i].Tokens = golden[fmt.Sprint("rows.", i)].Data.([]int32)
		n += len(batch[i].Tokens) - 1
	}
	logprobs, _ := score(t, tr, batch)
	for i := range batch {
		require.InDeltaSlice(t, golden[fmt.Sprint("logprobs.", i)].Data, logprobs[i], 1e-4)
	}
	mean := func(_ int, logprobs, _, gradient, _ []float32) {
		for i := range logprobs {
			gradient[i] = -1 / float32(n)
		}
	}
	_, err := tr.Update(t.Context(), batch, mean, model.AdamW{Beta1: 0.5, Beta2: 0.5, Epsilon: 1e-8})
	require.NoError(t, err)
	for _, m := range hf.PEFTTensors(tr.Checkpoint().Mean) {
		want := golden["gradient."+m.Name].Data.([]float32)
		apart := make([]float32, len(want))
		for i := range want {
			apart[i] = 2*m.Data[i] - want[i]
		}
		require.Less(t, lengthOf(apart), 1e-4*lengthOf(want), m.Name)
	}
}
