package testsuite_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/assign"
	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
	maker "github.com/fulgurite/fulgurite/update"
)

// The tolerances for whole steps of different engines. Metrics are compared relatively
// (or absolutely below 1), first moments relative to the length of the tensor's first
// moment, and weights by weightTolerance.
const (
	metricTolerance = 2e-4
	momentTolerance = 2e-4
)

// trainings returns a spec for each algorithm, loss, estimator and correction.
func trainings() map[string]spec.Spec {
	of := func(algorithm string, loss spec.Loss) spec.Spec {
		s := spec.Spec{
			Algorithm: algorithm, Agent: spec.Agent{Func: "agent"}, Tasks: spec.Tasks{Train: "tasks.jsonl"}, Grader: spec.Grader{Type: "exact"}, Loss: loss,
			Training: spec.Training{Steps: 1, TasksPerStep: 4, SamplesPerTask: 3, Optimizer: spec.Optimizer{LearningRate: 1e-3}},
		}
		if algorithm == "gdpo" {
			s.Credit.Rewards = map[string]float64{credit.Final: 1, "style": 0.5}
		}
		return s
	}
	all := map[string]spec.Spec{"dual clip": of("grpo", spec.Loss{DualClip: 1.1}), "entropy": of("grpo", spec.Loss{Entropy: 0.01})}
	for _, name := range spec.Algorithms() {
		all[name] = of(name, spec.Loss{})
	}
	for _, kind := range credit.LossTypes() {
		all["loss "+string(kind)] = of("", spec.Loss{Type: kind})
	}
	for _, estimator := range []credit.Estimator{credit.KL1, credit.KL2, credit.KL3, credit.Unbiased} {
		all["kl "+string(estimator)] = of("grpo", spec.Loss{KL: &spec.KL{Estimator: estimator, Weight: 0.1}})
	}
	for _, kind := range credit.Corrections() {
		all["correction "+string(kind)] = of("grpo", spec.Loss{Correction: kind})
	}
	return all
}

// attempts returns groups of attempts with two calls each, by version 0. Their tokens
// were sampled from distributions that differ a little from those of scored.
func attempts(t *testing.T, scored model.Trainer, vocab int) [][]assign.Sample {
	t.Helper()
	var groups [][]assign.Sample
	for group := range 4 {
		var samples []assign.Sample
		for sample := range 3 {
			n := 3*group + sample
			tokens := make([]int32, 14+n)
			for j := range tokens {
				tokens[j] = int32((n*n + 5*j + j*j/2 + 3) % vocab)
			}
			logprobs, _, err := scored.Score(t.Context(), []model.Row{{Tokens: tokens, Temperature: 1}})
			require.NoError(t, err)
			for j := range logprobs[0] {
				logprobs[0][j] += float32(0.3 * math.Sin(float64(7*n+3*j)))
			}
			a := record.Address{RolloutID: record.RolloutID{Run: "losses", Kind: record.Train, Step: 1, Task: group, Sample: sample}, Attempt: 1}
			reward := float64((n*7+sample)%5) / 4
			one := assign.Sample{Calls: make([]signals.Call, 2)}
			one.Address, one.Outcome, one.Reward = a, record.OutcomeCompleted, &reward
			one.Rewards = []record.Reward{{Name: "style", Value: float64((n * 3) % 4)}}
			for seq, part := range [][2]int{{4, 8}, {10, len(tokens)}} {
				from, to := part[0], part[1]
				one.History = append(one.History, record.Call{
					Address: a, Seq: seq, Parent: seq - 1, Policy: model.DefaultPolicy, Temperature: 1,
					Prompt: tokens[:from], Completion: tokens[from:to], Logprobs: logprobs[0][from-1 : to-1],
				})
				values := make([]float32, to-from)
				for j := range values {
					values[j] = float32(0.5 + 0.3*math.Cos(float64(n+j)))
				}
				one.Values = append(one.Values, values)
				one.Calls[seq].State = fmt.Sprint(group, seq)
			}
			samples = append(samples, one)
		}
		groups = append(groups, samples)
	}
	return groups
}

// records are a real store, in which runs have a version 0 of the same weights.
type records struct {
	*store.Store
	blobs *blob.Store
	start model.Checkpoint
}

