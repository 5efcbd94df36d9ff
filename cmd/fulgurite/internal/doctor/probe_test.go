package doctor_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/doctor"
	"github.com/fulgurite/fulgurite/model/engine/torch"
	"github.com/fulgurite/fulgurite/spec"
)

func TestGPUsAreReadOrRefused(t *testing.T) {
	t.Parallel()
	got, err := doctor.ParseGPUs("0, NVIDIA L4, 580.95.05, 23034, 12\n1, NVIDIA L4, 580.95.05, [N/A], [N/A]\n")
	require.NoError(t, err)
	require.Empty(t, cmp.Diff([]doctor.GPU{
		{Index: 0, Name: "NVIDIA L4", Driver: "580.95.05", Memory: 23034 << 20, Used: 12 << 20}, {Index: 1, Name: "NVIDIA L4", Driver: "580.95.05"},
	}, got))
	for text, want := range map[string]string{
		"":                                   "no NVIDIA GPU",
		"No devices were found\n":            "want an index, a name",
		"x, NVIDIA L4, 580, 23034, 12":       `the index "x"`,
		"0, NVIDIA L4, 580, much, 12":        `"much" for an amount of memory`,
		"0, NVIDIA L4, 580, -1, 12":          `"-1" for an amount of memory`,
		"0, \"NVIDIA L4, 580, 23034, 12":     "can't be read",
		"0, NVIDIA L4, 580, 23034, 12, more": "want an index, a name",
	} {
		_, err := doctor.ParseGPUs(text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestAProgramThatHangsIsKilledWithWhatItStarted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := doctor.Output(ctx, "sh", "-c", "sleep 1000 & wait")
	require.ErrorContains(t, err, "no answer within")
	_, err = doctor.Output(t.Context(), "sh", "-c", "echo first; echo last >&2; exit 3")
	require.EqualError(t, err, "exit status 3: last")
	out, err := doctor.Output(t.Context(), "sh", "-c", "head -c 3000000 /dev/zero")
	require.NoError(t, err)
	require.Equal(t, 1<<20, len(out), "bytes of a program that writes too many")
}

func TestAProbeThatIgnoresItsLimitIsLeftBehind(t *testing.T) {
	t.Parallel()
	end := make(chan int)
	defer close(end)
	works := []doctor.Finding{{Subject: "probe", State: doctor.Found}}
	got := doctor.FindAll(t.Context(), time.Millisecond,
		func(context.Context) []doctor.Finding { <-end; return nil },
		func(context.Context) []doctor.Finding { return works })
	require.Equal(t, doctor.Missing, got[0].State)
	require.Equal(t, "no answer within 1ms; --limit gives it longer", got[0].Text)
	require.Equal(t, works, got[1:])
}

// adapters returns a spec that samples from vLLM with adapters.
func adapters(address string) spec.Spec {
	return spec.Spec{
		Model:    spec.Model{Base: "/models/my model", LoRA: &spec.LoRA{Rank: 20}},
		Sampling: spec.Sampling{Server: &spec.Server{Type: spec.ServerVLLM, URLs: []string{address}, Model: "qwen", Versions: spec.VersionsAdapters}},
		Training: spec.Training{Lag: 2},
	}
}

func TestWhatAServerWasNotStartedWithIsNamed(t *testing.T) {
	t.Parallel()
	args := []string{"/opt/vllm/bin/python", "/opt/vllm/bin/vllm", "serve", "/models/qwen", "--api-key", "secret", "--enable_lora", "--max-lora-rank=16", "--max-loras", "3"}
	require.True(t, doctor.ServesVLLM(args))
	require.False(t, doctor.ServesVLLM([]string{"vim", "vllm", "serving"}))
	v := doctor.ParseVLLM(args, []string{"HOME=/root"})
	require.Empty(t, cmp.Diff(map[string]string{"--enable-lora": "", "--max-lora-rank": "16", "--max-loras": "3"}, v.Flags))
	s := adapters("http://127.0.0.1:8001")
	require.Equal(t, []string{"--max-lora-rank 32 (model.lora.rank is 20)", "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"}, v.Lacks(s))
	s.Sampling.Temperature = new(0.7)
	line := doctor.ServeCommand(s, s.Sampling.Server.URLs[0])
	require.Equal(t, "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve '/models/my model' --served-model-name qwen --port 8001"+
		" --logprobs-mode processed_logprobs --enable-lora --max-lora-rank 32 --max-loras 3", line)
}

// modelWithMoreIDsThanTokens returns the directory of a model whose vocabulary has ids
// without a token, as those of Qwen2.5 have.
func modelWithMoreIDsThanTokens(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, from := range map[string]string{"tokenizer.json": "../../../../model/tokenizer/testdata/qwen.json", "chat_template.jinja": "../../../../dialog/testdata/templates/hermes.jinja"} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"vocab_size": 720, "eos_token_id": 702}`), 0o600))
	return dir
}

// Ids without a token are left out of what vLLM samples from, so its log-probabilities
// have to be those of the rest.
func TestAServerOfAModelWithIDsWithoutATokenNeedsItsProcessedLogprobs(t *testing.T) {
	t.Parallel()
	dir := modelWithMoreIDsThanTokens(t)
	s := adapters("http://127.0.0.1:8000")
	s.Model.Base, s.Model.Codec = dir, spec.CodecTemplate
	started := doctor.ParseVLLM([]string{"vllm", "serve", "m", "--enable-lora", "--max-lora-rank", "32", "--max-loras", "3"}, []string{"VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"})
	lacks := started.Lacks(s)
	require.Len(t, lacks, 1)
	require.Regexp(t, `^--logprobs-mode processed_logprobs \([0-9]+ rows of the model's vocabulary have no token and are left out\)$`, lacks[0])
	require.Contains(t, doctor.ServeCommand(s, s.Sampling.Server.URLs[0]), " --logprobs-mode processed_logprobs ")
}

func TestAServerThatSharesTheGPUHasToSleepAndToLeaveRoom(t *testing.T) {
	t.Parallel()
	s := adapters("http://127.0.0.1:8000")
	s.Sampling.Server.ShareGPU = true
	require.Equal(t, "VLLM_SERVER_DEV_MODE=1 VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve '/models/my model' --served-model-name qwen"+
		" --enable-lora --max-lora-rank 32 --max-loras 3 --enable-sleep-mode --gpu-memory-utilization 0.7", doctor.ServeCommand(s, s.Sampling.Server.URLs[0]))
	started := func(environment []string, more ...string) doctor.VLLM {
		return doctor.ParseVLLM(append([]string{"vllm", "serve", "m", "--enable-lora", "--max-lora-rank", "32", "--max-loras", "3"}, more...), append(environment, "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"))
	}
	require.Equal(t, []string{
		"VLLM_SERVER_DEV_MODE=1 (sampling.server.share_gpu)", "--enable-sleep-mode (sampling.server.share_gpu)",
		"--gpu-memory-utilization 0.7, which leaves room for the trainer's base (sampling.server.share_gpu)",
	}, started(nil).Lacks(s))
	develops := []string{"VLLM_SERVER_DEV_MODE=1"}
	good := started(develops, "--enable-sleep-mode", "--gpu-memory-utilization=0.8")
	require.Empty(t, good.Lacks(s))
	require.Empty(t, good.LacksBeside(s, 3.1e9, 24<<30), "0.8 of 25.8 GB leave 5.2 GB")
	require.Equal(t, []string{"--gpu-memory-utilization 0.3, which leaves room for the trainer's base (sampling.server.share_gpu)"}, good.LacksBeside(s, 15.2e9, 24<<30))
	require.Equal(t, 0.9, doctor.PartBeside(1e9, 80<<30), "vLLM's own")
	require.Zero(t, doctor.PartBeside(0, 80<<30), "not known")
	s.Sampling.Server.ShareGPU = false
	require.Empty(t, started(nil).Lacks(s))
}

func TestAServerOfSeveralAPIServerProcessesIsNoneForAdapters(t *testing.T) {
	t.Parallel()
	s := adapters("http://127.0.0.1:8000")
	for flags, want := range map[string]string{
		"":                       "",
		"--data-parallel-size 4": "--api-server-count 1 (of its 4 API server processes only one gets an adapter)",
		"-dp 4":                  "--api-server-count 1 (of its 4 API server processes only one gets an adapter)",
		"--api-server-count=2":   "--api-server-count 1 (of its 2 API server processes only one gets an adapter)",
		"--data-parallel-size 4 --api-server-count 1":   "",
		"--data-parallel-size 4 -asc 1":                 "",
		"--data_parallel_size 4 --data-parallel-rank 0": "",
	} {
		args := append([]string{"vllm", "serve", "m", "--enable-lora", "--max-lora-rank", "32", "--max-loras", "3"}, strings.Fields(flags)...)
		got := doctor.ParseVLLM(args, []string{"VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"}).Lacks(s)
		require.Equal(t, want, strings.Join(got, ", "), flags)
	}
}

func TestAServerHasToServeTheModel(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"/v1/models": `{"data":[{"id":"qwen","max_model_len":4096}]}`, "/version": `{"version":"0.32.0"}`,
		"/metrics": "# HELP\nvllm:lora_requests_info{max_lora=\"3\",running_lora_adapters=\"\"} 1.0\n",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(answers[r.URL.Path])) // no reader after the test's end
	}))
	defer server.Close()
	s := adapters(server.URL)
	got := doctor.FindServer(t.Context(), s, server.URL)
	require.Equal(t, doctor.Found, got[0].State, got[0].Text)
	require.Equal(t, server.URL+", vLLM 0.32.0, 3 adapters at once, qwen (4096 tokens)", got[0].Text)
	s.Training.Lag = 3
	got = doctor.FindServer(t.Context(), s, server.URL)
	require.Equal(t, doctor.Missing, got[0].State)
	require.Contains(t, got[0].Text, "too few adapters at once (--max-loras) for training.lag 3")
	require.Contains(t, got[0].Fix[0], "--max-loras 4")
	s.Sampling.Server.Model = "other"
	got = doctor.FindServer(t.Context(), s, server.URL)
	require.Equal(t, doctor.Missing, got[0].State)
	require.Contains(t, got[0].Text, `serves no model "other"`)
	require.Contains(t, got[0].Fix[0], "--served-model-name other")
}

