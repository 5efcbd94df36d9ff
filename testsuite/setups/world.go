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

// world is what setups run in: the tool, servers that some of them ask, and one stack
// for all that is trained.
type world struct {
	bin, dir  string
	addresses *strings.Replacer
	servers   []*httptest.Server

	once    sync.Once
	stack   *exec.Cmd
	started error
}

func newWorld(ctx context.Context, bin, dir string) (*world, error) {
	w := &world{bin: bin, dir: dir}
	serve := func(h http.HandlerFunc) string {
		s := httptest.NewServer(h)
		w.servers = append(w.servers, s)
		return s.URL
	}
	var lc net.ListenConfig
	closed, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	nobody := "http://" + closed.Addr().String()
	if err := closed.Close(); err != nil {
		return nil, err
	}
	w.addresses = strings.NewReplacer(
		"{{nobody}}", nobody,
		"{{judge}}", serve(says(`{"scores": [7]}`)),
		"{{babbler}}", serve(says("I would rather not say.")),
		"{{service}}", serve(play),
		"{{broken}}", serve(func(out http.ResponseWriter, _ *http.Request) {
			http.Error(out, "out of order", http.StatusInternalServerError)
		}),
		"{{broken service}}", serve(func(out http.ResponseWriter, _ *http.Request) { http.Error(out, "no such agent", http.StatusNotFound) }),
	)
	return w, nil
}

func (w *world) close() {
	for _, s := range w.servers {
		s.Close()
	}
	if w.stack == nil || w.stack.Process == nil {
		return
	}
	_ = w.stack.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	_ = w.stack.Wait()
}

// says is a judge that always gives the same reply.
func says(text string) http.HandlerFunc {
	return func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(map[string]any{
			"id": "judgement", "object": "chat.completion", "model": "judge",
			"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": text}}},
		})
	}
}

// play is an agent that is a service: it asks its model once, and every second sample
// is rewarded.
func play(out http.ResponseWriter, in *http.Request) {
	var brief struct {
		Input   string `json:"input"`
		Rollout string `json:"rollout"`
		BaseURL string `json:"base_url"`
		APIKey  string `json:"api_key"`
	}
	err := json.NewDecoder(in.Body).Decode(&brief)
	if err == nil {
		err = ask(in.Context(), brief.BaseURL, brief.APIKey, brief.Input)
	}
	if err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(out).Encode(map[string]any{"result": "done", "reward": int(brief.Rollout[len(brief.Rollout)-1]-'0') % 2})
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

// ran is what a command came to.
type ran struct {
	code int
	text string // standard output, then standard error
}

// patience is how long one command may take.
const patience = 3 * time.Minute

// command runs the tool in the directory of a setup.
func (w *world) command(ctx context.Context, dir string, args ...string) (ran, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.bin, args...)
	var out, complaints bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = dir, &out, &complaints, w.environment(dir)
	err := cmd.Run()
	var exit *exec.ExitError
	if ctx.Err() != nil || err != nil && !errors.As(err, &exit) {
		return ran{}, fmt.Errorf("fulgurite %s: %w", strings.Join(args, " "), errors.Join(err, ctx.Err()))
	}
	return ran{cmd.ProcessState.ExitCode(), out.String() + complaints.String()}, nil
}

func (w *world) environment(dir string) []string {
	return append(os.Environ(), "FULGURITE_PORT=0", "FULGURITE_UI_PORT=0", "FULGURITE_GATEWAY_PORT=0", "FULGURITE_DIR="+filepath.Join(dir, "none"))
}

// state is the directory of the stack that trains.
func (w *world) state() string { return filepath.Join(w.dir, "state") }

// up starts the stack that trains, when the first setup is to be trained.
func (w *world) up(ctx context.Context) error {
	w.once.Do(func() { w.started = w.start(ctx) })
	return w.started
}

func (w *world) start(ctx context.Context) error {
	w.stack = exec.Command(w.bin, "dev", "--dir", w.state())
	out, err := w.stack.StdoutPipe()
	if err != nil {
		return err
	}
	w.stack.Env = w.environment(w.dir)
	if err := w.stack.Start(); err != nil {
		return err
	}
	said := make(chan error, 1)
	go func() {
		text, piece := "", make([]byte, 4096)
		for !strings.Contains(text, "is up") {
			n, err := out.Read(piece)
			if text += string(piece[:n]); err != nil {
				said <- fmt.Errorf("fulgurite dev ended: %s", text)
				return
			}
		}
		said <- nil
		_, _ = io.Copy(io.Discard, out) // so that it never waits for a reader
	}()
	select {
	case err := <-said:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
