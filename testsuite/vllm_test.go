package testsuite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/internal/wait"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/model/upstream"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// realVLLM is a server of the real vLLM at one address, which can be killed and started
// again.
type realVLLM struct {
	python, dir, url, log string

	mu      sync.Mutex
	process *exec.Cmd
	ended   chan struct{}
}

// startRealVLLM serves a model until the test ends. .ci/servers says where the Python is
// that has vLLM; without one the test is skipped.
func startRealVLLM(t *testing.T, dir string) *realVLLM {
	t.Helper()
	python := os.Getenv("FULGURITE_VLLM")
	if python == "" {
		t.Skip("no FULGURITE_VLLM")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	v := &realVLLM{python: python, dir: dir, url: "http://" + listener.Addr().String(), log: filepath.Join(t.TempDir(), "log")}
	require.NoError(t, listener.Close())
	require.NoError(t, v.start(t.Context()))
	t.Cleanup(func() {
		v.kill()
		if t.Failed() {
			text, _ := os.ReadFile(v.log)
			t.Logf("%s", text[max(0, len(text)-6000):])
		}
	})
	return v
}

// start starts the server and waits until it answers.
func (v *realVLLM) start(ctx context.Context) error {
	log, err := os.OpenFile(v.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	process := exec.Command(v.python, "-m", "vllm.entrypoints.openai.api_server", "--model", v.dir, "--served-model-name", "tiny",
		"--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "8", "--enforce-eager",
		"--enable-lora", "--max-lora-rank", "8", "--max-loras", "2", "--host", "127.0.0.1", "--port", v.url[strings.LastIndexByte(v.url, ':')+1:])
	process.Env = append(os.Environ(), "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True", "VLLM_CPU_KVCACHE_SPACE=1", "HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1")
	process.Stdout, process.Stderr = log, log
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := process.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	v.mu.Lock()
	v.process, v.ended = process, ended
	v.mu.Unlock()
	go func() {
		defer close(ended)
		_ = process.Wait() // it is killed
	}()
	for {
		response, err := http.Get(v.url + "/health")
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ended:
			return fmt.Errorf("the server ended, see %s", v.log)
		default:
		}
		if !wait.For(ctx, time.Second) {
			return ctx.Err()
		}
	}
}

// kill is kill -9 of the server and all that it started.
func (v *realVLLM) kill() {
	v.mu.Lock()
	process, ended := v.process, v.ended
	v.mu.Unlock()
	_ = syscall.Kill(-process.Process.Pid, syscall.SIGKILL)
	<-ended
}

// adapters are the names of the adapters that the server has.
func (v *realVLLM) adapters(t *testing.T) []string {
	t.Helper()
	response, err := http.Get(v.url + "/v1/models")
	require.NoError(t, err)
	defer response.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	require.NoError(t, json.NewDecoder(response.Body).Decode(&list))
	var names []string
	for _, m := range list.Data {
		if m.ID != "tiny" {
			names = append(names, m.ID)
		}
	}
	return names
}

// TestARealVLLMSamplesFromAdapters trains three versions of an adapter while vLLM samples
// from those before, with a lag, so that adapters change under calls. vLLM is killed in
// the middle of a step and started again.
func TestARealVLLMSamplesFromAdapters(t *testing.T) {
	dir := published(t)
	a := model.Architecture{
		VocabSize: 707, HiddenSize: 128, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 64, FeedForward: 128,
		MaxPositions: 512, RopeTheta: 1e6, NormEpsilon: 1e-6, Tied: true, QKVBias: true,
	}
	require.NoError(t, hf.WriteDirectory(dir, a, a.Init(1)))
	server := startRealVLLM(t, dir)
	ctx := t.Context()

	var tries atomic.Int64
	restarted := make(chan error, 1)
	st := startWith(ctx, t, t.TempDir(), agent.Registry{"talk": func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
		if tries.Add(1) == 12 { // in the second step
			server.kill()
			go func() { restarted <- server.start(context.WithoutCancel(ctx)) }()
		}
		return talk(ctx, task, env)
	}})
	defer func() { require.NoError(t, st.Close()) }()
	const lag = 1
	s := spec.Spec{
		Model: spec.Model{Base: dir, Codec: "template", LoRA: &spec.LoRA{}}, Agent: spec.Agent{Func: "talk", Limits: spec.AgentLimits{Seconds: 900}},
		Tasks: spec.Tasks{Train: "arithmetic:train:8"}, Grader: spec.Grader{Type: "agent"},
		Sampling: spec.Sampling{Server: &spec.Server{Type: spec.ServerVLLM, URLs: []string{server.url}, Model: "tiny", Directory: t.TempDir()}},
		Training: spec.Training{Steps: 3, TasksPerStep: 2, SamplesPerTask: 4, Lag: lag, Optimizer: spec.Optimizer{LearningRate: 0.02}},
	}.WithDefaults()
	result, err := train(ctx, st, "served", s)
	require.NoError(t, err)
	require.Equal(t, 3, result.Steps)
	require.NoError(t, <-restarted)

	versions, err := st.Store.Versions(ctx, "served", "main")
	require.NoError(t, err)
	require.Len(t, versions, 4)
	for step := 1; step <= 3; step++ {
		attempts, err := st.Store.Attempts(ctx, "served", trace.Train, step)
		require.NoError(t, err)
		for _, at := range attempts {
			calls, err := st.Store.Calls(ctx, at.Address)
			require.NoError(t, err)
			for _, c := range calls {
				require.Equal(t, versions[max(0, step-1-lag)].Weights, c.Weights, "step %d", step)
			}
		}
		t.Logf("step %d: mismatch %.3g, worst token %.3g", step, versions[step].Metrics["train/mismatch"], versions[step].Metrics["train/mismatch_max"])
	}
	require.Less(t, versions[1].Metrics["train/mismatch_max"], 1e-2, "the version that sampled is the one that is trained")
	require.ElementsMatch(t, []string{adapterName(versions[2]), adapterName(versions[3])}, server.adapters(t), "what no step samples from is unloaded")

	t.Run("a wrong adapter is refused", func(t *testing.T) {
		right, digest, err := st.Catalog.Load(ctx, versions[3].VersionID)
		require.NoError(t, err)
		canary, err := st.Catalog.Canary(ctx, versions[3].VersionID)
		require.NoError(t, err)
		for name, number := range map[string]int{"none": 0, "right": 3} {
			wrong, _, err := st.Catalog.Load(ctx, versions[number].VersionID)
			require.NoError(t, err)
			sampler, err := upstream.New(upstream.Options{
				Type: upstream.VLLM, URLs: []string{server.url}, Model: "tiny", Versions: upstream.Adapters, Directory: t.TempDir(), Lag: lag,
				Adapter: func(context.Context, model.VersionID) (*upstream.Adapter, error) {
					return &upstream.Adapter{Weights: digest, Rank: right.Adapter.Rank, Canary: canary, Write: func(directory string) error {
						return hf.WritePEFT(directory, wrong, "tiny")
					}}, nil
				},
			})
			require.NoError(t, err)
			defer sampler.Close()
			other := versions[3].VersionID
			other.Run = "other-" + name
			err = sampler.Publish(ctx, other)
			if number == 3 {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, model.ErrWrongWeights)
			require.ErrorContains(t, err, "does 0 % of what it does at the trainer")
			require.NotContains(t, strings.Join(server.adapters(t), " "), other.Run)
		}
	})
}

func adapterName(v model.Version) string {
	return fmt.Sprintf("%s-v%d-%s", v.Run, v.Number, strings.TrimPrefix(v.Weights, "sha256:")[:12])
}
