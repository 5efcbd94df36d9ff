package torch

import (
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/model"
)

// These are the bytes of one number in BF16, in F32 and, for moments, in 8 bits.
const (
	halfBytes  = 2
	floatBytes = 4
	int8Bytes  = 1
)

const (
	// The activations of a pass may take one partForBatch-th of a GPU's memory (PART_KEPT
	// of program/trunk.py). reserve is the number of bytes that CUDA itself takes.
	partForBatch = 8
	reserve      = 500e6
	usualGPUs    = 8 // in a machine; ranks are processes of one
)

// OfferedRank is the rank of the adapter that Advice offers.
const OfferedRank = 16

// Room holds the sizes that decide how much memory of a GPU training takes.
//
// A trained parameter takes 16 bytes: its value, its gradient and AdamW's two moments
// (Kingma and Ba, 2015) in F32. With moments in 8 bits (Dettmers et al., 2022) it takes
// 10 bytes. A parameter of a base that is not trained takes 2 bytes, in BF16
// (program/learner.py, program/moments.py, program/trunk.py). Ranks share everything but
// adapters, as with FSDP2. The scales of 8-bit moments, a thirtieth of a byte, are not
// counted.
type Room struct {
	Parameters int64 // of the whole model
	// Adapter is the number of parameters of the trained adapter; 0 if all weights are
	// trained.
	Adapter int64
	// Offered is the number of parameters of an adapter of OfferedRank that could be
	// trained in place of all weights; 0 if it is not known.
	Offered int64
	Int8    bool // moments
	Ranks   int  // 0 counts as 1
	// Samples says that rank 0 also samples. If there are several ranks, it samples from
	// separate weights: in BF16 over an adapter's base, else in F32.
	Samples bool
	// Single says that the model is of a type that supports neither several ranks nor
	// 8-bit moments.
	Single bool
}

// RoomOf returns the room that training a model takes, with the adapter l if that is not
// nil. It computes the sizes from the architecture. For a model of another type, with
// Config, it leaves them 0, and the caller must set them.
func RoomOf(a model.Architecture, l *model.LoRA, moments string) Room {
	r := Room{Int8: moments == model.MomentsInt8, Single: a.Config != ""}
	if r.Single {
		return r
	}
	r.Parameters = int64(a.Parameters())
	if l != nil {
		r.Adapter = size(a.AdapterTensors(*l))
	} else {
		r.Offered = size(a.AdapterTensors(model.LoRA{Rank: OfferedRank, Targets: model.LoRATargets()}))
	}
	return r
}

func size(w model.Weights) (n int64) {
	for _, t := range w {
		n += int64(t.Size())
	}
	return n
}

// Bytes returns the memory that training keeps on the first GPU, which keeps the most.
// The memory of a batch comes in addition.
func (r Room) Bytes() int64 {
	held := r.Parameters * r.trained()
	if r.Adapter > 0 {
		held = r.Parameters * halfBytes
	}
	ranks := int64(max(1, r.Ranks))
	held /= ranks
	if ranks > 1 && r.Samples {
		held += r.Parameters * r.sampled()
	}
	return held + r.Adapter*r.trained()
}

// trained returns the bytes of a parameter that is trained.
func (r Room) trained() int64 {
	if r.Int8 {
		return 2*floatBytes + 2*int8Bytes
	}
	return 4 * floatBytes
}

// sampled returns the bytes of a parameter that rank 0 samples from.
func (r Room) sampled() int64 {
	if r.Adapter > 0 {
		return halfBytes
	}
	return floatBytes
}

// Fits reports whether training and its batches have room on a GPU with so many bytes.
func (r Room) Fits(memory int64) bool { return r.Bytes() <= budget(memory) }

// budget returns a GPU's memory without the parts for a batch and for CUDA.
func budget(memory int64) int64 { return memory - memory/partForBatch - reserve }

