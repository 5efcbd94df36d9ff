// Command faults measures how long rollouts take whose calls fail, and what a rollout costs
// that survives it. An agent makes calls one after the other, of a server that takes its time
// for each. A call fails with a given probability; the agent then gives up, and asks for
// another attempt at its rollout. It does so in two ways: as it is, so that the record answers
// the calls that an earlier attempt made; and with the number of the attempt in each request,
// so that nothing on record answers it and every attempt begins from scratch. Without failures
// the same agent also asks the server directly, without Fulgurite.
//
//	go run ./bench/faults -svg docs/curves/faults.svg
//
// Runs of both ways alternate. They draw the same failures: by the number of the rollout, of
// the attempt, and of the call. The last attempt that a rollout may have does not fail.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sashabaranov/go-openai"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/bench/interval"
	"github.com/fulgurite/fulgurite/internal/chart"
	"github.com/fulgurite/fulgurite/internal/wait"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// roundSuffix is in the name of a run before the number of its round.
const roundSuffix = "-round-"

// attempts is how many attempts at a rollout may fail by themselves before its task is
// quarantined.
const attempts = 10

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	b := &bench{made: map[string]int{}}
	flag.IntVar(&b.rollouts, "rollouts", 64, "rollouts of a run; all are under way at once")
	flag.IntVar(&b.calls, "calls", 20, "calls of a rollout")
	flag.DurationVar(&b.latency, "latency", time.Second, "how long the server takes for a call")
	rates := flag.String("rates", "0,0.001,0.01,0.05", "probabilities that a call fails")
	rounds := flag.Int("rounds", 3, "how often each run is repeated, with other failures")
	svg := flag.String("svg", "", "file for the chart")
	flag.Parse()
	b.rates, err = numbers(*rates)
	if err != nil {
		return err
	}
	closeAll, err := b.start(ctx)
	defer func() { err = errors.Join(err, closeAll()) }()
	if err != nil {
		return err
	}
	if err := b.measure(ctx, *rounds); err != nil {
		return err
	}
	fmt.Print(b.table())
	if *svg != "" {
		return os.WriteFile(*svg, b.plot().SVG(), 0o644)
	}
	return nil
}

func numbers(text string) (out []float64, err error) {
	for word := range strings.SplitSeq(text, ",") {
		p, err := strconv.ParseFloat(word, 64)
		if err != nil || p < 0 || p >= 1 {
			return nil, fmt.Errorf("-rates: %q is no probability below 1", word)
		}
		out = append(out, p)
	}
	return out, nil
}

// way is how rollouts run.
type way int

const (
	direct  way = iota // without Fulgurite
	replay             // the record answers the calls of earlier attempts
	scratch            // each attempt makes all calls
)

func (w way) String() string { return []string{"direct", "replay", "scratch"}[w] }

// bench runs rollouts, and keeps how long they took.
type bench struct {
	rollouts, calls int
	latency         time.Duration
	rates           []float64

	model string // where the scripted server listens
	stack *stack.Stack
	// seconds has those of each rollout, by rate and way; counts has the attempts.
	seconds, counts map[float64]map[way][]float64

	mu   sync.Mutex
	made map[string]int // attempts, by rollout
}

// start starts the server and a stack.
func (b *bench) start(ctx context.Context) (closeAll func() error, err error) {
	closeAll = func() error { return nil }
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return closeAll, err
	}
	server := &http.Server{Handler: http.HandlerFunc(b.answer), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	b.model = "http://" + listener.Addr().String()
	dir, err := os.MkdirTemp("", "faults-")
	if err != nil {
		return server.Close, err
	}
	closeAll = func() error { return errors.Join(server.Close(), os.RemoveAll(dir)) }
	agents := agent.Registry{}
	for _, w := range []way{replay, scratch} {
		for _, rate := range b.rates {
			agents[agentName(w, rate)] = func(ctx context.Context, _ agent.Task, env agent.Env) (string, error) {
				return "0", b.solve(ctx, env.BaseURL, env.Key, env.Rollout.String(), w, rate)
			}
		}
	}
	b.stack, err = stack.Start(ctx, stack.Options{Dir: dir, Agents: agents, Concurrency: b.rollouts, Log: zap.NewNop()})
	if err != nil {
		return closeAll, err
	}
	return func() error { return errors.Join(b.stack.Close(), server.Close(), os.RemoveAll(dir)) }, nil
}

