// Command contract compares engine torch, on whatever device it finds, with the native
// engine on the CPU: log-probabilities, gradients, replies, and the canary of a version.
// It prints a line of JSON and exits with 1 if a difference exceeds its bound. In float32
// the bounds are those of the tests. In bfloat16 they allow for the eight bits of its
// significand, on a small model.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/engine/torch"
)

// report is the printed JSON.
type report struct {
	Fingerprint string  `json:"fingerprint"`
	Models      []found `json:"models"`
	Passed      bool    `json:"passed"`
}

// found holds the differences for one model. Those of log-probabilities are in nats.
type found struct {
	Model string `json:"model"`
	// ScoreMean and ScoreMax are the differences between the log-probabilities of the two
	// engines.
	ScoreMean float64 `json:"score_mean"`
	ScoreMax  float64 `json:"score_max"`
	// Cosine is the smallest cosine between the engines' gradients, over all tensors.
	Cosine float64 `json:"gradient_cosine"`
	// ReplyMean and ReplyMax are the differences between the decoder and the trainer of
	// engine torch.
	ReplyMean float64 `json:"reply_mean"`
	ReplyMax  float64 `json:"reply_max"`
	// Same is the fraction of replies that equal those of the native engine, token by
	// token.
	Same   float64  `json:"same_replies"`
	Canary string   `json:"canary"`
	Broken []string `json:"broken"`
}

// bounds are the limits for the differences.
type bounds struct{ score, reply, most, cosine float64 }

func main() {
	most := flag.Int("replies", len(rows()), "how many replies each model samples")
	flag.Parse()
	r, err := run(context.Background(), min(max(1, *most), len(rows())))
	if err != nil {
		fmt.Fprintf(os.Stderr, "contract: %v\n", err)
		os.Exit(1)
	}
	out, err := json.Marshal(r)
	if err != nil {
		fmt.Fprintf(os.Stderr, "contract: encode the report: %v\n", err)
		os.Exit(1)
	}
	fmt.Println(string(out))
	if !r.Passed {
		os.Exit(1)
	}
}

func run(ctx context.Context, most int) (report, error) {
	e, err := torch.New(torch.Options{})
	if err != nil {
		return report{}, err
	}
	defer e.Close()
	r := report{Fingerprint: e.Fingerprint(), Passed: true}
	limits := bounds{score: 1e-4, reply: 1e-4, most: 1e-4, cosine: 0.9999}
	if strings.Contains(r.Fingerprint, " bfloat16 ") {
		limits = bounds{score: 0.02, reply: 0.02, most: 0.5, cosine: 0.98}
	}
	whole := model.Checkpoint{Architecture: architecture()}
	whole.Weights = whole.Architecture.Init(5)
	for name, c := range map[string]model.Checkpoint{"whole": whole, "adapter": adapted(whole)} {
		f, err := compare(ctx, e, native.New(native.Options{}), c, most)
		if err != nil {
			return report{}, fmt.Errorf("model %s: %w", name, err)
		}
		f.Model = name
		f.hold(limits)
		r.Models = append(r.Models, f)
		r.Passed = r.Passed && len(f.Broken) == 0
	}
	return r, nil
}

// hold lists the differences that exceed their bounds.
func (f *found) hold(b bounds) {
	f.Broken = []string{}
	for _, n := range []struct {
		name         string
		value, bound float64
	}{
		{"score_mean", f.ScoreMean, b.score}, {"score_max", f.ScoreMax, b.most},
		{"reply_mean", f.ReplyMean, b.reply}, {"reply_max", f.ReplyMax, b.most}, {"gradient_cosine", -f.Cosine, -b.cosine},
	} {
		if within := n.value <= n.bound; !within { // false for NaN
			f.Broken = append(f.Broken, n.name)
		}
	}
	if f.Canary != "reproduced" {
		f.Broken = append(f.Broken, "canary")
	}
}

// gumbelMean is the mean of model.GumbelNoise: Euler's constant.
const gumbelMean = 0.5772

func architecture() model.Architecture {
	return model.Architecture{
		VocabSize: 500, HiddenSize: 128, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 32, FeedForward: 256,
		MaxPositions: 256, RopeTheta: 1e6, NormEpsilon: 1e-6, QKVBias: true, Tied: true,
	}
}

// adapted returns an adapter of rank 4 over base, with random numbers of mean 0 in both of
// its matrices. With another mean, hidden states of the small model all but cancel, and
// rounding to bfloat16 alone turns gradients of the first layer around.
func adapted(base model.Checkpoint) model.Checkpoint {
	l := model.LoRA{Rank: 4, Alpha: 8, Targets: model.LoRATargets()}
	c := model.Checkpoint{Architecture: base.Architecture, Weights: base.Architecture.AdapterTensors(l), Adapter: &model.Adapter{LoRA: l, Base: &model.Base{
		Digest: "sha256:contract", Size: 1, Architecture: base.Architecture, Each: func(use func(model.Tensor) error) error {
			for _, w := range base.Weights {
				if err := use(w); err != nil {
					return err
				}
			}
			return nil
		},
	}}}
	for i := range c.Weights {
		w := &c.Weights[i]
		w.Data = make([]float32, w.Size())
		model.GumbelNoise(3, i, w.Data)
		for j := range w.Data {
			w.Data[j] = 0.05 * (w.Data[j] - gumbelMean)
		}
	}
	return c
}

