package spec

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// mostServedRank is the largest rank that vLLM can serve, by its flag --max-lora-rank.
const mostServedRank = 512

// moduleName matches the last part of a layer's name in PyTorch.
var moduleName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// sha256Digest matches a digest as specs write it.
var sha256Digest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

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
		f.whole("model.lora.rank", l.Rank, 1, 1024)
	}
	if l.Adapter == "" || l.Alpha != 0 {
		f.number("model.lora.alpha", l.Alpha, positive(1e6))
	}
	if l.AdapterDigest != "" {
		f.unused("model.lora.adapter_digest", l.Adapter == "", "there is no model.lora.adapter")
		if !sha256Digest.MatchString(l.AdapterDigest) {
			f.add("model.lora.adapter_digest", `give "sha256:" and 64 hex digits, or leave it out`, "%q is no digest", l.AdapterDigest)
		}
	}
	for i, t := range l.Targets {
		if all.Model.Engine == EngineTorch && moduleName.MatchString(t) {
			if slices.Contains(l.Targets[:i], t) {
				f.add("model.lora.targets", "name each layer once", "%q is there twice", t)
			}
		} else if !slices.Contains(LoRATargets(), t) {
			f.add("model.lora.targets", "give some of "+strings.Join(LoRATargets(), ", "), "%q is no linear layer of a model", t)
		} else if slices.Contains(l.Targets[:i], t) {
			f.add("model.lora.targets", "name each layer once", "%q is there twice", t)
		}
	}
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
		if server.Versions == VersionsAdapters && l.Rank > mostServedRank {
			f.add("model.lora.rank", fmt.Sprintf("give at most %d", mostServedRank), "%d is more than a server of type %s can be started with", l.Rank, server.Type)
		}
	}
}
