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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/wait"
)

// realVLLM is a server of the real vLLM at one address, which can be killed and started
// again.
type realVLLM struct {
	python, dir, url, log string
	sequences             int // that are sampled at once

	mu      sync.Mutex
	process *exec.Cmd
	ended   chan struct{}
}

// servedModel is the name of the base model at the server.
const servedModel = "base"

// startRealVLLM serves a model until the test ends. .ci/servers says which Python has
// vLLM. Without one the test is skipped.
func startRealVLLM(t *testing.T, dir string, sequences int) *realVLLM {
	t.Helper()
	python := os.Getenv("FULGURITE_VLLM")
	if python == "" {
		t.Skip("no FULGURITE_VLLM")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	v := &realVLLM{python: python, dir: dir, url: "http://" + listener.Addr().String(), log: filepath.Join(t.TempDir(), "log"), sequences: sequences}
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

// started begins what a server writes into its log.
const started = "--- started\n"

// start starts the server and waits until it answers.
func (v *realVLLM) start(ctx context.Context) error {
	log, err := os.OpenFile(v.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	if _, err := log.WriteString(started); err != nil {
		return err
	}
	process := exec.Command(v.python, "-m", "vllm.entrypoints.openai.api_server", "--model", v.dir, "--served-model-name", servedModel,
		"--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", strconv.Itoa(v.sequences), "--enforce-eager",
		"--enable-lora", "--max-lora-rank", "8", "--max-loras", "2", "--host", "127.0.0.1", "--port", v.url[strings.LastIndexByte(v.url, ':')+1:],
		// Without these flags the output layer would be adapted too, and a canary that
		// runs while other calls do would crash vLLM.
		"--lora-target-modules", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
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

// kill kills the server and all processes that it started with SIGKILL.
func (v *realVLLM) kill() {
	v.mu.Lock()
	process, ended := v.process, v.ended
	v.mu.Unlock()
	_ = syscall.Kill(-process.Process.Pid, syscall.SIGKILL)
	<-ended
}

// adapters returns the names of the adapters that the server has.
func (v *realVLLM) adapters() ([]string, error) {
	response, err := http.Get(v.url + "/v1/models")
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return nil, err
	}
	var names []string
	for _, m := range list.Data {
		if m.ID != servedModel {
			names = append(names, m.ID)
		}
	}
	return names, nil
}

// noted is what the server writes when it has loaded or unloaded an adapter.
var noted = regexp.MustCompile(`(Loaded new|Removed) LoRA adapter: name '([^']+)'`)

// loads returns the adapters that the server loaded, for each of its starts. An adapter
// must not be loaded while one of the same name is loaded.
func (v *realVLLM) loads(t *testing.T) []map[string]bool {
	t.Helper()
	log, err := os.ReadFile(v.log)
	require.NoError(t, err)
	var all []map[string]bool
	for _, life := range strings.Split(string(log), started)[1:] {
		loaded, has := map[string]bool{}, map[string]bool{}
		for _, m := range noted.FindAllStringSubmatch(life, -1) {
			name := m[2]
			if m[1] == "Removed" {
				delete(has, name)
				continue
			}
			require.False(t, has[name], "%s is loaded in its own place", name)
			loaded[name], has[name] = true, true
		}
		all = append(all, loaded)
	}
	return all
}

// holds waits until the server has an adapter whose name begins with begins, or until the
// server can't be reached.
func (v *realVLLM) holds(ctx context.Context, begins string) {
	for wait.For(ctx, 100*time.Millisecond) {
		names, err := v.adapters()
		if err != nil || slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, begins) }) {
			return
		}
	}
}