func TestATorchThatDoesNotSeeTheGPUIsReplacedByOneForItsDriver(t *testing.T) {
	t.Parallel()
	old := doctor.WithoutCUDA("/env/bin/python", "13.0", "570.86.10")
	require.Contains(t, old[0], "driver 580 or later")
	require.Contains(t, old[1], "/whl/cu126")
	plain := doctor.WithoutCUDA("/env/bin/python", "", "580.95.05")
	require.Equal(t, "/env/bin/python -m pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130", plain[0])
}

func TestWordsOfAShellAreQuoted(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{"a/b-c.d": "a/b-c.d", "a b": "'a b'", "it's": `'it'\''s'`, "": "''", "$HOME": "'$HOME'"} {
		require.Equal(t, want, doctor.Quoted(word))
	}
}

func TestTooLittleMemoryOfAGPUIsToldWithWhatWouldFit(t *testing.T) {
	t.Parallel()
	qwen := torch.Room{Parameters: 1_543_714_304, Offered: 18_464_768, Samples: true} // Qwen2.5-1.5B
	gpu := func(mebibytes int64) []doctor.GPU { return []doctor.GPU{{Memory: 1 << 20}, {Memory: mebibytes << 20}} }
	_, err := doctor.RoomOn(gpu(23034), qwen)
	require.EqualError(t, err, "training keeps at least 24.7 GB on a GPU, and the largest here has 24.2 GB; what would fit: "+
		"an adapter in place of all weights: model.lora of rank 16 (3.38 GB); training.optimizer.moments: int8 (15.4 GB); "+
		"2 such GPUs: FULGURITE_TORCH_RANKS=2 (18.5 GB); a model.base of at most about 1.29 billion parameters (9.42 billion with model.lora)")
	tight, err := doctor.RoomOn(gpu(24564), qwen)
	require.NoError(t, err)
	require.Contains(t, tight, "the largest GPU here has 25.8 GB, which leaves a batch little room; what would fit: an adapter")
	for _, found := range [][]doctor.GPU{gpu(81559), gpu(0)[1:], nil} { // enough, or unknown
		tight, err = doctor.RoomOn(found, qwen)
		require.NoError(t, err)
		require.Empty(t, tight)
	}
}
