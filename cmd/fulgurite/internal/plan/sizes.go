package plan

import (
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/update"
)

// Sizes holds the bytes that a run takes, as computed from its spec and its model.
type Sizes struct {
	// Weights is the size of version 0's weights: of the whole model, or of its adapter. Of
	// several policies it is the sum of those that are trained.
	Weights int64 `json:"weights"`
	// Frozen is the size of the weights of frozen policies, which all versions share.
	Frozen int64 `json:"frozen_weights,omitempty"`
	// Base is the size of the frozen model under an adapter, which all versions and all
	// parts of a process share. It is 0 without an adapter.
	Base int64 `json:"base,omitempty"`
	// Packed is the size of the file that the native engine keeps next to the base and
	// maps into memory. It is 0 if there is no such file.
	Packed int64 `json:"packed_base,omitempty"`
	// Version is the size of each later version on disk: weights and two moments.
	Version int64 `json:"version"`
	// Critics is the part of Version that is of the critics of several policies.
	Critics int64 `json:"critics,omitempty"`
	// Kept is the largest number of versions whose files are kept at the same time,
	// including version 0 and the versions of a critic; those of the critics of several
	// policies are parts of the policies' versions. Disk is the space of all their files, of
	// the base and of the packed file.
	Kept int   `json:"versions_kept"`
	Disk int64 `json:"disk"`
	// Trainer is the memory that the trainer needs for weights, two moments, gradients
	// and the activations of a batch. Sampler is the memory for each version that
	// rollouts may ask for, and for one that is being loaded.
	Trainer int64 `json:"trainer_memory"`
	Sampler int64 `json:"sampler_memory"`
	// Token is the memory of the keys and values of one token while its reply is sampled;
	// Cache is the most that the sampler keeps of ended requests.
	Token int64 `json:"cache_per_token"`
	Cache int64 `json:"cache_kept"`
}

const (
	number = 4 // bytes: engines compute in float32
	// moments is the number of moments that AdamW keeps for each weight. gradient is the
	// number of gradients per weight, where a model is large enough for its memory to
	// matter.
	moments, gradient = 2, 1
	// positions is how many positions of a batch have activations in memory at once.
	positions = 256
)

// newSizes returns the sizes of a run of s with the given numbers of steps and of
// evaluations on the gate split. An adapter also trains the rows of tokens.
func newSizes(s spec.Spec, a model.Architecture, tokens []int32, steps, gates int) Sizes {
	weights, base, held := int64(a.Parameters())*number, int64(0), int64(0)
	if l := s.Model.LoRA; l != nil {
		weights = int64(adapterParameters(update.AdapterOf(*l, tokens), a)) * number
		base, held = baseBytes(precisionOf(*l), a)
	}
	of := Sizes{Trainer: activations(a), Token: int64(2*a.Layers*a.KVHeads*a.HeadDim) * number, Cache: native.KeptBytes(a)}
	if l := s.Model.LoRA; l != nil && usesNative(s) {
		of.Packed = native.PackedBytes(a, precisionOf(*l))
	}
	return sizesOf(s, weights, base, held, of, steps, gates)
}

// newFileSizes returns the sizes for a model that only engine torch computes, as computed
// from the model's files.
func newFileSizes(s spec.Spec, f *hf.Files, steps, gates int) Sizes {
	weights, base, held := f.Parameters()*number, int64(0), int64(0)
	if l := s.Model.LoRA; l != nil {
		targets := l.Targets
		if slices.Equal(targets, spec.LoRATargets()) {
			targets = nil
		}
		base, held = f.Bytes, weights
		weights = f.AdapterParameters(l.Rank, targets) * number
	}
	return sizesOf(s, weights, base, held, Sizes{Trainer: int64(positions*f.Architecture.VocabSize) * number}, steps, gates)
}

// sizesOf returns the sizes of a run whose weights and base have the given sizes.
// of.Trainer is the memory of a batch's activations.
func sizesOf(s spec.Spec, weights, base, held int64, of Sizes, steps, gates int) Sizes {
	z := Sizes{Weights: weights, Base: base, Version: (1 + moments) * weights, Kept: kept(s.Training, steps, gates)}
	if s.Training.Optimizer.Moments == spec.MomentsInt8 {
		z.Version = weights + weights/2 + weights/32 // a byte for each number, and its part of the scales
	}
	z.Disk = z.Weights + int64(z.Kept-1)*z.Version
	z.Trainer = (1+moments+gradient)*weights + of.Trainer
	if s.Evaluation.Only != "" || s.Optimizer != nil {
		z.Trainer = weights // nothing is trained
	}
	z.Sampler = int64(2+s.Training.Lag) * weights
	z.Token, z.Cache = of.Token, of.Cache
	if s.Sampling.Server != nil {
		z.Sampler, z.Token, z.Cache = 0, 0, 0
	}
	if s.Critic != nil { // trained in turns with the policy, under a head of its own
		z.Disk, z.Kept = 2*z.Disk, 2*z.Kept
	}
	if s.Loss.KL != nil || s.Credit.KLInReward != nil || s.Loss.HoldsPreferencesToFirst() {
		z.Trainer += weights // the reference stays
	}
	z.Packed = of.Packed
	z.Disk, z.Trainer = z.Disk+base+z.Packed, z.Trainer+held
	return z
}

