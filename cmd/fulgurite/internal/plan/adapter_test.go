package plan_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
)

// setup is a directory that holds a spec, a model in the directory base, and an adapter
// of rank 4 for that model in the directory adapter.
type setup struct {
	t   *testing.T
	dir string
}

func newSetup(t *testing.T) setup {
	t.Helper()
	s := setup{t, t.TempDir()}
	codec, err := dialog.Named(dialog.CompactName)
	require.NoError(t, err)
	a := model.Tiny(codec.VocabSize())
	require.NoError(t, hf.WriteDirectory(s.path("base"), a, a.Init(1)))
	s.adapt(a, s.path("base"))
	return s
}

func (s setup) path(name string) string { return filepath.Join(s.dir, name) }

// adapt writes an adapter for a model of architecture a. The adapter names base as its
// base.
func (s setup) adapt(a model.Architecture, base string) {
	s.t.Helper()
	c := model.Checkpoint{Architecture: a, Adapter: &model.Adapter{LoRA: model.LoRA{Rank: 4, Alpha: 6, Targets: []string{"v_proj", "q_proj"}}}}
	c.Adapter.Base = &model.Base{Digest: "sha256:0", Architecture: a, Each: model.EachOf(func() (model.Weights, error) { return nil, nil })}
	c.Weights = a.InitAdapter(c.Adapter.LoRA, 3)
	require.NoError(s.t, hf.WritePEFT(s.path("adapter"), c, base))
}

// set changes a field of adapter_config.json.
func (s setup) set(field string, value any) {
	s.t.Helper()
	path, fields := s.path("adapter/adapter_config.json"), map[string]any{}
	text, err := os.ReadFile(path)
	require.NoError(s.t, err)
	require.NoError(s.t, json.Unmarshal(text, &fields))
	fields[field] = value
	text, err = json.Marshal(fields)
	require.NoError(s.t, err)
	require.NoError(s.t, os.WriteFile(path, text, 0o600))
}

// tensors changes what is in adapter_model.safetensors.
func (s setup) tensors(change func(model.Weights) model.Weights) {
	s.t.Helper()
	path := s.path("adapter/adapter_model.safetensors")
	text, err := os.ReadFile(path)
	require.NoError(s.t, err)
	w, _, err := hf.ReadSafetensors(strings.NewReader(string(text)), int64(len(text)))
	require.NoError(s.t, err)
	var out strings.Builder
	require.NoError(s.t, hf.WriteSafetensors(&out, change(w), nil))
	require.NoError(s.t, os.WriteFile(path, []byte(out.String()), 0o600))
}

// plan makes the plan of a spec. lora is the text of its model.lora, and more holds
// further fields of its model.
func (s setup) plan(lora, more string) (plan.Plan, error) {
	s.t.Helper()
	if !strings.Contains(more, "base:") {
		more += ", base: base"
	}
	text := fmt.Sprintf("model: {lora: {%s}%s}\nagent: {func: calculator}\ntasks: {train: \"arithmetic:train:8\"}\ngrader: {type: exact}\ntraining: {steps: 1, tasks_per_step: 2}\n", lora, more)
	require.NoError(s.t, os.WriteFile(s.path("spec.yaml"), []byte(text), 0o600))
	return plan.Make(s.t.Context(), s.path("spec.yaml"))
}

func TestAnAdapterSaysWhatTheSpecDoesNot(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	p, err := s.plan("adapter: ./adapter", "")
	require.NoError(t, err)
	l := p.Spec.Model.LoRA
	require.Equal(t, spec.LoRA{
		Rank: 4, Alpha: 6, Targets: []string{"q_proj", "v_proj"}, Adapter: s.path("adapter"), AdapterDigest: l.AdapterDigest,
	}, *l)
	require.Regexp(t, "^sha256:[0-9a-f]{64}$", l.AdapterDigest)
	require.Equal(t, spec.Digest(p.Spec), p.Digest)

	same, err := s.plan("adapter: adapter, rank: 4, alpha: 6, targets: [v_proj, q_proj], adapter_digest: \""+l.AdapterDigest+"\"", "")
	require.NoError(t, err)
	require.Equal(t, p.Digest, same.Digest, "saying it too is the same run")

	// A copy of the base is the base.
	require.NoError(t, os.CopyFS(s.path("copy"), os.DirFS(s.path("base"))))
	_, err = s.plan("adapter: adapter", ", base: copy")
	require.NoError(t, err)
	for _, undecidable := range []string{"", "Some/Model", "/absent/anywhere", s.path("adapter"), "sha256:" + strings.Repeat("0", 64)} {
		s.set("base_model_name_or_path", undecidable)
		_, err = s.plan("adapter: adapter", "")
		require.NoError(t, err, undecidable)
	}
}