func rows() []model.Row {
	all := make([]model.Row, 12)
	for i := range all {
		all[i] = model.Row{Tokens: make([]int32, 20+11*i), Temperature: []float64{1, 0.7, 1.5}[i%3]}
		for j := range all[i].Tokens {
			all[i].Tokens[j] = int32((i*i*31 + j*j*7 + 13*j) % 500)
		}
	}
	return all
}

func compare(ctx context.Context, e *torch.Engine, other model.Engine, c model.Checkpoint, most int) (found, error) {
	var f found
	a, b, err := trainers(e, other, c)
	if err != nil {
		return f, err
	}
	defer a.Close()
	defer b.Close()
	got, _, err := a.Score(ctx, rows())
	if err != nil {
		return f, err
	}
	want, _, err := b.Score(ctx, rows())
	if err != nil {
		return f, err
	}
	f.ScoreMean, f.ScoreMax = apart(want, got)
	if err := f.replies(ctx, e, other, a, c, rows()[:most]); err != nil {
		return f, err
	}
	f.Cosine = 1
	opt := model.AdamW{LearningRate: 1e-4, Epsilon: 1e-8} // the first moment is then the gradient
	for _, t := range []model.Trainer{a, b} {
		if _, err := t.Update(ctx, rows(), slopes, opt); err != nil {
			return f, err
		}
	}
	x, y := a.Checkpoint().Mean, b.Checkpoint().Mean
	for i := range x {
		f.Cosine = min(f.Cosine, cosine(x[i].Data, y[i].Data))
	}
	return f, nil
}

func trainers(e, other model.Engine, c model.Checkpoint) (a, b model.Trainer, err error) {
	if a, err = e.NewTrainer(c); err != nil {
		return nil, nil, err
	}
	if b, err = other.NewTrainer(c); err != nil {
		a.Close()
	}
	return a, b, err
}

// replies samples with both engines. t, a trainer of e, then scores the replies of e.
func (f *found) replies(ctx context.Context, e *torch.Engine, other model.Engine, t model.Trainer, c model.Checkpoint, prompts []model.Row) error {
	d, err := e.NewDecoder(c)
	if err != nil {
		return err
	}
	defer d.Close()
	canary, err := model.NewCanary(ctx, e, c.Architecture, t)
	if err != nil {
		return err
	}
	f.Canary = "reproduced"
	if err := canary.Verify(ctx, e, d); errors.Is(err, model.ErrWrongWeights) {
		f.Canary = err.Error()
	} else if err != nil {
		return err
	}
	plain, err := other.NewDecoder(c)
	if err != nil {
		return err
	}
	defer plain.Close()
	var said, scored [][]float32
	for i, r := range prompts {
		q := model.DecodeRequest{Prompt: r.Tokens, MaxTokens: 60, Temperature: 1, Seed: uint64(i)}
		got, err := d.Decode(ctx, q)
		if err != nil {
			return err
		}
		want, err := plain.Decode(ctx, q)
		if err != nil {
			return err
		}
		if fmt.Sprint(got.Tokens) == fmt.Sprint(want.Tokens) {
			f.Same += 1 / float64(len(prompts))
		}
		own, _, err := t.Score(ctx, []model.Row{{Tokens: append(q.Prompt, got.Tokens...), Temperature: 1}})
		if err != nil {
			return err
		}
		said, scored = append(said, got.Logprobs), append(scored, own[0][len(r.Tokens)-1:])
	}
	f.ReplyMean, f.ReplyMax = apart(said, scored)
	return nil
}

// slopes is an objective whose derivatives are fixed numbers of both signs.
func slopes(row int, logprobs, _ []float32, gradient, entropyGradient []float32) {
	for i := range logprobs {
		gradient[i] = float32(math.Sin(float64(3*row + i + 1)))
		entropyGradient[i] = 0.1 * float32(math.Cos(float64(row-2*i)))
	}
}

// apart returns the mean and the largest of the absolute differences.
func apart(a, b [][]float32) (mean, most float64) {
	n := 0
	for i := range a {
		for j, x := range a[i] {
			d := math.Abs(float64(x) - float64(b[i][j]))
			mean, most, n = mean+d, max(most, d), n+1
		}
	}
	return mean / float64(n), most
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i, x := range a {
		y := float64(b[i])
		ab, aa, bb = ab+float64(x)*y, aa+float64(x)*float64(x), bb+y*y
	}
	return ab / math.Sqrt(aa*bb)
}