// usesNative reports whether the CPU engine trains or samples.
func usesNative(s spec.Spec) bool {
	return s.Model.Engine == spec.EngineNative || s.Sampling.Server == nil && s.Sampling.Engine == spec.EngineNative
}

// precisionOf returns the precision of an adapter's base in memory.
func precisionOf(l spec.LoRA) model.Precision {
	return model.LoRA{BasePrecision: model.Precision(l.BasePrecision)}.Precision()
}

// baseBytes returns the size of an adapter's base on disk, and in a process.
func baseBytes(p model.Precision, a model.Architecture) (stored, held int64) {
	matrices, vectors := int64(0), int64(0)
	for _, t := range a.Tensors() {
		if len(t.Shape) > 1 {
			matrices += int64(t.Size())
		} else {
			vectors += int64(t.Size())
		}
	}
	stored, held = p.Bytes(matrices)
	return stored + vectors*number, held + vectors*number
}

// adapterParameters returns how many numbers of an adapter are trained.
func adapterParameters(l model.LoRA, a model.Architecture) (n int) {
	for _, t := range a.AdapterTensors(l) {
		n += t.Size()
	}
	return n
}

// kept returns the largest number of versions of one policy whose files are kept at the
// same time, which is while a step is being recorded.
func kept(t spec.Training, steps, gates int) int {
	if t.Keep == nil {
		return 1 + steps
	}
	n := 1 + max(t.Keep.Last, t.Lag+2) + 1 // version 0, the newest, and one that is made
	if t.Keep.Every > 0 {
		n += steps / t.Keep.Every
	}
	if t.Keep.Promoted {
		n += gates
	} else {
		n += min(gates, 2)
	}
	return min(n, 1+steps)
}

// activations returns the memory that an update keeps for the positions that it works on.
func activations(a model.Architecture) int64 {
	layer := 6*a.HiddenSize + 2*(a.Heads+2*a.KVHeads)*a.HeadDim + 3*a.FeedForward
	return int64(positions) * int64(a.Layers*layer+a.VocabSize) * number
}

// Memory returns the least memory that a process needs to sample and train.
func (z Sizes) Memory() int64 { return z.Trainer + z.Sampler }

// lines describes the sizes as readable text.
func (z Sizes) lines() []planLine {
	disk := fmt.Sprintf("%s a version (weights %s, the optimizer's moments %s); at most %d are kept: %s",
		size(z.Version), size(z.Weights), size(z.Version-z.Weights), z.Kept, size(z.Disk))
	if z.Base > 0 {
		disk += fmt.Sprintf(", with the base of %s that they share", size(z.Base))
	}
	if z.Critics > 0 {
		disk += fmt.Sprintf(", with %s a version for critics", size(z.Critics))
	}
	if z.Frozen > 0 {
		disk += fmt.Sprintf(", and %s of frozen policies", size(z.Frozen))
	}
	if z.Packed > 0 {
		disk += fmt.Sprintf(", and its packed form of %s, which processes map", size(z.Packed))
	}
	ram := fmt.Sprintf("about %s to train", size(z.Trainer))
	if z.Sampler > 0 {
		ram += fmt.Sprintf(", %s to sample, %s for each token of a request under way, and up to %s for those that go on from earlier ones",
			size(z.Sampler), size(z.Token), size(z.Cache))
	}
	return []planLine{{"disk", disk}, {"memory", ram}}
}

// CheckRoom returns an error if the run does not fit into free bytes of disk, or into the
// memory of this machine. total is that memory, or 0 if it is not known.
func (p Plan) CheckRoom(free, total int64) error {
	z := p.Sizes
	if z.Disk > free {
		remedy := "make room"
		switch {
		case p.Spec.Training.Keep == nil:
			remedy += ", or give training.keep, for example {last: 2, promoted: true}, so that the files of old versions are deleted"
		case p.Spec.Training.Keep.Every > 0 || p.Spec.Training.Keep.Promoted || p.Spec.Training.Keep.Last > 2:
			remedy += ", or keep fewer versions (training.keep)"
		}
		return terminal.Usagef("the run needs %s of disk for %d versions of %s each, and %s are free: %s, or take a smaller model.base",
			size(z.Disk), z.Kept, size(z.Version), size(free), remedy)
	}
	if least := z.Memory(); total > 0 && least > total {
		remedy := "take a smaller model.base"
		if p.Spec.Training.Lag > 0 {
			remedy += ", or a smaller training.lag"
		}
		return terminal.Usagef("the run needs about %s of memory (%s to train, %s to sample), and the machine has %s: %s",
			size(least), size(z.Trainer), size(z.Sampler), size(total), remedy)
	}
	return nil
}

// size returns a number of bytes as readable text.
func size(bytes int64) string {
	for _, unit := range []struct {
		bytes int64
		name  string
	}{{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if bytes >= unit.bytes {
			return fmt.Sprintf("%.3g %s", float64(bytes)/float64(unit.bytes), unit.name)
		}
	}
	return fmt.Sprintf("%d B", bytes)
}