func TestAdaptersThatDoNotFitAreRefusedByFileAndField(t *testing.T) {
	t.Parallel()
	type try struct {
		change func(s setup)
		lora   string // further fields of model.lora
		more   string
		want   []string
	}
	field := func(name string, value any) func(setup) { return func(s setup) { s.set(name, value) } }
	tensors := func(change func(model.Weights) model.Weights) func(setup) {
		return func(s setup) { s.tensors(change) }
	}
	const config, weights = "adapter_config.json", "adapter_model.safetensors"
	for name, c := range map[string]try{
		"no directory":  {change: func(s setup) { require.NoError(s.t, os.RemoveAll(s.path("adapter"))) }, want: []string{"model.lora.adapter: ", "no such file"}},
		"no config":     {change: func(s setup) { require.NoError(s.t, os.Remove(s.path("adapter/"+config))) }, want: []string{"model.lora.adapter: ", config, "no such file"}},
		"no weights":    {change: func(s setup) { require.NoError(s.t, os.Remove(s.path("adapter/"+weights))) }, want: []string{"model.lora.adapter: ", weights, "no such file"}},
		"no JSON":       {change: func(s setup) { require.NoError(s.t, os.WriteFile(s.path("adapter/"+config), []byte("{"), 0o600)) }, want: []string{config}},
		"cut off":       {change: func(s setup) { require.NoError(s.t, os.Truncate(s.path("adapter/"+weights), 5000)) }, want: []string{weights}},
		"rank":          {lora: ", rank: 8", want: []string{config, "r is 4, but model.lora.rank is 8: leave model.lora.rank out"}},
		"alpha":         {lora: ", alpha: 16", want: []string{config, "lora_alpha is 6, but model.lora.alpha is 16"}},
		"targets":       {lora: ", targets: [q_proj]", want: []string{config, "target_modules is [q_proj v_proj], but model.lora.targets is [q_proj]"}},
		"digest":        {lora: ", adapter_digest: \"sha256:" + strings.Repeat("0", 64) + "\"", want: []string{weights, "model.lora.adapter_digest", "another file"}},
		"no digest":     {lora: ", adapter_digest: sha256", want: []string{"model.lora.adapter_digest", "is not a digest"}},
		"lying rank":    {change: field("r", 8), want: []string{weights, "q_proj.lora_A.weight has shape [4 ", "want [8 "}},
		"lying targets": {change: field("target_modules", []string{"q_proj"}), want: []string{weights, "v_proj.lora_A.weight belongs to no part"}},
		"more targets":  {change: field("target_modules", []string{"q_proj", "k_proj", "v_proj"}), want: []string{weights, "k_proj.lora_A.weight is absent"}},
		"dora":          {change: field("use_dora", true), want: []string{config, "use_dora is true"}},
		"rslora":        {change: field("use_rslora", true), want: []string{config, "use_rslora is true"}},
		"bias":          {change: field("bias", "lora_only"), want: []string{config, `bias is "lora_only"`}},
		"saved":         {change: field("modules_to_save", []string{"lm_head"}), want: []string{config, `modules_to_save is ["lm_head"]`}},
		"pissa":         {change: field("init_lora_weights", "pissa"), want: []string{config, `init_lora_weights is "pissa"`}},
		"other method":  {change: field("peft_type", "IA3"), want: []string{config, `peft_type is "IA3"`}},
		"missing":       {change: tensors(func(w model.Weights) model.Weights { return w[1:] }), want: []string{weights, "lora_A.weight is absent"}},
		"extra": {change: tensors(func(w model.Weights) model.Weights {
			return append(w, model.Tensor{Name: "base_model.model.lm_head.weight", Shape: []int{1}, Data: []float32{1}})
		}), want: []string{weights, "lm_head.weight belongs to no part"}},
		"foreign":        {change: tensors(func(w model.Weights) model.Weights { w[0].Name = "encoder"; return w }), want: []string{weights, "tensor encoder is not one of an adapter"}},
		"not finite":     {change: tensors(func(w model.Weights) model.Weights { w[0].Data[0] = float32(math.NaN()); return w }), want: []string{weights, "holds NaN"}},
		"other shapes":   {change: func(s setup) { s.adapt(wider(), "Some/Model") }, want: []string{weights, "q_proj.lora_A.weight has shape [4 "}},
		"tiny":           {change: field("base_model_name_or_path", "tiny"), want: []string{config, `base_model_name_or_path is "tiny"`}},
		"not tiny":       {more: ", base: tiny", want: []string{config, "base_model_name_or_path is ", `model.base is "tiny"`}},
		"another model":  {change: another, want: []string{config, "base_model_name_or_path is ", "/other", "whose tensor model.embed_tokens.weight is another"}},
		"gomlx":          {more: ", engine: gomlx", want: []string{"model.lora"}},
		"tokens":         {change: field("trainable_token_indices", []int{5}), lora: `, trainable_tokens: ["6"]`, want: []string{config, "trainable_token_indices is [5], but model.lora.trainable_tokens is [6]"}},
		"lying tokens":   {change: field("trainable_token_indices", []int{5}), want: []string{weights, "embed_tokens.token_adapter.trainable_tokens_delta is absent"}},
		"no such token":  {change: field("trainable_token_indices", []int{50000}), want: []string{"trainable_tokens[0]: the model has no token \"50000\""}},
		"digest without": {lora: "-", want: []string{"model.lora.adapter_digest", "no model.lora.adapter"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t)
			if c.change != nil {
				c.change(s)
			}
			lora := "adapter: adapter" + c.lora
			if c.lora == "-" {
				lora = "adapter_digest: \"sha256:" + strings.Repeat("0", 64) + "\""
			}
			_, err := s.plan(lora, c.more)
			require.Error(t, err)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// wider returns an architecture with wider layers than the base has.
func wider() model.Architecture {
	a := model.Tiny(300)
	a.HiddenSize *= 2
	return a
}

// another changes the adapter to name another model with the same shapes.
func another(s setup) {
	s.t.Helper()
	a, _, err := hf.ReadDirectory(s.path("base"))
	require.NoError(s.t, err)
	require.NoError(s.t, hf.WriteDirectory(s.path("other"), a, a.Init(2)))
	s.set("base_model_name_or_path", s.path("other"))
}

func TestAnAdapterOfAModelThatTorchAloneKnowsIsRefused(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	config := `{"model_type": "phi3", "vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 1, "max_position_embeddings": 64}`
	require.NoError(t, os.WriteFile(s.path("base/config.json"), []byte(config), 0o600))
	_, err := s.plan("adapter: adapter", ", engine: torch")
	require.ErrorContains(t, err, `model.lora.adapter: an adapter of a model of type "phi3" can't be read here`)
}
