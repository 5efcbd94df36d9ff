// Command setups checks `fulgurite plan` and `fulgurite try` on setups that can't learn.
// Each of them certainly makes `fulgurite train` fail, or learn nothing in its first
// step. If that can be known without running, plan must refuse the setup. Otherwise try
// must find the problem, say so and exit with 1. Setups that learn must pass both
// commands, even if something may get in the way of learning.
//
// It runs the real commands on a directory for each setup and compares exit codes and
// texts. Some setups it really trains, to show that the claimed outcome is right. It does
// not test training itself. It needs python3 and the tool that `make build` makes.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
)

// options are the command-line options.
type options struct {
	bin  string
	only *regexp.Regexp
	jobs int
	keep bool
}

// The exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("setups", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	flags.StringVar(&o.bin, "fulgurite", filepath.Join("bin", "fulgurite"), "the tool to test")
	only := flags.String("only", "", "regular expression of the setups to run")
	flags.IntVar(&o.jobs, "jobs", 4, "how many setups to run at once")
	flags.BoolVar(&o.keep, "keep", false, "keep the directory of the setups")
	if err := flags.Parse(args); err != nil {
		return exitUsage
	}
	var err error
	if o.only, err = regexp.Compile(*only); err == nil {
		o.bin, err = filepath.Abs(o.bin)
	}
	if err != nil {
		fmt.Fprintln(stderr, "setups:", err)
		return exitUsage
	}
	failed, err := o.all(ctx, stdout)
	switch {
	case err != nil:
		fmt.Fprintln(stderr, "setups:", err)
		return exitFailed
	case failed > 0:
		return exitFailed
	}
	return 0
}

// result is the outcome of a setup.
type result struct {
	seconds time.Duration
	wrong   []string // empty if all is as claimed
}

// all runs the selected setups and prints the results.
func (o options) all(ctx context.Context, stdout io.Writer) (failed int, err error) {
	dir, err := os.MkdirTemp("", "fulgurite-setups-")
	if err != nil {
		return 0, err
	}
	if o.keep {
		fmt.Fprintln(stdout, "The setups are in", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	var list []setup
	for _, s := range setups() {
		if o.only.MatchString(s.name) {
			list = append(list, s)
		}
	}
	env, err := newTestEnv(ctx, o.bin, dir)
	if err != nil {
		return 0, err
	}
	defer env.close()
	results := make([]result, len(list))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.jobs)
	for i, s := range list {
		group.Go(func() error {
			began := time.Now()
			wrong, err := env.check(ctx, s)
			results[i] = result{time.Since(began), wrong}
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	return report(stdout, list, results), nil
}

// report prints a table and counts the setups of which something is not as claimed.
func report(out io.Writer, list []setup, results []result) (failed int) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "setup\tfound by\ttrained\tseconds\tverdict")
	for i, s := range list {
		word := "ok"
		if len(results[i].wrong) > 0 {
			word = "WRONG"
			failed++
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%.1f\t%s\n", s.name, s.finder(), s.train, results[i].seconds.Seconds(), word)
	}
	table.Flush()
	for i, s := range list {
		for _, text := range results[i].wrong {
			fmt.Fprintf(out, "\n%s: %s\n", s.name, strings.TrimSpace(text))
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", len(list)-failed, failed)
	return failed
}

// check runs a setup and lists what differs from its claims.
func (env *testEnv) check(ctx context.Context, s setup) (wrong []string, err error) {
	dir := filepath.Join(env.dir, "setups", s.name)
	if err := s.write(dir, env.addresses); err != nil {
		return nil, err
	}
	expect := func(command string, got commandResult, code int, words []string) {
		if got.code != code {
			wrong = append(wrong, fmt.Sprintf("%s ended with %d, want %d:\n%s", command, got.code, code, got.text))
			return
		}
		for _, word := range words {
			if !strings.Contains(got.text, word) {
				wrong = append(wrong, fmt.Sprintf("%s does not say %q:\n%s", command, word, got.text))
			}
		}
	}
	planned, err := env.command(ctx, dir, "plan", "spec.yaml")
	if err != nil {
		return nil, err
	}
	if len(s.refused) > 0 {
		expect("plan", planned, 2, s.refused)
		return wrong, nil
	}
	expect("plan", planned, 0, nil)
	tried, err := env.command(ctx, dir, append([]string{"try", "spec.yaml"}, s.args...)...)
	if err != nil {
		return nil, err
	}
	code, words := 0, slices.Concat(s.stopped, s.printed)
	if len(s.stopped) > 0 {
		code, words = 1, append(words, "This would stop learning:")
	}
	expect("try", tried, code, words)
	if s.train == "" {
		return wrong, nil
	}
	text, err := env.checkTraining(ctx, dir, s)
	if text != "" {
		wrong = append(wrong, text)
	}
	return wrong, err
}

// checkTraining trains a setup and returns what differs from its claims.
func (env *testEnv) checkTraining(ctx context.Context, dir string, s setup) (wrong string, err error) {
	if err := env.startStack(ctx); err != nil {
		return "", err
	}
	got, err := env.command(ctx, dir, "train", "spec.yaml", "--name", s.name, "--dir", env.state())
	if err != nil {
		return "", err
	}
	if s.train == trainingFails {
		if got.code != 1 {
			return fmt.Sprintf("train ended with %d, want 1:\n%s", got.code, got.text), nil
		}
		for _, word := range s.because {
			if !strings.Contains(got.text, word) {
				return fmt.Sprintf("train does not say %q:\n%s", word, got.text), nil
			}
		}
		return "", nil
	}
	if got.code != 0 {
		return fmt.Sprintf("train ended with %d, want 0:\n%s", got.code, got.text), nil
	}
	listed, err := env.command(ctx, dir, "versions", s.name, "--json", "--dir", env.state())
	if err != nil {
		return "", err
	}
	weights, err := weightsOf(listed.text)
	if err != nil {
		return "", fmt.Errorf("read versions: %w: %s", err, listed.text)
	}
	if same := weights[0] == weights[1]; same != (s.train == learnsNothing) {
		return fmt.Sprintf("claimed is that it %s, but versions 0 and 1 have weights %s and %s", s.train, weights[0], weights[1]), nil
	}
	return "", nil
}

// weightsOf returns the digests of the weights of versions 0 and 1.
func weightsOf(listed string) ([2]string, error) {
	var out [2]string
	var versions []struct {
		Version int    `json:"version"`
		Weights string `json:"weights"`
	}
	if err := json.Unmarshal([]byte(listed), &versions); err != nil {
		return out, err
	}
	for _, v := range versions {
		if v.Version < len(out) {
			out[v.Version] = v.Weights
		}
	}
	if out[0] == "" || out[1] == "" {
		return out, errors.New("no versions 0 and 1")
	}
	return out, nil
}

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
	return append(os.Environ(), "FULGURITE_PORT=0", "FULGURITE_UI_PORT=0", "FULGURITE_GATEWAY_PORT=0", "FULGURITE_PAGE_PORT=0", "FULGURITE_METRICS_PORT=0", "FULGURITE_DIR="+filepath.Join(dir, "none"))
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
