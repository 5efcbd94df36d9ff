package native_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

// reference is the transformer as Hugging Face defines it, in double precision and
// without optimization.
type reference struct {
	model.Architecture
	tensors map[string][]float32
}

func newReference(a model.Architecture, w model.Weights) reference {
	r := reference{a, map[string][]float32{}}
	for _, t := range w {
		r.tensors[t.Name] = t.Data
	}
	return r
}

// linear returns W·x + bias; the bias is optional.
func (r reference) linear(name string, x []float64) []float64 {
	w, bias := r.tensors[name+".weight"], r.tensors[name+".bias"]
	out := make([]float64, len(w)/len(x))
	for o := range out {
		if bias != nil {
			out[o] = float64(bias[o])
		}
		for i, v := range x {
			out[o] += float64(w[o*len(x)+i]) * v
		}
	}
	return out
}

func (r reference) norm(name string, x []float64) []float64 {
	w, sum := r.tensors[name+".weight"], 0.0
	for _, v := range x {
		sum += v * v
	}
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v / math.Sqrt(sum/float64(len(x))+r.NormEpsilon) * float64(w[i])
	}
	return out
}

func (r reference) rotate(head []float64, position int) []float64 {
	half, out := len(head)/2, make([]float64, len(head))
	for i := range half {
		sin, cos := math.Sincos(float64(position) / math.Pow(r.RopeTheta, 2*float64(i)/float64(len(head))))
		out[i], out[i+half] = head[i]*cos-head[i+half]*sin, head[i+half]*cos+head[i]*sin
	}
	return out
}

// heads returns the heads of a projection, with the norm and the rotation that apply to
// its kind.
func (r reference) heads(prefix, kind string, x []float64, position int) [][]float64 {
	var heads [][]float64
	all := r.linear(prefix+"self_attn."+kind+"_proj", x)
	for from := 0; from < len(all); from += r.HeadDim {
		head := all[from : from+r.HeadDim]
		if r.QKNorm && kind != "v" {
			head = r.norm(prefix+"self_attn."+kind+"_norm", head)
		}
		if kind != "v" {
			head = r.rotate(head, position)
		}
		heads = append(heads, head)
	}
	return heads
}

func softmax(x []float64) []float64 {
	most, sum, out := x[0], 0.0, make([]float64, len(x))
	for _, v := range x {
		most = max(most, v)
	}
	for i, v := range x {
		out[i] = math.Exp(v - most)
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

func (r reference) layer(prefix string, stream [][]float64) {
	var queries, keys, values [][][]float64
	for t, x := range stream {
		h := r.norm(prefix+"input_layernorm", x)
		queries = append(queries, r.heads(prefix, "q", h, t))
		keys, values = append(keys, r.heads(prefix, "k", h, t)), append(values, r.heads(prefix, "v", h, t))
	}
	for t, x := range stream {
		var mixed []float64
		for head, q := range queries[t] {
			kv, scores := head*r.KVHeads/r.Heads, make([]float64, t+1)
			for s := range scores {
				for i := range q {
					scores[s] += q[i] * keys[s][kv][i] / math.Sqrt(float64(r.HeadDim))
				}
			}
			out := make([]float64, r.HeadDim)
			for s, p := range softmax(scores) {
				for i := range out {
					out[i] += p * values[s][kv][i]
				}
			}
			mixed = append(mixed, out...)
		}
		for i, v := range r.linear(prefix+"self_attn.o_proj", mixed) {
			x[i] += v
		}
		h := r.norm(prefix+"post_attention_layernorm", x)
		gate, up := r.linear(prefix+"mlp.gate_proj", h), r.linear(prefix+"mlp.up_proj", h)
		for i, g := range gate {
			up[i] *= g / (1 + math.Exp(-g))
		}
		for i, v := range r.linear(prefix+"mlp.down_proj", up) {
			x[i] += v
		}
	}
}

// stream returns the stream before the last norm, for all tokens but the last.
func (r reference) stream(tokens []int32) [][]float64 {
	embedding := r.tensors["model.embed_tokens.weight"]
	var stream [][]float64
	for _, t := range tokens[:len(tokens)-1] {
		x := make([]float64, r.HiddenSize)
		for i := range x {
			x[i] = float64(embedding[int(t)*r.HiddenSize+i])
		}
		stream = append(stream, x)
	}
	for l := range r.Layers {
		r.layer("model.layers."+strconv.Itoa(l)+".", stream)
	}
	return stream
}

// logprobs returns the log-probabilities of tokens[1:].
func (r reference) logprobs(tokens []int32, temperature float64) []float64 {
	head := "lm_head"
	if r.Tied {
		head = "model.embed_tokens"
	}
	var out []float64
	for t, x := range r.stream(tokens) {
		logits := r.linear(head, r.norm("model.norm", x))
		for i := range logits {
			logits[i] /= temperature
		}
		out = append(out, math.Log(softmax(logits)[tokens[t+1]]))
	}
	return out
}

func TestLogprobsAreThoseOfTheReference(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		w, batch := weights(a, 8), rows(a, 8, 70, 6)
		a.MaxPositions = 300
		batch = append(batch, longRow(a, 280)) // does not keep its attention
		r := newReference(a, w)
		logprobs, _ := score(t, trainer(t, engine(kernelName, 2), a, w), batch)
		for i, row := range batch {
			temperature := row.Temperature
			if temperature == 0 {
				temperature = 1
			}
			for j, want := range r.logprobs(row.Tokens, temperature) {
				require.InDelta(t, want, logprobs[i][j], 1e-4, "row %d, position %d", i, j)
			}
		}
	})
}
