package spec

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/spec/bounds"
)

// maxServedRank is the largest rank that vLLM can serve, by its flag --max-lora-rank.
const maxServedRank = 512

// moduleName matches the last part of a layer's name in PyTorch.
var moduleName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// sha256Digest matches a digest as specs write it.
var sha256Digest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// TokensAuto stands for marks of the tool format in LoRA.TrainableTokens.
const TokensAuto = "auto"

// LoRA is a low-rank adapter. An adapted linear layer W computes Wx + alpha/rank · B(Ax),
// and only A and B are trained (Hu et al., 2021).
type LoRA struct {
	// Rank is the rank of the adapter, the number of rows of its first matrix: 1 to 1024,
	// at most 512 with vLLM.
	Rank int `json:"rank,omitempty"`
	// Alpha sets the strength of the adapter: its product is multiplied by alpha / rank.
	Alpha float64 `json:"alpha,omitempty"`
	// Targets lists the linear layers that are adapted in each layer of the model: q_proj,
	// k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj. Absent means all seven.
	// With model.engine "torch", a model of another type has its own names, and absent
	// means all its linear layers.
	Targets []string `json:"targets,omitempty"`
	// TrainableTokens lists tokens whose rows of the embedding are trained, too, and whose
	// rows of the output layer if the model's embeddings are not tied. Each is the text of
	// one token, or its id as text. The list [auto] stands for those marks of the model's
	// tool format that an adapter of linear layers can't learn to write, because other
	// tokens have the same row of the output layer. Absent means none. With an adapter,
	// it is the adapter that says which.
	TrainableTokens []string `json:"trainable_tokens,omitempty"`
	// BasePrecision says how the matrices of the frozen base are rounded, once, and then
	// held in memory: "f32" (the default, nothing is rounded), "bf16" or "q8_0".
	BasePrecision string `json:"base_precision,omitempty"`
	// Adapter is the path of a directory with adapter_config.json and
	// adapter_model.safetensors, as PEFT writes them. Version 0 starts from this adapter.
	// The adapter sets rank, alpha and targets; if you give them too, they must agree with
	// it.
	Adapter string `json:"adapter,omitempty"`
	// AdapterDigest is the digest of the adapter's adapter_model.safetensors: "sha256:"
	// and 64 hex digits. A run records it. If you give it, a file with another digest is
	// refused. Only with model.lora.adapter.
	AdapterDigest string `json:"adapter_digest,omitempty"`
}

// LoRATargets returns the linear layers that an adapter can adapt. By default it adapts
// all of them.
func LoRATargets() []string {
	return []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
}

func (l LoRA) withDefaults() LoRA {
	if l.Adapter != "" {
		return l // the adapter's configuration has these values
	}
	l.Rank = cmp.Or(l.Rank, 8)
	l.Alpha = cmp.Or(l.Alpha, 16)
	if len(l.Targets) == 0 {
		l.Targets = LoRATargets()
	}
	return l
}

func (l LoRA) check(f *Faults, all Spec) {
	if l.Adapter == "" || l.Rank != 0 {
		f.number("model.lora.rank", float64(l.Rank), bounds.LoRARank())
	}
	if l.Adapter == "" || l.Alpha != 0 {
		f.number("model.lora.alpha", l.Alpha, bounds.LoRAAlpha())
	}
	if l.AdapterDigest != "" {
		f.unused("model.lora.adapter_digest", l.Adapter == "", "there is no model.lora.adapter")
		if !sha256Digest.MatchString(l.AdapterDigest) {
			f.add("model.lora.adapter_digest", `give "sha256:" and 64 hex digits, or leave it out`, "%q is not a digest", l.AdapterDigest)
		}
	}
	for i, t := range l.Targets {
		if all.Model.Engine == EngineTorch && moduleName.MatchString(t) {
			if slices.Contains(l.Targets[:i], t) {
				f.add("model.lora.targets", "name each layer once", "%q is given twice", t)
			}
		} else if !slices.Contains(LoRATargets(), t) {
			f.add("model.lora.targets", "give some of "+strings.Join(LoRATargets(), ", "), "%q is not a linear layer of a model", t)
		} else if slices.Contains(l.Targets[:i], t) {
			f.add("model.lora.targets", "name each layer once", "%q is given twice", t)
		}
	}
	l.checkTokens(f, all)
	if l.BasePrecision != "" {
		f.choice("model.lora.base_precision", l.BasePrecision)
	}
	if all.Model.Engine == "gomlx" {
		f.add("model.lora", `leave it out, or give model.engine "native" or "torch"`, "engine %s trains whole models only", all.Model.Engine)
	}
	if server := all.Sampling.Server; server != nil {
		if server.Versions == VersionsReload {
			f.add("model.lora", `leave it out, or give sampling.server.type "vllm"`, "a server of type %s loads whole models only", server.Type)
		}
		if server.Versions == VersionsAdapters && l.Rank > maxServedRank {
			f.add("model.lora.rank", fmt.Sprintf("give at most %d", maxServedRank), "%d is more than a server of type %s can be started with", l.Rank, server.Type)
		}
	}
}

// checkTokens checks what can be known of the trained tokens without the model's files.
func (l LoRA) checkTokens(f *Faults, all Spec) {
	const key = "model.lora.trainable_tokens"
	if len(l.TrainableTokens) == 0 {
		return
	}
	if n := len(l.TrainableTokens); n > bounds.MaxTrainedTokens {
		f.add(key, fmt.Sprintf("name at most %d", bounds.MaxTrainedTokens), "it has %d tokens", n)
	}
	template := strings.HasPrefix(all.Model.Codec, CodecTemplate)
	for i, token := range l.TrainableTokens {
		at := fmt.Sprintf("%s[%d]", key, i)
		switch {
		case token == "":
			f.add(at, "give the text of a token, or its id as text", "empty")
		case slices.Contains(l.TrainableTokens[:i], token):
			f.add(at, "name each token once", "%q is given twice", token)
		case token == TokensAuto && len(l.TrainableTokens) > 1:
			f.add(at, "give [auto] alone, or name tokens", "auto stands beside other tokens")
		case !template && !isDecimal(token):
			f.add(at, `give the id of a token as text, or model.codec "template"`, "the tokens of codec %s have no texts", all.Model.Codec)
		}
	}
	if server := all.Sampling.Server; server != nil && server.Versions == VersionsAdapters {
		f.add(key, "leave it out, or leave sampling.server out", "a server of type %s loads adapters of linear layers only", server.Type)
	}
}

func isDecimal(text string) bool {
	return strings.Trim(text, "0123456789") == ""
}