// Advice lists changes with which training would fit on GPUs with so many bytes, each
// with the memory that it would keep on one GPU. They are in the order of their cost for
// the user: an adapter, 8-bit moments, more GPUs, a smaller model.
func (r Room) Advice(memory int64) []string {
	var out []string
	offer := func(what string, of Room) bool {
		if of.Fits(memory) {
			out = append(out, fmt.Sprintf("%s (%s)", what, gigabytes(of.Bytes())))
			return true
		}
		return false
	}
	small, adapts := r.adapter(), false
	if r.Adapter == 0 && r.Offered > 0 {
		adapts = offer(fmt.Sprintf("an adapter in place of all weights: model.lora of rank %d", OfferedRank), small)
	}
	if !r.Int8 && !r.Single {
		of := r
		of.Int8 = true
		offer("training.optimizer.moments: int8", of)
	}
	if !r.Single {
		r.spread("", offer)
		if r.Adapter == 0 && r.Offered > 0 && !adapts {
			small.spread(" and model.lora", offer)
		}
	}
	return append(out, fmt.Sprintf("a model.base of at most about %s parameters%s", billions(r.most(memory)), r.maxWithAdapter(memory)))
}

// adapter returns r with the offered adapter.
func (r Room) adapter() Room {
	r.Adapter, r.Offered = r.Offered, 0
	return r
}

// spread offers the smallest number of ranks that would be enough. If there is none, it
// offers the smallest number with sampling on servers.
func (r Room) spread(besides string, offer func(string, Room) bool) {
	for _, samples := range []bool{true, false} {
		of, more := r, besides
		if of.Samples = of.Samples && samples; of.Samples != r.Samples {
			more = " and sampling.server" + besides
		}
		for of.Ranks = max(1, r.Ranks) + 1; of.Ranks <= usualGPUs; of.Ranks++ {
			if offer(fmt.Sprintf("%d such GPUs: %s=%d%s", of.Ranks, EnvRanks, of.Ranks, more), of) {
				return
			}
		}
		if !r.Samples {
			return
		}
	}
}

// most returns the number of parameters that fit. It assumes that an adapter grows in
// proportion to the model.
func (r Room) most(memory int64) float64 {
	of := r
	of.Parameters, of.Adapter = 1e9, 0
	if r.Adapter > 0 {
		of.Adapter = max(1, int64(1e9*float64(r.Adapter)/float64(r.Parameters)))
	}
	return max(0, float64(budget(memory))/float64(of.Bytes()))
}

// maxWithAdapter returns the same for an adapter, if all weights were to be trained.
func (r Room) maxWithAdapter(memory int64) string {
	if r.Adapter > 0 || r.Offered == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s with model.lora)", billions(r.adapter().most(memory)))
}

// billions formats a number of parameters for the user.
func billions(n float64) string {
	if n < 1 {
		return fmt.Sprintf("%.3g million", n*1000)
	}
	return fmt.Sprintf("%.3g billion", n)
}

func gigabytes(n int64) string { return fmt.Sprintf("%.3g GB", float64(n)/1e9) }

// tooLittle returns what to do when a GPU with so many bytes ran out of memory; 0 means
// that its memory is not known.
func (r Room) tooLittle(memory int64) string {
	switch {
	case memory == 0 || r.Parameters == 0:
		return "train an adapter (model.lora), lower its rank, or take a smaller model"
	case r.Fits(memory):
		return fmt.Sprintf("weights, gradient and moments take %s of %s, so the rest went to a batch, or to another program on the GPU: give shorter rows (sampling.max_tokens, agent.limits), end the other program, or take one of these: %s",
			gigabytes(r.Bytes()), gigabytes(memory), strings.Join(r.Advice(memory), "; "))
	}
	return fmt.Sprintf("weights, gradient and moments take %s of %s, and a batch comes on top; what would fit: %s",
		gigabytes(r.Bytes()), gigabytes(memory), strings.Join(r.Advice(memory), "; "))
}
