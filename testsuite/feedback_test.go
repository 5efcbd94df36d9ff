package testsuite_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	maker "github.com/fulgurite/fulgurite/update"
)

// feedbackTokens returns n tokens of a vocabulary of 40, which differ with seed.
func feedbackTokens(seed, n int) []int32 {
	out := make([]int32, n)
	for j := range out {
		out[j] = int32((seed*seed + 7*seed + 5*j + j*j/2 + 3) % 40)
	}
	return out
}

// feedbackBatch returns a batch of texts or of pairs for six prompts.
func feedbackBatch(objective model.RowObjective) model.Batch {
	b := model.Batch{Policy: model.DefaultPolicy, Step: 1, VocabSize: 40}
	for i := range 6 {
		prompt, good, bad := feedbackTokens(i, 2+i), feedbackTokens(10+i, 3+i), feedbackTokens(20+i, 5)
		b.Trajectories = append(b.Trajectories, model.BatchTrajectory{Attempt: fmt.Sprint("reply ", i), Group: i})
		if objective == model.Supervised {
			b.Rows = append(b.Rows, model.SupervisedRow(prompt, good, i))
			continue
		}
		pair := model.PreferenceRows(prompt, good, bad, i, i, i)
		b.Rows = append(b.Rows, pair[i%2], pair[1-i%2])
	}
	b.Count()
	return b
}

// feedbackSpec returns a spec whose steps make passes × minibatches updates.
func feedbackSpec(passes, minibatches int, loss spec.Loss) spec.Spec {
	return spec.Spec{
		Agent: spec.Agent{Func: "agent"}, Tasks: spec.Tasks{Train: "tasks.jsonl"}, Grader: spec.Grader{Type: "exact"}, Loss: loss,
		Training: spec.Training{
			Steps: 1, TasksPerStep: 4, SamplesPerTask: 3, Passes: passes, Minibatches: minibatches, Optimizer: spec.Optimizer{LearningRate: 1e-3},
		},
	}.WithDefaults()
}

func (r records) put(t *testing.T, b model.Batch) string {
	t.Helper()
	data, err := hf.EncodeBatch(b)
	require.NoError(t, err)
	digest, err := r.blobs.Put(t.Context(), data)
	require.NoError(t, err)
	return digest
}

// first records version 0 of a run.
func (r records) first(t *testing.T, run string, e model.Engine, start model.Checkpoint) {
	t.Helper()
	manifest, weights, err := checkpoint.Save(t.Context(), r.blobs, start, model.Manifest{
		Policy: model.DefaultPolicy, Parent: -1, Codec: "compact", Engine: e.Name(), Fingerprint: e.Fingerprint(),
	})
	require.NoError(t, err)
	_, _, err = r.PutVersion(t.Context(), model.Version{
		VersionID: model.VersionID{Run: run, Policy: model.DefaultPolicy}, Parent: -1, Manifest: manifest, Weights: weights, Fingerprint: e.Fingerprint(),
	})
	require.NoError(t, err)
}

// next makes version number of a run from the one before.
func (r records) next(t *testing.T, run string, number int, e model.Engine, s spec.Spec, batch string) (model.Version, error) {
	t.Helper()
	m := &maker.Maker{Config: maker.Config{Versions: r, Blobs: r.blobs, Attempts: r, SaveEvery: 1, Warn: func(context.Context, string, ...any) {}}}
	defer m.Close()
	id := model.VersionID{Run: run, Policy: model.DefaultPolicy, Number: number}
	return m.Policy(t.Context(), maker.Target{ID: id, Parent: number - 1, Batch: batch}, maker.Run{Name: run, SpecDigest: "spec", Tasks: 4, Spec: s, Engine: e})
}

func (r records) checkpoint(t *testing.T, v model.Version) model.Checkpoint {
	t.Helper()
	c, _, err := checkpoint.Load(t.Context(), r.blobs, v.Manifest)
	require.NoError(t, err)
	return c
}

