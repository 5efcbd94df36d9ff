package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// testEnv is the environment of setups: the tool, servers that some of them ask, and one stack
// for all that is trained.
type testEnv struct {
	bin, dir  string
	addresses *strings.Replacer
	servers   []*httptest.Server

	once    sync.Once
	stack   *exec.Cmd
	started error
}

func newTestEnv(ctx context.Context, bin, dir string) (*testEnv, error) {
	env := &testEnv{bin: bin, dir: dir}
	serve := func(h http.HandlerFunc) string {
		s := httptest.NewServer(h)
		env.servers = append(env.servers, s)
		return s.URL
	}
	var lc net.ListenConfig
	closed, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	unreachable := "http://" + closed.Addr().String()
	if err := closed.Close(); err != nil {
		return nil, err
	}
	env.addresses = strings.NewReplacer(
		"{{unreachable}}", unreachable,
		"{{judge}}", serve(judgeReplies(`{"scores": [7]}`)),
		"{{nonsense judge}}", serve(judgeReplies("I would rather not say.")),
		"{{service}}", serve(serveAgent),
		"{{broken}}", serve(func(out http.ResponseWriter, _ *http.Request) {
			http.Error(out, "out of order", http.StatusInternalServerError)
		}),
		"{{broken service}}", serve(func(out http.ResponseWriter, _ *http.Request) {
			http.Error(out, "no such agent", http.StatusInternalServerError)
		}),
		"{{proxy}}", serve(func(out http.ResponseWriter, _ *http.Request) {
			http.Error(out, "default backend", http.StatusNotFound)
		}),
	)
	return env, nil
}

func (env *testEnv) close() {
	for _, s := range env.servers {
		s.Close()
	}
	if env.stack == nil || env.stack.Process == nil {
		return
	}
	_ = env.stack.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	_ = env.stack.Wait()
}

// judgeReplies returns a judge that always gives the same reply.
func judgeReplies(text string) http.HandlerFunc {
	return func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(map[string]any{
			"id": "judgement", "object": "chat.completion", "model": "judge",
			"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": text}}},
		})
	}
}

// serveAgent is an agent that runs as a service. It asks its model once, and every second
// sample gets a reward.
func serveAgent(out http.ResponseWriter, in *http.Request) {
	var job struct {
		Input   string `json:"input"`
		Rollout string `json:"rollout"`
		BaseURL string `json:"base_url"`
		APIKey  string `json:"api_key"`
	}
	err := json.NewDecoder(in.Body).Decode(&job)
	if err == nil {
		err = ask(in.Context(), job.BaseURL, job.APIKey, job.Input)
	}
	if err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(out).Encode(map[string]any{"result": "done", "reward": int(job.Rollout[len(job.Rollout)-1]-'0') % 2})
}

func ask(ctx context.Context, base, key, text string) error {
	body, err := json.Marshal(map[string]any{"model": "any", "messages": []any{map[string]any{"role": "user", "content": text}}})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("the model answered %s", reply.Status)
	}
	_, err = io.Copy(io.Discard, reply.Body)
	return err
}

// commandResult is how a command ended.
type commandResult struct {
	code int
	text string // standard output, then standard error
}

// commandTimeout is how long one command may take.
const commandTimeout = 3 * time.Minute

// command runs the tool in the directory of a setup.
func (env *testEnv) command(ctx context.Context, dir string, args ...string) (commandResult, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, env.bin, args...)
	var out, complaints bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = dir, &out, &complaints, env.environment(dir)
	err := cmd.Run()
	var exit *exec.ExitError
	if ctx.Err() != nil || err != nil && !errors.As(err, &exit) {
		return commandResult{}, fmt.Errorf("fulgurite %s: %w", strings.Join(args, " "), errors.Join(err, ctx.Err()))
	}
	return commandResult{cmd.ProcessState.ExitCode(), out.String() + complaints.String()}, nil
}

func (env *testEnv) environment(dir string) []string {
	return append(os.Environ(), "FULGURITE_PORT=0", "FULGURITE_UI_PORT=0", "FULGURITE_GATEWAY_PORT=0", "FULGURITE_PAGE_PORT=0", "FULGURITE_DIR="+filepath.Join(dir, "none"))
}

// state returns the directory of the stack that trains.
func (env *testEnv) state() string { return filepath.Join(env.dir, "state") }

// startStack starts the stack that trains, when the first setup is to be trained.
func (env *testEnv) startStack(ctx context.Context) error {
	env.once.Do(func() { env.started = env.start(ctx) })
	return env.started
}

func (env *testEnv) start(ctx context.Context) error {
	env.stack = exec.Command(env.bin, "dev", "--dir", env.state())
	out, err := env.stack.StdoutPipe()
	if err != nil {
		return err
	}
	env.stack.Env = env.environment(env.dir)
	if err := env.stack.Start(); err != nil {
		return err
	}
	ready := make(chan error, 1)
	go func() {
		text, piece := "", make([]byte, 4096)
		for !strings.Contains(text, "is up") {
			n, err := out.Read(piece)
			if text += string(piece[:n]); err != nil {
				ready <- fmt.Errorf("fulgurite dev ended: %s", text)
				return
			}
		}
		ready <- nil
		_, _ = io.Copy(io.Discard, out) // so that it never waits for a reader
	}()
	select {
	case err := <-ready:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
