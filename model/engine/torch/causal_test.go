package torch_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/engine/torch"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/store/blob"
)

// published holds the directory to which models.py wrote models of other types, once for
// all tests.
var published struct {
	sync.Once
	dir string
	err error
}

// directory returns the directory of a small model of the given type.
func directory(t *testing.T, kind string) string {
	t.Helper()
	command := exec.Command(python(t), "testdata/models.py")
	published.Do(func() {
		//nolint:usetesting // it outlives this test; TestMain removes it
		if published.dir, published.err = os.MkdirTemp("", "fulgurite-models-"); published.err == nil {
			command.Args = append(command.Args, published.dir)
			var out []byte
			if out, published.err = command.CombinedOutput(); published.err != nil {
				published.err = errors.Join(published.err, errors.New(string(out)))
			}
		}
	})
	require.NoError(t, published.err)
	return filepath.Join(published.dir, kind)
}

// expected returns what transformers computes with a model.
func expected(t *testing.T, dir string) (row model.Row, logprobs []float32) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	require.NoError(t, err)
	var e struct {
		Tokens   []int32
		Logprobs []float32
	}
	require.NoError(t, json.Unmarshal(text, &e))
	return model.Row{Tokens: e.Tokens}, e.Logprobs
}

func blobs(t *testing.T) *blob.Store {
	t.Helper()
	s, err := blob.Open(t.TempDir())
	require.NoError(t, err)
	return s
}

// policyOf returns the checkpoint that a run begins with.
func policyOf(t *testing.T, store *blob.Store, dir string, l *model.LoRA) model.Checkpoint {
	t.Helper()
	f, err := hf.OpenFiles(dir)
	require.NoError(t, err)
	require.NotNil(t, f, "the other engines don't know it")
	if l == nil {
		return model.Checkpoint{Architecture: f.Architecture, Files: &model.Files{Weights: f.Files}}
	}
	base, err := checkpoint.SaveBaseFiles(t.Context(), store, f.Architecture, f.Files)
	require.NoError(t, err)
	return model.Checkpoint{Architecture: f.Architecture, Adapter: &model.Adapter{LoRA: *l, Base: base}, Seed: 7}
}

// stored saves what a trainer holds as a version, and loads it again.
func stored(t *testing.T, store *blob.Store, tr model.Trainer) (model.Checkpoint, model.Manifest) {
	t.Helper()
	c, err := tr.(model.Saver).Save(t.Context())
	require.NoError(t, err)
	defer c.Release()
	manifest, weights, err := checkpoint.Save(t.Context(), store, c, model.Manifest{Policy: "main", Number: 1, Codec: "compact", Engine: "torch"})
	require.NoError(t, err)
	loaded, m, err := checkpoint.Load(t.Context(), store, manifest)
	require.NoError(t, err)
	require.Equal(t, weights, m.Weights())
	return loaded, m
}

// lessLikely makes an update lower the probability of every token.
func lessLikely(_ int, logprobs, _, gradient, entropyGradient []float32) {
	for i := range logprobs {
		gradient[i], entropyGradient[i] = 1, 0.01
	}
}

func usual() *model.LoRA { return &model.LoRA{Rank: 4, Alpha: 8, Targets: model.LoRATargets()} }

func TestAnyCausalModelIsTrainedAndSampled(t *testing.T) {
	t.Parallel()
	for kind, targets := range map[string][]string{
		"gemma2":    model.LoRATargets(),
		"phi3":      {"down_proj", "gate_up_proj", "o_proj", "qkv_proj"},
		"olmo2":     model.LoRATargets(),
		"granite":   model.LoRATargets(),
		"gpt_neox":  {"dense", "dense_4h_to_h", "dense_h_to_4h", "query_key_value"},
		"mixtral":   {"k_proj", "o_proj", "q_proj", "v_proj"},
		"qwen3_moe": {"k_proj", "o_proj", "q_proj", "v_proj"},
		"mamba":     nil, // PEFT adapts no layer of it by default
	} {
		for name, l := range map[string]*model.LoRA{"whole": nil, "adapter": usual()} {
			if l != nil && targets == nil {
				continue
			}
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				e, store, dir := shared(t), blobs(t), directory(t, kind)
				row, want := expected(t, dir)
				rows := []model.Row{{Tokens: row.Tokens[:9], Temperature: 0.7}, row}
				first := trainer(t, e, policyOf(t, store, dir, l))
				got, _, err := first.Score(t.Context(), rows)
				require.NoError(t, err)
				require.InDeltaSlice(t, want, got[1], 1e-4, "as transformers computes it, alone or behind padding")

				norm, err := first.Update(t.Context(), rows, lessLikely, model.AdamW{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8})
				require.NoError(t, err)
				require.Positive(t, norm)
				now, _, err := first.Score(t.Context(), rows)
				require.NoError(t, err)
				require.Less(t, sum(now[1]), sum(want), "the update went its way")

				version, m := stored(t, store, first)
				require.Equal(t, model.FilesManifestFormat, m.Format)
				if l != nil {
					require.ElementsMatch(t, targets, m.LoRA.Targets, "the layers that the model has are on record")
				}
				second := trainer(t, e, version)
				for _, tr := range []model.Trainer{first, second} { // moments are equal, too
					_, err = tr.Update(t.Context(), rows, lessLikely, model.AdamW{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8})
					require.NoError(t, err)
				}
				now, _, err = first.Score(t.Context(), rows)
				require.NoError(t, err)
				again, _, err := second.Score(t.Context(), rows)
				require.NoError(t, err)
				require.Equal(t, now, again)

				version, _ = stored(t, store, second)
				checkSampled(t, e, version, row)
			})
		}
	}
}

