package testsuite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/engine/torch"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/model/sampler/upstream"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
)

const servedLag = 1

// served returns the spec of a run of three steps that samples from the server with
// adapters.
func served(dir, adapters, url, engine string) spec.Spec {
	return spec.Spec{
		Model: spec.Model{Base: dir, Codec: "template", LoRA: &spec.LoRA{}, Engine: engine},
		// The agents outlive the restart, however slow the machine.
		Agent: spec.Agent{Func: "talk", Limits: spec.AgentLimits{Seconds: 4 * 3600}},
		Tasks: spec.Tasks{Train: "arithmetic:train:8"}, Grader: spec.Grader{Type: "agent"},
		Sampling: spec.Sampling{Server: &spec.Server{Type: spec.ServerVLLM, URLs: []string{url}, Model: servedModel, Directory: adapters}},
		Training: spec.Training{Steps: 3, TasksPerStep: 2, SamplesPerTask: 4, Lag: servedLag, Optimizer: spec.Optimizer{LearningRate: 0.02}},
	}.WithDefaults()
}

// TestARealVLLMSamplesFromAdapters trains three versions of an adapter while vLLM samples
// from those before, with a lag, so that adapters change under calls. vLLM is killed in
// the middle of the step that samples from the first of them, and started again.
func TestARealVLLMSamplesFromAdapters(t *testing.T) {
	dir := published(t)
	a := model.Architecture{
		VocabSize: 707, HiddenSize: 128, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 64, FeedForward: 128,
		MaxPositions: 512, RopeTheta: 1e6, NormEpsilon: 1e-6, Tied: true, QKVBias: true,
	}
	require.NoError(t, hf.WriteDirectory(dir, a, a.Init(1)))
	server := startRealVLLM(t, dir, 8)
	ctx := t.Context()

	var second, third atomic.Int64
	restarted := make(chan error, 1)
	st := startWith(ctx, t, t.TempDir(), agent.Registry{"talk": func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
		switch {
		case strings.Contains(env.BaseURL, "/train-2/") && second.Add(1) == 1:
			server.holds(ctx, "served-v1-") // the call then goes on with version 0, while the server has both adapters
		case strings.Contains(env.BaseURL, "/train-3/") && third.Add(1) == 4:
			server.kill()
			go func() { restarted <- server.start(context.WithoutCancel(ctx)) }()
		}
		return talk(ctx, task, env)
	}})
	defer func() { require.NoError(t, st.Close()) }()
	engine := "native"
	if os.Getenv(torch.EnvPython) != "" {
		engine = "torch"
	}
	result, err := train(ctx, st, "served", served(dir, t.TempDir(), server.url, engine))
	require.NoError(t, err)
	require.Equal(t, 3, result.Steps)
	require.NoError(t, <-restarted)

	versions, err := st.Store.Versions(ctx, "served", "main")
	require.NoError(t, err)
	require.Len(t, versions, 4)
	for step := 1; step <= 3; step++ {
		sampledByVersion(ctx, t, st, record.RolloutID{Run: "served", Kind: record.Train, Step: step}, versions[max(0, step-1-servedLag)], 8, 2)
		t.Logf("step %d: mismatch %.3g, worst token %.3g", step, versions[step].Metrics["train/mismatch"], versions[step].Metrics["train/mismatch_max"])
	}
	require.Less(t, versions[1].Metrics["train/mismatch_max"], 1e-2, "the version that sampled is the one that is trained")
	account, err := report.Of(ctx, st.Store, st.Blobs, "served", "main")
	require.NoError(t, err)
	require.Empty(t, account.Faults)

	loads := server.loads(t)
	require.Len(t, loads, 2, "it was started twice")
	for _, loaded := range loads {
		require.Contains(t, loaded, adapterName(versions[1]), "the version that sampled when it was killed is loaded each time")
	}
	names, err := server.adapters()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{adapterName(versions[2]), adapterName(versions[3])}, names, "what no step samples from is unloaded")

	refusesWrongAdapters(ctx, t, st, server, versions[3].VersionID)
}

// scorer computes the log-probabilities of a version with the built-in engine.
type scorer struct {
	model.Decoder

	worst float32 // of all that was compared, in nats
}

func scorerOf(t *testing.T, c model.Checkpoint) *scorer {
	t.Helper()
	d, err := native.New(native.Options{}).NewDecoder(c)
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return &scorer{Decoder: d}
}