func newRecords(t *testing.T) records {
	t.Helper()
	dir := t.TempDir()
	s, err := store.Open(t.Context(), filepath.Join(dir, "store.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	b, err := blob.Open(filepath.Join(dir, "blobs"))
	require.NoError(t, err)
	return records{s, b, randomCheckpoint(model.Tiny(40))}
}

// step makes an engine train version 1 of a run on a batch, and returns the version and
// its checkpoint.
func (r records) step(t *testing.T, e model.Engine, run string, s spec.Spec, batch string) (model.Version, model.Checkpoint) {
	t.Helper()
	id := model.VersionID{Run: run, Policy: model.DefaultPolicy}
	manifest, weights, err := checkpoint.Save(t.Context(), r.blobs, r.start, model.Manifest{
		Policy: id.Policy, Parent: -1, Codec: "compact", Engine: e.Name(), Fingerprint: e.Fingerprint(),
	})
	require.NoError(t, err)
	_, _, err = r.PutVersion(t.Context(), model.Version{VersionID: id, Parent: -1, Manifest: manifest, Weights: weights, Fingerprint: e.Fingerprint()})
	require.NoError(t, err)
	m := &maker.Maker{Config: maker.Config{Versions: r, Blobs: r.blobs, SaveEvery: 100, Warn: func(context.Context, string, ...any) {}}}
	defer m.Close()
	id.Number = 1
	v, err := m.Policy(t.Context(), maker.Target{ID: id, Batch: batch}, maker.Run{Name: run, SpecDigest: "spec", Tasks: 4, Spec: s, Engine: e})
	require.NoError(t, err)
	c, _, err := checkpoint.Load(t.Context(), r.blobs, v.Manifest)
	require.NoError(t, err)
	return v, c
}

// Everything between rewards and weights takes part: advantages, losses, corrections, the
// reference, passes and minibatches, clipping and AdamW.
func TestEnginesAgreeOnStepsOfEveryLoss(t *testing.T) {
	t.Parallel()
	skipShort(t, "arithmetic")
	t.Run("torch", func(t *testing.T) {
		t.Parallel()
		agreeOnSteps(t)
	})
}

func agreeOnSteps(t *testing.T) {
	t.Helper()
	r, engines := newRecords(t), []model.Engine{native.New(native.Options{Threads: 1}), torchEngine(t)}
	scored, err := engines[0].NewTrainer(r.start)
	require.NoError(t, err)
	defer scored.Close()
	groups := attempts(t, scored, r.start.Architecture.VocabSize)
	all := trainings()
	moved, most := map[string]bool{}, differences{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, updates := range []int{1, 4} {
			s := all[name]
			if updates == 4 {
				s.Training.Passes, s.Training.Minibatches = 2, 2
			}
			s = s.WithDefaults()
			require.NoError(t, s.Validate(), name)
			made, err := maker.NewBatch(s, model.Batch{Policy: model.DefaultPolicy, Step: 1, VocabSize: r.start.Architecture.VocabSize}, nil, groups)
			require.NoError(t, err, name)
			data, err := hf.EncodeBatch(made.Batch)
			require.NoError(t, err, name)
			digest, err := r.blobs.Put(t.Context(), data)
			require.NoError(t, err)
			t.Run(fmt.Sprint(name, ", updates ", updates), func(t *testing.T) {
				var versions []model.Version
				var after []model.Checkpoint
				for _, e := range engines {
					v, c := r.step(t, e, fmt.Sprint(name, updates, e.Name()), s, digest)
					versions, after = append(versions, v), append(after, c)
				}
				require.Equal(t, updates, after[0].Updates)
				require.Equal(t, updates, after[1].Updates)
				require.Positive(t, versions[0].Metrics["train/gradient_norm"])
				most.add(stepDifferences(s.Training.Optimizer.LearningRate, versions, after))
				most.requireSmall(t)
				moved[versions[0].Weights] = true
			})
		}
	}
	require.Greater(t, len(moved), len(all), "losses differ from one another")
	t.Logf("%d steps; largest differences: %+v", 2*len(all), most)
}

// differences are the largest between two engines.
type differences struct {
	metric, moment, weight float64 // weight in learning rates
	at                     string  // the metric
}

func (d *differences) add(o differences) {
	if o.metric > d.metric {
		d.metric, d.at = o.metric, o.at
	}
	d.moment, d.weight = math.Max(d.moment, o.moment), math.Max(d.weight, o.weight)
}

func (d *differences) requireSmall(t *testing.T) {
	t.Helper()
	require.LessOrEqual(t, d.metric, metricTolerance, d.at)
	require.LessOrEqual(t, d.moment, momentTolerance)
	require.LessOrEqual(t, d.weight, weightTolerance)
}

func stepDifferences(rate float64, versions []model.Version, after []model.Checkpoint) (d differences) {
	want, got := versions[0].Metrics, versions[1].Metrics
	for key, w := range want {
		g, there := got[key]
		if !there || math.IsNaN(g) {
			g = math.Inf(1)
		}
		d.add(differences{metric: math.Abs(w-g) / math.Max(1, math.Abs(w)), at: key})
	}
	for i, w := range after[0].Weights {
		other, mean := after[1].Weights[i].Data, 0.0
		for j := range w.Data {
			mean += math.Abs(float64(w.Data[j])-float64(other[j])) / float64(len(other))
		}
		m := after[0].Mean[i]
		d.add(differences{moment: distance(m.Data, after[1].Mean[i].Data) / distance(m.Data, nil), weight: mean / rate})
	}
	return d
}
