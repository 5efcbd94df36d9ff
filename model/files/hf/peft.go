package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/textfile"
	"github.com/fulgurite/fulgurite/model"
)

// peftPrefix is the prefix of the names of an adapter's tensors in PEFT's files.
const peftPrefix = "base_model.model."

// peftConfig is adapter_config.json as PEFT reads and writes it.
type peftConfig struct {
	Type             string   `json:"peft_type"`
	Task             string   `json:"task_type"`
	Base             string   `json:"base_model_name_or_path"`
	Rank             int      `json:"r"`
	Alpha            float64  `json:"lora_alpha"`
	Dropout          float64  `json:"lora_dropout"`
	Targets          []string `json:"target_modules"`
	Saved            []string `json:"modules_to_save"`
	Tokens           any      `json:"trainable_token_indices,omitempty"` // as newTokenIndices returns it
	Bias             string   `json:"bias"`
	FanInFanOut      bool     `json:"fan_in_fan_out"`
	InferenceMode    bool     `json:"inference_mode"`
	RankStabilized   bool     `json:"use_rslora"`
	WeightDecomposed bool     `json:"use_dora"`
}

// unsupportedPEFT returns the fields that change what an adapter computes, if they are
// set to anything but null, false or an empty value.
func unsupportedPEFT() []string {
	return []string{"use_rslora", "use_dora", "use_qalora", "fan_in_fan_out", "rank_pattern", "alpha_pattern", "layers_to_transform", "layer_replication", "exclude_modules", "target_parameters", "lora_bias", "alora_invocation_tokens"}
}

// WritePEFTConfig returns the adapter_config.json of c's adapter. base tells a reader
// which base model it belongs to: a directory, a name on the hub or a digest.
func WritePEFTConfig(c model.Checkpoint, base string) ([]byte, error) {
	if err := c.Adapter.LoRA.CheckFor(c.Architecture); err != nil {
		return nil, err
	}
	config := peftConfig{
		Type: "LORA", Task: "CAUSAL_LM", Base: base, Rank: c.Adapter.Rank, Alpha: c.Adapter.Alpha, Bias: "none", InferenceMode: true,
		Tokens: newTokenIndices(c),
	}
	for _, t := range model.LoRATargets() { // always in the same order, whatever the order in the spec
		if slices.Contains(c.Adapter.Targets, t) {
			config.Targets = append(config.Targets, t)
		}
	}
	if c.Architecture.Config != "" {
		config.Targets = slices.Sorted(slices.Values(c.Adapter.Targets))
	}
	if c.Architecture.ValueHead {
		config.Task, config.Saved = "TOKEN_CLS", []string{"score"}
	}
	text, err := json.MarshalIndent(config, "", "  ")
	return append(text, '\n'), err
}

// ReadPEFTConfig reads an adapter_config.json and the name of the base in it. It returns
// an error that names the setting if the adapter computes something else than model.LoRA.
func ReadPEFTConfig(text []byte) (l model.LoRA, base string, err error) {
	l, base, _, err = readPEFTConfig(text)
	return l, base, err
}

// readPEFTConfig also returns whether trainable_token_indices names the output layer.
func readPEFTConfig(text []byte) (l model.LoRA, base string, head bool, err error) {
	refuse := func(format string, args ...any) (model.LoRA, string, bool, error) {
		return model.LoRA{}, "", false, fmt.Errorf("%w: %s: %s", model.ErrAdapter, model.AdapterConfigFile, fmt.Sprintf(format, args...))
	}
	var fields map[string]json.RawMessage
	if err := model.DecodeJSON(text, &fields); err != nil {
		return refuse("%v", err)
	}
	if targets := fields["target_modules"]; len(targets) > 0 && targets[0] != '[' {
		return refuse("target_modules is %s, want a list of names", targets)
	}
	var c peftConfig
	if err := model.DecodeJSON(text, &c); err != nil {
		return refuse("%v", err)
	}
	for _, name := range unsupportedPEFT() {
		if v := string(fields[name]); !slices.Contains([]string{"", "null", "{}", "[]", "false"}, v) {
			return refuse("%s is %s, which is not supported", name, v)
		}
	}
	// Other values, such as "pissa", start from an adapter and a changed base.
	if v := string(fields["init_lora_weights"]); !slices.Contains([]string{"", "null", "true", "false", `"gaussian"`, `"orthogonal"`, `"eva"`}, v) {
		return refuse("init_lora_weights is %s, which changes the base", v)
	}
	values := c.Task == "TOKEN_CLS" && slices.Equal(c.Saved, []string{"score"})
	switch {
	case c.Type != "LORA":
		return refuse(`peft_type is %q, want "LORA"`, c.Type)
	case c.Bias != "none" && c.Bias != "":
		return refuse(`bias is %q, want "none"`, c.Bias)
	case len(c.Saved) > 0 && !values:
		return refuse("modules_to_save is %q, which is not supported", c.Saved)
	}
	l = model.LoRA{Rank: c.Rank, Alpha: c.Alpha, Targets: c.Targets}
	if l.Tokens, head, err = readTokenIndices(fields["trainable_token_indices"]); err != nil {
		return model.LoRA{}, "", false, err
	}
	if err := l.Check(); err != nil {
		return model.LoRA{}, "", false, fmt.Errorf("%s: %w", model.AdapterConfigFile, err)
	}
	return l, c.Base, head, nil
}