func sum(x []float32) (s float64) {
	for _, v := range x {
		s += float64(v)
	}
	return s
}

// checkSampled samples several replies at once, and compares their log-probabilities with
// those that a trainer computes for the same tokens.
func checkSampled(t *testing.T, e *torch.Engine, version model.Checkpoint, row model.Row) {
	t.Helper()
	d, err := e.NewDecoder(version)
	require.NoError(t, err)
	defer d.Close()
	scorer := trainer(t, e, version)
	var group sync.WaitGroup
	defer group.Wait()
	for _, length := range []int{1, 5, 12} {
		group.Go(func() {
			c, err := d.Decode(context.WithoutCancel(t.Context()), model.DecodeRequest{Prompt: row.Tokens[:length], MaxTokens: 14, Temperature: 1, Seed: uint64(length)})
			if !assertNoError(t, err) {
				return
			}
			logprobs, _, err := scorer.Score(context.WithoutCancel(t.Context()), []model.Row{{Tokens: slices.Concat(row.Tokens[:length], c.Tokens)}})
			if assertNoError(t, err) {
				for i, want := range logprobs[0][length-1:] {
					if diff := want - c.Logprobs[i]; diff > 1e-4 || diff < -1e-4 {
						t.Errorf("prompt of %d tokens: token %d has log-probability %v sampled, %v at the trainer", length, i, c.Logprobs[i], want)
					}
				}
			}
		})
	}
}

func assertNoError(t *testing.T, err error) bool {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

func TestModelsThatCantBeTrainedAreRefusedByName(t *testing.T) {
	t.Parallel()
	e, dir := shared(t), directory(t, "phi3")
	text, err := os.ReadFile(filepath.Join(dir, model.ConfigFile))
	require.NoError(t, err)
	for name, c := range map[string]struct{ old, new, want string }{
		"its own code":      {`"model_type"`, `"auto_map": {"AutoModel": "modeling.X"}, "model_type"`, "auto_map names the model"},
		"quantized":         {`"model_type"`, `"quantization_config": {}, "model_type"`, "quantization_config"},
		"no type of its":    {`"model_type": "phi3"`, `"model_type": "phi33"`, "phi33"},
		"no language model": {`"model_type": "phi3"`, `"model_type": "vit"`, "no causal language model"},
		"no positions":      {`"max_position_embeddings"`, `"most_positions"`, "max_position_embeddings or n_positions"},
	} {
		changed := t.TempDir()
		require.Contains(t, string(text), c.old, name)
		require.NoError(t, os.WriteFile(filepath.Join(changed, model.ConfigFile), []byte(strings.Replace(string(text), c.old, c.new, 1)), 0o600))
		require.NoError(t, os.Link(filepath.Join(dir, model.WeightsFile), filepath.Join(changed, model.WeightsFile)))
		f, err := hf.OpenFiles(changed)
		if err == nil {
			require.NotNil(t, f, name)
			_, err = e.Inspect(t.Context(), f.Architecture, nil)
			require.ErrorContains(t, err, c.want, name)
			_, err = e.NewTrainer(model.Checkpoint{Architecture: f.Architecture, Files: &model.Files{Weights: f.Files}})
		}
		require.ErrorContains(t, err, c.want, name)
	}

	c := policyOf(t, blobs(t), dir, &model.LoRA{Rank: 2, Alpha: 2, Targets: []string{"o_proj", "q_proj"}})
	for _, ask := range []func() error{
		func() error { _, err := e.Inspect(t.Context(), c.Architecture, &c.Adapter.LoRA); return err },
		func() error { _, err := e.NewTrainer(c); return err },
	} {
		require.ErrorContains(t, ask(), "model.lora.targets: no linear layer is called q_proj: there are down_proj, gate_up_proj, o_proj, qkv_proj")
	}
	_, err = native.New(native.Options{}).NewTrainer(policyOf(t, blobs(t), dir, nil))
	require.ErrorContains(t, err, `model_type "phi3" is not llama, mistral, qwen2 or qwen3: only engine torch computes it`)

	whole := policyOf(t, blobs(t), dir, nil)
	whole.Files.Weights = map[string]model.Content{model.WeightsFile: model.StoredFile(filepath.Join(directory(t, "olmo2"), model.WeightsFile))}
	_, err = e.NewTrainer(whole)
	require.ErrorContains(t, err, "differ in tensors", "weights of another model")
}

// In a step, Go allocates only a small part of the size of the weights.
func TestWeightsNeverPassThroughThisProcess(t *testing.T) {
	e, store, dir := shared(t), blobs(t), directory(t, "glm4")
	f, err := hf.OpenFiles(dir)
	require.NoError(t, err)
	require.Greater(t, f.Bytes, int64(30<<20))
	for name, l := range map[string]*model.LoRA{"whole": nil, "adapter": usual()} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		tr, err := e.NewTrainer(policyOf(t, store, dir, l))
		require.NoError(t, err)
		_, err = tr.Update(t.Context(), []model.Row{{Tokens: []int32{1, 2, 3, 4}}}, lessLikely, model.AdamW{LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8})
		require.NoError(t, err)
		version, _ := stored(t, store, tr)
		tr.Close()
		tr, err = e.NewTrainer(version)
		require.NoError(t, err)
		tr.Close()
		runtime.ReadMemStats(&after)
		allocated := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %d bytes allocated for a model of %d", name, allocated, f.Bytes)
		require.Less(t, allocated, uint64(f.Bytes)/8, name)
	}
}
