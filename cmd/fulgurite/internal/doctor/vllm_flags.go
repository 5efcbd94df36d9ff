package doctor

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model/sampler/upstream"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/update"
)

const (
	// usualPart is the fraction of a GPU that a server which shares it may take, if
	// nothing more is known.
	usualPart = 0.7
	// vllmPart is the fraction that vLLM takes by default. This command never asks for
	// more.
	vllmPart = 0.9
	// besideBase is the memory, in bytes, that CUDA and the allocator take in the
	// trainer's process while the server is awake. The trainer's base is not included.
	besideBase = 2e9
)

// sharedPart returns the fraction of a GPU that a server may take if it shares the GPU
// with the trainer. While the server is awake, the base of the adapters stays on the GPU,
// in BF16. sharedPart returns 0 if it does not know the sizes.
func sharedPart(ctx context.Context, s spec.Spec) float64 {
	found, err := gpus(ctx)
	if err != nil {
		return 0
	}
	largest := int64(0)
	for _, g := range found {
		largest = max(largest, g.Memory)
	}
	files, err := filepath.Glob(filepath.Join(s.Model.Base, "*.safetensors"))
	if err != nil {
		return 0
	}
	base := int64(0)
	for _, path := range files {
		if about, err := os.Stat(path); err == nil {
			base += about.Size()
		}
	}
	return partBeside(base, largest)
}

// partBeside returns the fraction of a GPU's memory that the trainer's base leaves free,
// rounded down to a multiple of 1/20.
func partBeside(base, memory int64) float64 {
	if base == 0 || memory == 0 {
		return 0
	}
	left := math.Floor(float64(memory-base-besideBase)/float64(memory)*20) / 20
	return max(0.05, min(left, vllmPart))
}

// lacks lists the flags that s needs and a vLLM server was started without. part is the
// fraction of the GPU that a server may take if it shares the GPU; 0 means that it is not
// known.
func (v VLLM) lacks(s spec.Spec, part float64) []string {
	var out []string
	if why := changesLogprobs(s); why != "" && v.Flags["--logprobs-mode"] != "processed_logprobs" {
		out = append(out, fmt.Sprintf("--logprobs-mode processed_logprobs (%s)", why))
	}
	l := s.Model.LoRA
	if l == nil || s.Sampling.Server.Versions != spec.VersionsAdapters {
		return out
	}
	if !v.has("--enable-lora") {
		out = append(out, "--enable-lora")
	}
	if v.number("--max-lora-rank", vllmRank) < l.Rank {
		out = append(out, fmt.Sprintf("--max-lora-rank %s (model.lora.rank is %d)", upstream.NeededRank(l.Rank), l.Rank))
	}
	if least := s.Training.Lag + 1; v.number("--max-loras", vllmAdapters) < least {
		out = append(out, fmt.Sprintf("--max-loras %d (training.lag is %d)", least, s.Training.Lag))
	}
	if !v.Updating {
		out = append(out, updatesVariable+"=True")
	}
	if n := v.apiServers(); n > 1 {
		out = append(out, fmt.Sprintf("--api-server-count 1 (of its %d API server processes only one gets an adapter)", n))
	}
	if s.Sampling.Server.ShareGPU {
		out = append(out, v.lacksForSleep(part)...)
	}
	return out
}

// changesLogprobs says what makes the distribution that a server samples from differ from
// the model's. It returns "" if nothing does.
func changesLogprobs(s spec.Spec) string {
	if t := s.Sampling.Temperature; t != nil && *t != 1 {
		return fmt.Sprintf("sampling.temperature is %g", *t)
	}
	if s.Model.Codec != spec.CodecTemplate {
		return ""
	}
	codec, _, err := dialog.ReadCodecWith(s.Model.Base, update.CodecChoices(s))
	if err != nil {
		return "" // another finding says so
	}
	if sparse, ok := codec.(dialog.Sparse); ok {
		if n := sparse.Unused(codec.VocabSize()).Tokens(); n > 0 {
			return fmt.Sprintf("%d rows of the model's vocabulary have no token and are left out", n)
		}
	}
	return ""
}

// lacksForSleep lists what a server lacks that is to share its GPU with the trainer.
func (v VLLM) lacksForSleep(part float64) []string {
	const why = " (sampling.server.share_gpu)"
	var out []string
	if !v.Developing {
		out = append(out, sleepVariable+"=1"+why)
	}
	if !v.has("--enable-sleep-mode") {
		out = append(out, "--enable-sleep-mode"+why)
	}
	is, err := strconv.ParseFloat(v.Flags["--gpu-memory-utilization"], 64)
	if err != nil || part > 0 && is > part {
		out = append(out, fmt.Sprintf("--gpu-memory-utilization %g, which leaves room for the trainer's base%s", cmp.Or(part, usualPart), why))
	}
	return out
}

func (v VLLM) has(flag string) bool {
	_, given := v.Flags[flag]
	return given
}

func (v VLLM) number(flag string, usual int) int {
	n, err := strconv.Atoi(v.Flags[flag])
	if err != nil {
		return usual
	}
	return n
}

// apiServers returns how many processes answer on the server's port. By default there is
// one for each data-parallel engine, or a single one if each engine has its own port.
func (v VLLM) apiServers() int {
	usual := v.number("--data-parallel-size", 1)
	if v.has("--data-parallel-rank") || v.has("--data-parallel-external-lb") {
		usual = 1
	}
	return v.number("--api-server-count", usual)
}

// serveCommand returns a command that starts a vLLM server at address from which s can
// sample. part is the fraction of the GPU that a server may take if it shares the GPU; 0
// means that it is not known.
func serveCommand(s spec.Spec, address string, part float64) string {
	line, port := "vllm serve "+shell.Quote(s.Model.Base)+" --served-model-name "+shell.Quote(s.Sampling.Server.Model), vllmPort
	if u, err := url.Parse(address); err == nil {
		port = cmp.Or(u.Port(), port)
	}
	if port != vllmPort {
		line += " --port " + port
	}
	if changesLogprobs(s) != "" {
		line += " --logprobs-mode processed_logprobs"
	}
	l := s.Model.LoRA
	if l == nil || s.Sampling.Server.Versions != spec.VersionsAdapters {
		return line
	}
	line = updatesVariable + "=True " + line + fmt.Sprintf(" --enable-lora --max-lora-rank %s --max-loras %d", upstream.NeededRank(l.Rank), s.Training.Lag+1)
	if s.Sampling.Server.ShareGPU {
		line = sleepVariable + "=1 " + line + fmt.Sprintf(" --enable-sleep-mode --gpu-memory-utilization %g", cmp.Or(part, usualPart))
	}
	return line
}