func agentName(w way, rate float64) string {
	return strings.NewReplacer(".", "-").Replace(fmt.Sprintf("%s-%v", w, rate))
}

// answer is the server: it answers every request with the same text, after the latency.
func (b *bench) answer(w http.ResponseWriter, r *http.Request) {
	if !wait.For(r.Context(), b.latency) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(openai.ChatCompletionResponse{
		ID: "reply", Object: "chat.completion", Model: "scripted",
		Choices: []openai.ChatCompletionChoice{{Message: openai.ChatCompletionMessage{Role: "assistant", Content: "go on"}, FinishReason: "stop"}},
		Usage:   openai.Usage{PromptTokens: 1, CompletionTokens: 1, TotalTokens: 2},
	})
}

// solve is the agent.
func (b *bench) solve(ctx context.Context, url, key, rollout string, w way, rate float64) error {
	b.mu.Lock()
	b.made[rollout]++
	attempt := b.made[rollout]
	b.mu.Unlock()
	config := openai.DefaultConfig(key)
	config.BaseURL = url
	c := openai.NewClientWithConfig(config)
	// Both ways draw the same failures, so it does not count which way the run goes.
	_, number, _ := strings.Cut(rollout, roundSuffix)
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(number))                             // it returns nil
	draws := rand.New(rand.NewPCG(hash.Sum64(), uint64(attempt))) //nolint:gosec // failures are no secrets
	for call := range b.calls {
		if draws.Float64() < rate && attempt < attempts {
			if !wait.For(ctx, b.latency) { // a call that fails takes as long as others
				return context.Cause(ctx)
			}
			return fmt.Errorf("call %d failed: %w", call, agent.ErrRetry)
		}
		text := fmt.Sprintf("rollout %s, call %d", rollout, call)
		if w == scratch {
			text += fmt.Sprintf(", attempt %d", attempt)
		}
		_, err := c.CreateChatCompletion(ctx, openai.ChatCompletionRequest{
			Model: "scripted", Messages: []openai.ChatCompletionMessage{{Role: "user", Content: text}},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// measure runs all rates in all ways, several times.
func (b *bench) measure(ctx context.Context, rounds int) error {
	b.seconds, b.counts = map[float64]map[way][]float64{}, map[float64]map[way][]float64{}
	for _, rate := range b.rates {
		b.seconds[rate], b.counts[rate] = map[way][]float64{}, map[way][]float64{}
	}
	for round := range rounds {
		for _, rate := range b.rates {
			ways := []way{replay, scratch}
			if rate == 0 {
				ways = append(ways, direct)
			}
			for i := range ways {
				w := ways[(i+round)%len(ways)]
				seconds, counts, err := b.rollOut(ctx, round, w, rate)
				if err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "round %d, rate %v, %s: %v s a rollout, %v attempts\n", round+1, rate, w, interval.Of(seconds), interval.Of(counts))
				b.seconds[rate][w] = append(b.seconds[rate][w], seconds...)
				b.counts[rate][w] = append(b.counts[rate][w], counts...)
			}
		}
	}
	return nil
}

// rollOut runs the rollouts of a round in one way, and returns the seconds from the beginning
// of the first attempt to the end of the last one, and the attempts, of each.
func (b *bench) rollOut(ctx context.Context, round int, w way, rate float64) (seconds, counts []float64, err error) {
	if w == direct {
		return b.withoutFulgurite(ctx)
	}
	name := fmt.Sprintf("%s%s%d", agentName(w, rate), roundSuffix, round)
	input, err := json.Marshal(spec.Spec{
		Seed: uint64(round), Agent: spec.Agent{Func: agentName(w, rate), Limits: spec.AgentLimits{Calls: b.calls, Seconds: 3600}},
		Tasks: spec.Tasks{Gate: fmt.Sprintf("arithmetic:gate:%d", b.rollouts)}, Grader: spec.Grader{Type: "exact"},
		Sampling:   spec.Sampling{Server: &spec.Server{Type: "openai", URLs: []string{b.model}, Model: "scripted"}},
		Evaluation: spec.Evaluation{Only: "gate", Samples: 1},
	}.WithDefaults())
	if err != nil {
		return nil, nil, err
	}
	started, err := b.stack.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: name, TaskQueue: workflows.QueueTraining},
		workflows.TypeTraining, workflows.TrainingInput{Spec: input})
	if err != nil {
		return nil, nil, err
	}
	if err := started.Get(ctx, nil); err != nil {
		return nil, nil, err
	}
	all, err := b.stack.Store.Attempts(ctx, name, record.Gate, 0)
	if err != nil {
		return nil, nil, err
	}
	began := map[record.RolloutID]time.Time{}
	for _, a := range all {
		if a.Attempt == 1 {
			began[a.RolloutID] = a.Begun
		}
		if a.Outcome == record.OutcomeCompleted {
			seconds = append(seconds, a.Ended.Sub(began[a.RolloutID]).Seconds())
			counts = append(counts, float64(a.Attempt))
		}
	}
	if len(seconds) != b.rollouts {
		return nil, nil, fmt.Errorf("%s: %d rollouts were completed, want %d", name, len(seconds), b.rollouts)
	}
	return seconds, counts, nil
}