// requireNear requires that log-probabilities are those of the weights.
func (s *scorer) requireNear(ctx context.Context, t *testing.T, prompt, tokens []int32, logprobs []float32) {
	t.Helper()
	of, ok := s.Decoder.(interface {
		Score(ctx context.Context, prompt, tokens []int32) ([]float32, error)
	})
	require.True(t, ok)
	want, err := of.Score(ctx, prompt, tokens)
	require.NoError(t, err)
	require.InDeltaSlice(t, want, logprobs, 2e-3)
	for i, p := range logprobs {
		s.worst = max(s.worst, p-want[i], want[i]-p)
	}
}

// sampledByVersion requires that each rollout of a step has one attempt with the given
// number of calls, and that the server sampled these calls from a version: the digest of
// its weights is recorded, and the log-probabilities agree with those of the built-in
// engine.
func sampledByVersion(ctx context.Context, t *testing.T, st *stack.Stack, step record.RolloutID, v model.Version, rollouts, calls int) {
	t.Helper()
	c, _, err := st.Catalog.Load(ctx, v.VersionID)
	require.NoError(t, err)
	weights := scorerOf(t, c)
	attempts, err := st.Store.Attempts(ctx, step.Run, step.Kind, step.Step)
	require.NoError(t, err)
	require.Len(t, attempts, rollouts)
	seen := map[record.RolloutID]bool{}
	for _, at := range attempts {
		seen[at.RolloutID] = true
		require.Equal(t, 1, at.Attempt, "agents wait for the server")
		require.Equal(t, record.OutcomeCompleted, at.Outcome)
		list, err := st.Store.Calls(ctx, at.Address)
		require.NoError(t, err)
		require.Len(t, list, calls)
		for _, call := range list {
			require.Equal(t, v.Weights, call.Weights, "step %d", step.Step)
			weights.requireNear(ctx, t, call.Prompt, call.Completion, call.Logprobs)
		}
	}
	require.Len(t, seen, rollouts)
	t.Logf("step %d: sampled from version %d, worst token %.3g nats from the built-in engine", step.Step, v.Number, weights.worst)
}

// refusesWrongAdapters publishes a version with its own adapter, and with adapters that
// do nothing, are damaged or are truncated. Only its own may be accepted.
func refusesWrongAdapters(ctx context.Context, t *testing.T, st *stack.Stack, server *realVLLM, id model.VersionID) {
	t.Helper()
	right, digest, err := st.Catalog.Load(ctx, id)
	require.NoError(t, err)
	canary, err := st.Catalog.Canary(ctx, id)
	require.NoError(t, err)
	first := id
	first.Number = 0
	none, _, err := st.Catalog.Load(ctx, first)
	require.NoError(t, err)
	turned := right
	turned.Weights = slices.Clone(right.Weights)
	for i, w := range turned.Weights {
		if strings.Contains(w.Name, "lora_B") {
			w.Data = slices.Clone(w.Data)
			for j := range w.Data {
				w.Data[j] = -w.Data[j]
			}
			turned.Weights[i] = w
		}
	}
	for name, test := range map[string]struct {
		written model.Checkpoint
		cut     bool
		is      error
		says    string
	}{
		"right":  {written: right},
		"none":   {written: none, is: model.ErrWrongWeights, says: "does 0 % of what it does at the trainer"},
		"turned": {written: turned, is: model.ErrWrongWeights, says: "% of what it does at the trainer"},
		"cut":    {written: right, cut: true, is: upstream.ErrVersion, says: "are cut off or damaged"},
	} {
		t.Run("an adapter that is "+name, func(t *testing.T) {
			sampler, err := upstream.New(upstream.Options{
				Type: upstream.VLLM, URLs: []string{server.url}, Model: servedModel, Versions: upstream.Adapters, Directory: t.TempDir(), Lag: servedLag,
				Adapter: func(context.Context, model.VersionID) (*upstream.Adapter, error) {
					return &upstream.Adapter{Weights: digest, Rank: right.Adapter.Rank, Canary: canary, Write: func(directory string) error {
						if err := hf.WritePEFT(directory, test.written, servedModel); err != nil || !test.cut {
							return err
						}
						return os.Truncate(filepath.Join(directory, model.AdapterFile), 1000)
					}}, nil
				},
			})
			require.NoError(t, err)
			defer sampler.Close()
			other := id
			other.Run = "other-" + name
			err = sampler.Publish(ctx, other)
			if test.is == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, test.is)
			require.ErrorContains(t, err, test.says)
			names, listed := server.adapters()
			require.NoError(t, listed)
			require.NotContains(t, strings.Join(names, " "), other.Run)
		})
	}
}

func adapterName(v model.Version) string {
	return fmt.Sprintf("%s-v%d-%s", v.Run, v.Number, strings.TrimPrefix(v.Weights, "sha256:")[:12])
}