// PEFTTensors returns an adapter's tensors under PEFT's names.
func PEFTTensors(w model.Weights) model.Weights {
	out := slices.Clone(w)
	for i := range out {
		out[i].Name = peftPrefix + out[i].Name
	}
	return out
}

// ArrangePEFT puts tensors of PEFT's names into the order of c.Tensors.
func ArrangePEFT(c model.Checkpoint, tensors model.Weights) (model.Weights, error) {
	tensors = slices.Clone(tensors)
	for i, t := range tensors {
		name, ok := strings.CutPrefix(t.Name, peftPrefix)
		if !ok {
			return nil, fmt.Errorf("%w: tensor %s is not one of an adapter: its name does not begin with %s", ErrFormat, t.Name, peftPrefix)
		}
		tensors[i].Name = name
	}
	return ArrangeTensors(c.Tensors(), tensors)
}

// WritePEFT writes the adapter of c as a directory that PEFT loads. Each file appears
// complete; adapter_config.json is written last.
func WritePEFT(dir string, c model.Checkpoint, base string) error {
	if c.Adapter == nil {
		return fmt.Errorf("write adapter %s: %w: the model has none, it was trained as a whole", dir, model.ErrAdapter)
	}
	if err := c.Check(); err != nil {
		return fmt.Errorf("write adapter %s: %w", dir, err)
	}
	text, err := WritePEFTConfig(c, base)
	if err != nil {
		return fmt.Errorf("write adapter %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write adapter: %w", err)
	}
	if err := replace(filepath.Join(dir, model.AdapterFile), func(f *os.File) error {
		return WriteSafetensors(f, PEFTTensors(c.Weights), map[string]string{"format": "pt"})
	}); err != nil {
		return fmt.Errorf("write adapter %s: %w", dir, err)
	}
	if err := replace(filepath.Join(dir, model.AdapterConfigFile), func(f *os.File) error {
		_, err := f.Write(text)
		return err
	}); err != nil {
		return fmt.Errorf("write adapter %s: %w", dir, err)
	}
	return nil
}

// ReadPEFTDirectory reads the adapter_config.json of a directory of PEFT's.
func ReadPEFTDirectory(dir string) (l model.LoRA, base string, err error) {
	l, base, _, err = readPEFTDirectory(dir)
	return l, base, err
}

func readPEFTDirectory(dir string) (l model.LoRA, base string, head bool, err error) {
	text, err := textfile.Read(filepath.Join(dir, model.AdapterConfigFile))
	if err == nil {
		l, base, head, err = readPEFTConfig(text)
	}
	if err != nil {
		return l, base, head, fmt.Errorf("read adapter %s: %w", dir, err)
	}
	return l, base, head, nil
}