// sums returns the sum of the log-probabilities of the trained tokens of each row.
func sums(t *testing.T, e model.Engine, c model.Checkpoint, b model.Batch) []float64 {
	t.Helper()
	scorer, err := e.NewTrainer(c)
	require.NoError(t, err)
	defer scorer.Close()
	logprobs, _, err := scorer.Score(t.Context(), b.EngineRows())
	require.NoError(t, err)
	out := make([]float64, len(b.Rows))
	for i, r := range b.Rows {
		for j, x := range logprobs[i] {
			if r.Sampled[j+1] {
				out[i] += float64(x)
			}
		}
	}
	return out
}

func TestPreferencesRaiseWhatWasChosenOverWhatWasRejected(t *testing.T) {
	t.Parallel()
	r, e, b := newRecords(t), native.New(native.Options{Threads: 1}), feedbackBatch(model.Preference)
	r.first(t, "dpo", e, r.start)
	v, err := r.next(t, "dpo", 1, e, feedbackSpec(6, 2, spec.Loss{}), r.put(t, b))
	require.NoError(t, err)
	before, after := sums(t, e, r.start, b), sums(t, e, r.checkpoint(t, v), b)
	pairs, err := b.Pairs([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	require.NoError(t, err)
	for _, p := range pairs {
		require.Greater(t, after[p.Chosen]-before[p.Chosen], after[p.Rejected]-before[p.Rejected], p)
	}
	require.InDelta(t, 12, v.Metrics["train/updates"], 0)
	require.Less(t, v.Metrics["train/last_loss"], math.Ln2, "the loss of a policy that is its reference")
	require.InDelta(t, 1, v.Metrics["train/last_preference_accuracy"], 0)
	require.Positive(t, v.Metrics["train/last_preference_margin"])
	require.Empty(t, v.Scores, "nothing was recorded with which they could be compared")
}

func TestCorrectedTextBecomesMoreLikely(t *testing.T) {
	t.Parallel()
	r, e, b := newRecords(t), native.New(native.Options{Threads: 1}), feedbackBatch(model.Supervised)
	r.first(t, "texts", e, r.start)
	v, err := r.next(t, "texts", 1, e, feedbackSpec(6, 2, spec.Loss{}), r.put(t, b))
	require.NoError(t, err)
	before, after := sums(t, e, r.start, b), sums(t, e, r.checkpoint(t, v), b)
	for i := range b.Rows {
		require.Greater(t, after[i], before[i], i)
	}
	require.Less(t, v.Metrics["train/last_loss"], v.Metrics["train/loss"])
	require.Empty(t, v.Scores)
}

// What a sampler recorded is read of no batch of feedback: neither a correction, nor a
// bound of the mismatch, nor a clip changes the weights or stops the step, and no record of
// attempts is looked for.
func TestFeedbackReadsNothingOfASampler(t *testing.T) {
	t.Parallel()
	r, e := newRecords(t), native.New(native.Options{Threads: 1})
	for _, objective := range []model.RowObjective{model.Supervised, model.Preference} {
		digest, weights := r.put(t, feedbackBatch(objective)), map[string]bool{}
		for i, change := range []func(*spec.Spec){
			func(*spec.Spec) {},
			func(s *spec.Spec) { s.Loss.Type, s.Loss.Correction = credit.LossGSPO, credit.MIS },
			func(s *spec.Spec) { s.Loss.Type = credit.LossImportanceSampling },
			func(s *spec.Spec) {
				s.Sampling.Server = &spec.Server{URLs: []string{"http://a", "http://b"}, Mismatch: 1e-9, WorstMismatch: 1e-9}
			},
		} {
			s := feedbackSpec(2, 2, spec.Loss{})
			change(&s)
			run := fmt.Sprint("run ", objective, i)
			r.first(t, run, e, r.start)
			v, err := r.next(t, run, 1, e, s.WithDefaults(), digest)
			require.NoError(t, err)
			weights[v.Weights] = true
			for _, name := range []string{"ratio", "ratio_max", "kl", "mismatch", "mismatch_max", "clip_fraction", "importance_mean", "staleness", "kl_ref"} {
				require.NotContains(t, v.Metrics, "train/"+name, objective)
			}
			require.Contains(t, v.Metrics, "train/entropy")
		}
		require.Len(t, weights, 1, objective)
	}
}

// lossOf computes the loss of a batch anew, from the log-probabilities of its rows.
func lossOf(b model.Batch, policy, reference []float64, beta float64) float64 {
	loss := 0.0
	if b.Objective() == model.Supervised {
		for _, x := range policy {
			loss -= x / float64(b.Denominators.Tokens)
		}
		return loss
	}
	for i, r := range b.Rows {
		for j, other := range b.Rows {
			if r.Chosen && !other.Chosen && r.Pair == other.Pair {
				m := beta * ((policy[i] - reference[i]) - (policy[j] - reference[j]))
				loss += math.Log1p(math.Exp(-m)) / float64(len(b.Rows)/2)
			}
		}
	}
	return loss
}

// The gradient that reached the optimizer is compared with the loss of weights a little
// ahead of it and behind it. AdamW's first moment after one update is 0.1 of the gradient.
func TestGradientsOfFeedbackAreThoseOfTheirLoss(t *testing.T) {
	t.Parallel()
	r, e := newRecords(t), native.New(native.Options{Threads: 1})
	const step, beta, first = 1e-2, 0.7, 0.1
	for _, objective := range []model.RowObjective{model.Supervised, model.Preference} {
		b, run := feedbackBatch(objective), "gradient "+string(objective)
		s := feedbackSpec(1, 1, spec.Loss{Preference: &spec.LossPreference{Beta: beta}})
		s.Training.Optimizer.ClipNorm = 1e6
		r.first(t, run, e, r.start)
		v, err := r.next(t, run, 1, e, s, r.put(t, b))
		require.NoError(t, err)
		gradient, norm := r.checkpoint(t, v).Mean, v.Metrics["train/gradient_norm"]
		reference := sums(t, e, r.start, b)
		require.InDelta(t, lossOf(b, reference, reference, beta), v.Metrics["train/loss"], 1e-5, objective)
		var losses []float64
		for _, direction := range []float64{step, -step} {
			moved := r.start
			moved.Weights = r.start.Architecture.Zeros()
			for i, w := range r.start.Weights {
				for k, x := range w.Data {
					moved.Weights[i].Data[k] = x + float32(direction*float64(gradient[i].Data[k])/(first*norm))
				}
			}
			losses = append(losses, lossOf(b, sums(t, e, moved, b), reference, beta))
		}
		require.InEpsilon(t, norm, (losses[0]-losses[1])/(2*step), 1e-2, objective)
	}
}

// The second update of a step of two passes sees the weights that a step of one pass ends
// with, so its loss can be computed from versions.
func TestTheReferenceOfPreferencesIsTheParent(t *testing.T) {
	t.Parallel()
	r, e, b := newRecords(t), native.New(native.Options{Threads: 1}), feedbackBatch(model.Preference)
	const beta = 0.7
	loss, rows := spec.Loss{Preference: &spec.LossPreference{Beta: beta}}, map[string][]float64{"start": sums(t, e, r.start, b)}
	var last model.Version
	for passes, run := range []string{1: "one pass", 2: "two passes"} {
		if passes == 0 {
			continue
		}
		r.first(t, run, e, r.start)
		for number := 1; number <= 2; number++ {
			b.Step = number
			of := feedbackSpec(1, 1, loss)
			if number == 2 {
				of.Training.Passes = passes
			}
			var err error
			last, err = r.next(t, run, number, e, of, r.put(t, b))
			require.NoError(t, err)
			rows[fmt.Sprint(run, number)] = sums(t, e, r.checkpoint(t, last), b)
		}
	}
	require.Equal(t, rows["one pass1"], rows["two passes1"])
	want := lossOf(b, rows["one pass2"], rows["one pass1"], beta)
	require.InDelta(t, want, last.Metrics["train/last_loss"], 1e-9)
	require.Greater(t, math.Abs(want-lossOf(b, rows["one pass2"], rows["start"], beta)), 1e-3, "version 0 would give another loss")
}

// With version 0 as the reference, the first update of a later step has a margin already.
func TestTheReferenceOfPreferencesCanBeTheFirstVersion(t *testing.T) {
	t.Parallel()
	r, e, b := newRecords(t), native.New(native.Options{Threads: 1}), feedbackBatch(model.Preference)
	const beta = 0.7
	start := sums(t, e, r.start, b)
	weights := map[string]string{}
	for _, reference := range []string{spec.ReferenceParent, spec.ReferenceFirst} {
		s := feedbackSpec(1, 1, spec.Loss{Preference: &spec.LossPreference{Beta: beta, Reference: reference}})
		r.first(t, reference, e, r.start)
		b.Step = 1
		one, err := r.next(t, reference, 1, e, s, r.put(t, b))
		require.NoError(t, err)
		weights[reference] = one.Weights
		b.Step = 2
		two, err := r.next(t, reference, 2, e, s, r.put(t, b))
		require.NoError(t, err)
		want := math.Ln2
		if reference == spec.ReferenceFirst {
			want = lossOf(b, sums(t, e, r.checkpoint(t, one), b), start, beta)
			require.Greater(t, math.Ln2-want, 1e-3)
		}
		require.InDelta(t, want, two.Metrics["train/loss"], 1e-9, reference)
	}
	require.Equal(t, weights[spec.ReferenceParent], weights[spec.ReferenceFirst], "the parent of version 1 is version 0")
}

// dying is an engine whose trainers fail from an update on, as if the process had died.
type dying struct {
	model.Engine
	updates int // that succeed
}

type dyingTrainer struct {
	model.Trainer
	left *int
}

var errDied = errors.New("died")

func (d *dying) NewTrainer(c model.Checkpoint) (model.Trainer, error) {
	tr, err := d.Engine.NewTrainer(c)
	return dyingTrainer{tr, &d.updates}, err
}

func (d dyingTrainer) Update(ctx context.Context, rows []model.Row, objective model.Objective, opt model.AdamW) (float64, error) {
	if *d.left == 0 {
		return 0, errDied
	}
	*d.left--
	return d.Trainer.Update(ctx, rows, objective, opt)
}

func TestAStepOnFeedbackContinuesWithTheSameBits(t *testing.T) {
	t.Parallel()
	r, e := newRecords(t), native.New(native.Options{Threads: 1})
	for _, objective := range []model.RowObjective{model.Supervised, model.Preference} {
		digest, s := r.put(t, feedbackBatch(objective)), feedbackSpec(3, 2, spec.Loss{})
		whole, cut := "whole "+string(objective), "cut "+string(objective)
		r.first(t, whole, e, r.start)
		want, err := r.next(t, whole, 1, e, s, digest)
		require.NoError(t, err)

		r.first(t, cut, e, r.start)
		_, err = r.next(t, cut, 1, &dying{Engine: e, updates: 4}, s, digest)
		require.ErrorIs(t, err, errDied)
		saved, err := r.Progress(t.Context(), model.VersionID{Run: cut, Policy: model.DefaultPolicy, Number: 1})
		require.NoError(t, err)
		require.Equal(t, 4, saved.Updates)
		got, err := r.next(t, cut, 1, &dying{Engine: e, updates: 2}, s, digest)
		require.NoError(t, err, "only the two updates that were missing are made")
		require.Equal(t, want.Weights, got.Weights, objective)
		require.Equal(t, want.Metrics, got.Metrics, objective)
		_, err = r.Progress(t.Context(), saved.VersionID)
		require.ErrorIs(t, err, record.ErrNotFound)
	}
}

// A saved state that another beta led to is not continued.
func TestAnotherBetaBeginsAStepOnPreferencesAgain(t *testing.T) {
	t.Parallel()
	r, e := newRecords(t), native.New(native.Options{Threads: 1})
	digest := r.put(t, feedbackBatch(model.Preference))
	of := func(beta float64) spec.Spec {
		return feedbackSpec(2, 2, spec.Loss{Preference: &spec.LossPreference{Beta: beta}})
	}
	r.first(t, "whole", e, r.start)
	want, err := r.next(t, "whole", 1, e, of(0.5), digest)
	require.NoError(t, err)
	r.first(t, "cut", e, r.start)
	_, err = r.next(t, "cut", 1, &dying{Engine: e, updates: 2}, of(0.1), digest)
	require.ErrorIs(t, err, errDied)
	got, err := r.next(t, "cut", 1, e, of(0.5), digest)
	require.NoError(t, err)
	require.Equal(t, want.Weights, got.Weights)
}

func TestTheReferenceHoldsCorrectedText(t *testing.T) {
	t.Parallel()
	r, e, b := newRecords(t), native.New(native.Options{Threads: 1}), feedbackBatch(model.Supervised)
	var raised []float64
	for i, loss := range []spec.Loss{{}, {KL: &spec.KL{Estimator: credit.KL2, Weight: 10}}} {
		run := fmt.Sprint("run ", i)
		r.first(t, run, e, r.start)
		v, err := r.next(t, run, 1, e, feedbackSpec(8, 1, loss), r.put(t, b))
		require.NoError(t, err)
		total := 0.0
		after := sums(t, e, r.checkpoint(t, v), b)
		for k, x := range sums(t, e, r.start, b) {
			total += after[k] - x
		}
		raised = append(raised, total)
		if loss.KL != nil {
			require.Positive(t, v.Metrics["train/last_kl_ref"])
		}
	}
	require.Positive(t, raised[1])
	require.Less(t, raised[1], raised[0]/2)
}

func TestPartsThatFeedbackHasNoPlaceForStopTheStep(t *testing.T) {
	t.Parallel()
	r, e := newRecords(t), native.New(native.Options{Threads: 1})
	r.first(t, "run", e, r.start)
	for want, one := range map[string]struct {
		objective model.RowObjective
		loss      spec.Loss
	}{
		"loss.kl: preferences have a reference": {model.Preference, spec.Loss{KL: &spec.KL{Weight: 0.1}}},
		"loss.entropy: ":                        {model.Preference, spec.Loss{Entropy: 0.1}},
		"loss.kl.estimator: ":                   {model.Supervised, spec.Loss{KL: &spec.KL{Estimator: credit.Unbiased, Weight: 0.1}}},
	} {
		_, err := r.next(t, "run", 1, e, feedbackSpec(1, 1, one.loss), r.put(t, feedbackBatch(one.objective)))
		var invalid maker.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.ErrorContains(t, err, "version run@1: "+want)
	}
}

func TestEnginesAgreeOnStepsOfFeedback(t *testing.T) {
	t.Parallel()
	skipShort(t, "arithmetic")
	for _, name := range []string{"gomlx", "torch"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, e, other := newRecords(t), native.New(native.Options{Threads: 1}), engines(t)[1]
			if name == "torch" {
				other = torchEngine(t)
			}
			most := differences{}
			for _, objective := range []model.RowObjective{model.Supervised, model.Preference} {
				s, digest := feedbackSpec(2, 2, spec.Loss{}), r.put(t, feedbackBatch(objective))
				want, first := r.step(t, e, fmt.Sprint("native ", objective), s, digest)
				got, second := r.step(t, other, fmt.Sprint("other ", objective), s, digest)
				require.Equal(t, 4, second.Updates)
				most.add(stepDifferences(s.Training.Optimizer.LearningRate, []model.Version{want, got}, []model.Checkpoint{first, second}))
				most.requireSmall(t)
			}
			t.Logf("largest differences: %+v", most)
		})
	}
}