// withoutFulgurite runs the rollouts beside each other, without failures.
func (b *bench) withoutFulgurite(ctx context.Context) (seconds, counts []float64, err error) {
	seconds, counts = make([]float64, b.rollouts), slices.Repeat([]float64{1}, b.rollouts)
	errs := make([]error, b.rollouts)
	var group sync.WaitGroup
	for i := range b.rollouts {
		group.Go(func() {
			began := time.Now()
			errs[i] = b.solve(ctx, b.model+"/v1", "none", fmt.Sprint("direct/", i), direct, 0)
			seconds[i] = time.Since(began).Seconds()
		})
	}
	group.Wait()
	return seconds, counts, errors.Join(errs...)
}

// table returns the results in Markdown. Costs are relative to the mean without failures.
func (b *bench) table() string {
	var t strings.Builder
	fmt.Fprintf(&t, "%d calls of %v, %d rollouts at once, seconds a rollout\n\n", b.calls, b.latency, b.rollouts)
	t.WriteString("| calls that fail | from scratch | cost | attempts | from the record | cost | attempts |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, rate := range b.rates {
		fmt.Fprintf(&t, "| %v %%", 100*rate)
		for _, w := range []way{scratch, replay} {
			m := interval.Of(b.seconds[rate][w])
			fmt.Fprintf(&t, " | %.2f ± %.2f | %+.1f %% | %.2f", m.Value, m.Half, 100*b.cost(rate, w), interval.Of(b.counts[rate][w]).Value)
		}
		t.WriteString(" |\n")
	}
	if all := b.seconds[0][direct]; len(all) > 0 {
		m := interval.Of(all)
		fmt.Fprintf(&t, "\nwithout Fulgurite and failures: %.3f ± %.3f; with it: %+.2f %%\n", m.Value, m.Half, 100*(interval.Of(b.seconds[0][replay]).Value/m.Value-1))
	}
	return t.String()
}

// cost is how much longer rollouts take than without failures.
func (b *bench) cost(rate float64, w way) float64 {
	return interval.Of(b.seconds[rate][w]).Value/interval.Of(b.seconds[b.rates[0]][w]).Value - 1
}

func (b *bench) plot() chart.Plot {
	p := chart.Plot{Title: "What failed calls cost", XLabel: "calls that fail, %", YLabel: "seconds a rollout"}
	for _, s := range []struct {
		name string
		way  way
	}{{"each attempt from scratch", scratch}, {"the record answers what was asked before", replay}} {
		line := chart.Series{Name: s.name}
		for _, rate := range b.rates {
			line.Points = append(line.Points, chart.Point{X: 100 * rate, Y: interval.Of(b.seconds[rate][s.way]).Value})
		}
		p.Series = append(p.Series, line)
	}
	return p
}