// ReadPEFT reads a PEFT directory as an adapter of base. It refuses an adapter that names
// another base by digest, if base has a digest, and one whose tensors don't fit.
func ReadPEFT(dir string, base *model.Base) (model.Checkpoint, error) {
	l, of, head, err := readPEFTDirectory(dir)
	if err != nil {
		return model.Checkpoint{}, err
	}
	if err := errors.Join(checkTokenLayers(l, head, base.Architecture), l.CheckTokens(base.Architecture)); err != nil {
		return model.Checkpoint{}, fmt.Errorf("read adapter %s: %w", dir, err)
	}
	if strings.HasPrefix(of, "sha256:") && base.Digest != "" && of != base.Digest {
		return model.Checkpoint{}, fmt.Errorf("read adapter %s: %w: %s: base_model_name_or_path: it was made for base %s, not for %s",
			dir, model.ErrAdapter, model.AdapterConfigFile, of, base.Digest)
	}
	c := model.Checkpoint{Architecture: base.Architecture, Adapter: &model.Adapter{LoRA: l, Base: base}}
	tensors, err := readFile(filepath.Join(dir, model.AdapterFile))
	err = absent(dir, err)
	if err == nil {
		c.Weights, err = ArrangePEFT(c, tensors)
	}
	if err == nil {
		err = checkFinite(c.Weights)
	}
	if err != nil {
		return model.Checkpoint{}, fmt.Errorf("read adapter %s: %w: %s: %w", dir, model.ErrAdapter, model.AdapterFile, err)
	}
	return c, nil
}

func checkFinite(w model.Weights) error {
	for _, t := range w {
		for _, x := range t.Data {
			if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				return fmt.Errorf("%w: tensor %s holds %v, want finite numbers", ErrFormat, t.Name, x)
			}
		}
	}
	return nil
}

// The layers that trainable_token_indices may name, by the last part of their names.
const (
	embedTokens = "embed_tokens"
	headTokens  = "lm_head"
)

// tokenIndices is the field trainable_token_indices of PEFT's: the tokens whose rows are
// trained, by layer. A list stands for the embedding, and for the output layer where that
// is the same matrix.
type tokenIndices map[string][]int32

// newTokenIndices returns the field for an adapter, or nil if it trains no rows.
func newTokenIndices(c model.Checkpoint) any {
	tokens := c.Adapter.Tokens
	switch {
	case len(tokens) == 0:
		return nil
	case c.Architecture.Tied || c.Architecture.ValueHead:
		return tokens
	}
	return tokenIndices{embedTokens: tokens, headTokens: tokens}
}

// readTokenIndices reads the field. It returns the tokens, and whether the field names
// the output layer.
func readTokenIndices(raw json.RawMessage) (tokens []int32, head bool, err error) {
	wrong := func(format string, args ...any) ([]int32, bool, error) {
		return nil, false, fmt.Errorf("%w: %s: trainable_token_indices: %s", model.ErrAdapter, model.AdapterConfigFile, fmt.Sprintf(format, args...))
	}
	if slices.Contains([]string{"", "null", "[]", "{}"}, string(raw)) {
		return nil, false, nil
	}
	if raw[0] == '[' {
		if err := json.Unmarshal(raw, &tokens); err != nil {
			return wrong("%v", err)
		}
		return tokens, false, nil
	}
	var layers tokenIndices
	if err := json.Unmarshal(raw, &layers); err != nil {
		return wrong("%v", err)
	}
	found := tokenIndices{}
	for _, name := range slices.Sorted(maps.Keys(layers)) {
		last := name[strings.LastIndexByte(name, '.')+1:]
		if last != embedTokens && last != headTokens {
			return wrong("layer %q: rows of %s and %s can be trained", name, embedTokens, headTokens)
		}
		if _, twice := found[last]; twice {
			return wrong("layer %s is named twice", last)
		}
		found[last] = layers[name]
	}
	tokens, embeds := found[embedTokens]
	other, head := found[headTokens]
	switch {
	case !embeds:
		return wrong("layer %s is absent: rows of the embedding and of the output layer are trained together", embedTokens)
	case head && !slices.Equal(tokens, other):
		return wrong("%s and %s name different tokens: rows of the embedding and of the output layer are trained together", embedTokens, headTokens)
	}
	return tokens, head, nil
}

// checkTokenLayers returns an error if an adapter leaves out the rows of an output layer
// that is a matrix of its own.
func checkTokenLayers(l model.LoRA, head bool, a model.Architecture) error {
	if len(l.Tokens) == 0 || head || a.Tied {
		return nil
	}
	return fmt.Errorf(`%w: %s: trainable_token_indices names the embedding alone, and the output layer of this base is a matrix of its own, whose rows have to be trained too: want {"%s": […], "%s": […]}`,
		model.ErrAdapter, model.AdapterConfigFile, embedTokens, headTokens)
}
