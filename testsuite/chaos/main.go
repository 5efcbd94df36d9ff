// Command chaos kills processes of a real fleet while it trains. It proves that nothing
// was lost, that nothing was done twice, and that the weights have the same bits as those
// of a run without faults. docs/chaos.md describes what is killed and how the outcome is
// checked.
//
//	go run ./testsuite/chaos -kills 100 -seed 1 -json chaos.json
//
// It needs the commands in -bin (make build), and PostgreSQL's programs unless -store is
// sqlite. Package processes starts the fleet, and package checker checks the runs. The
// command itself decides which process to kill and when, restarts processes that have
// ended, measures the times until progress, and compares the checker's figures with the
// product's own report.
//
// The exit code is 0 if every run is sound, 1 if not, and 2 for wrong usage. With
// -expect-failure it is 0 only if recorded calls were sampled again and nothing else is
// wrong, which is the expected result without the journal.
//
// "chaos sum FILE..." adds up the reports that -json has written.
//
// "chaos agent" is the agent that the runs train, "chaos sorter" the one whose prompts they
// improve, "chaos redactor" takes words out of what clients say, and "chaos grader" lets each
// version pass. They are among the processes that die.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	openai "github.com/sashabaranov/go-openai"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/examples/calc/calculator"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
	"github.com/fulgurite/fulgurite/workflows"
)

// options are the command-line options.
type options struct {
	kills         int
	seed          uint64
	json          string
	store         string
	journal       string
	every         time.Duration
	think         time.Duration
	judge         string // URL, once it is up
	search        string // URL of the servers of searches, once they are up
	bin, dir      string
	roles         string
	page, pruner  bool
	scenarios     []scenario
	detect        bool
	expectFailure bool
	limit         time.Duration
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
	if len(args) > 0 && args[0] == agentCommand {
		m, err := parseAgentOptions(args[1:])
		if err == nil {
			err = solve(ctx, m, os.Stdin, stdout)
		}
		if err != nil {
			fmt.Fprintln(stderr, "chaos agent:", err)
			return exitFailed
		}
		return 0
	}
	if len(args) > 0 && args[0] == sorterCommand {
		if err := sortWord(ctx, args[1:], os.Stdin, stdout); err != nil {
			fmt.Fprintln(stderr, "chaos sorter:", err)
			return exitFailed
		}
		return 0
	}
	if len(args) > 0 && args[0] == redactorCommand {
		if err := redact(os.Stdin, stdout); err != nil {
			fmt.Fprintln(stderr, "chaos redactor:", err)
			return exitFailed
		}
		return 0
	}
	if len(args) > 0 && args[0] == graderCommand {
		if err := grade(args[1:], stdout); err != nil {
			fmt.Fprintln(stderr, "chaos grader:", err)
			return exitFailed
		}
		return 0
	}
	if len(args) > 0 && args[0] == "sum" {
		if err := printSum(args[1:], stdout); err != nil {
			fmt.Fprintln(stderr, "chaos sum:", err)
			return exitUsage
		}
		return 0
	}
	o, err := parse(args, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
		return exitUsage
	}
	s := &suite{options: o, out: stdout}
	err = s.run(ctx)
	if err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
		return exitFailed
	}
	return 0
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.kills, "kills", 100, "how many processes to kill (with -expect-failure, at least)")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the plan: who, when, for how long")
	f.StringVar(&o.json, "json", "", "file to write the report to")
	f.StringVar(&o.store, "store", "postgres", "postgres or sqlite, for the store and for Temporal")
	f.StringVar(&o.journal, "journal", "on", "on, or off: the gateway then samples again what an earlier attempt recorded")
	f.DurationVar(&o.every, "every", 3*time.Second, "mean time from one fault to the next")
	f.DurationVar(&o.think, "thought", 250*time.Millisecond, "how long an agent thinks before each of its calls")
	f.StringVar(&o.bin, "bin", "bin", "directory of fulgurite and fulgurite-worker")
	f.StringVar(&o.dir, "dir", "", "directory of all state, kept afterwards (default: a temporary one, removed unless something is wrong)")
	f.StringVar(&o.roles, "roles", "", "whom to kill, separated by commas (default: everybody)")
	with := f.String("with", "", "further processes to run and kill, separated by commas: page, which is read all the time, and pruner, which prunes the runs that have ended again and again")
	chosen := f.String("scenarios", "", "scenarios of the runs, in turn, separated by commas (default: plain,judge,lag,critic; there are policies, lora, band, stages, traffic, experiment and phases, too, and prompts, which are gepa and apo)")
	f.BoolVar(&o.detect, "detect", true, "measure first how long it takes until a hang is noticed")
	f.BoolVar(&o.expectFailure, "expect-failure", false, "succeed only if recorded calls were sampled again and nothing else is wrong")
	f.DurationVar(&o.limit, "limit", time.Hour, "how long everything may take")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q", f.Arg(0))
	case o.kills < 0 || o.every <= 0:
		return o, errors.New("-kills and -every must be positive")
	case !slices.Contains([]string{"postgres", "sqlite"}, o.store):
		return o, fmt.Errorf("-store %q: want postgres or sqlite", o.store)
	case !slices.Contains([]string{"on", "off"}, o.journal):
		return o, fmt.Errorf("-journal %q: want on or off", o.journal)
	}
	if *with != "" {
		for name := range strings.SplitSeq(*with, ",") {
			switch processes.Role(name) {
			case processes.Page:
				o.page = true
			case processes.Pruner:
				o.pruner = true
			default:
				return o, fmt.Errorf("-with %q: there are page and pruner", name)
			}
		}
	}
	var err error
	if o.scenarios, err = scenariosNamed(*chosen); err != nil {
		return o, err
	}
	_, err = o.victims()
	return o, err
}

// onlySearches reports whether all scenarios search for prompts, so that no run has weights.
func (o options) onlySearches() bool {
	return !slices.ContainsFunc(o.scenarios, func(c scenario) bool { return c.search == "" })
}

// compares reports whether a scenario has runs that are compared with a baseline.
func (o options) compares() bool {
	return slices.ContainsFunc(o.scenarios, func(c scenario) bool { return c.search == "" && !c.traffic })
}

// serve returns the key of operators if clients ask versions, or an empty one.
func (o options) serve() string {
	if slices.ContainsFunc(o.scenarios, func(c scenario) bool { return c.traffic }) {
		return servingKey
	}
	return ""
}

// victims returns the roles to kill: those that the scenarios have work for, unless the
// options name some.
func (o options) victims() ([]processes.Role, error) {
	all := []processes.Role{processes.Gateway, processes.Sampler, processes.CPU1, processes.CPU2, processes.GPU, processes.Temporal, processes.Postgres}
	if o.serve() != "" {
		all = slices.Insert(all, 1, processes.Gateway2)
	}
	if o.store == "sqlite" {
		all = all[:len(all)-1]
	}
	if o.page {
		all = append(all, processes.Page)
	}
	if o.pruner {
		all = append(all, processes.Pruner)
	}
	if o.roles == "" && o.onlySearches() {
		return slices.DeleteFunc(all, func(r processes.Role) bool { return r == processes.Sampler || r == processes.GPU }), nil
	}
	if o.roles == "" {
		return all, nil
	}
	var chosen []processes.Role
	for name := range strings.SplitSeq(o.roles, ",") {
		if !slices.Contains(all, processes.Role(name)) {
			return nil, fmt.Errorf("-roles %q: there are %v", name, all)
		}
		chosen = append(chosen, processes.Role(name))
	}
	return chosen, nil
}

const (
	// retryLimit is how long Temporal or the store may take to answer after a fault.
	retryLimit = 2 * time.Minute
	// stallLimit is for how long a run may make no progress at all. It is shorter than
	// the timeouts of activities, which work must not have to wait for after its worker
	// has died.
	stallLimit = 90 * time.Second
)

// trainingSpec returns the spec of a run so small that it ends within seconds without
// faults. Its agents wait before each call. The agents' limits are in calls, because a
// kill could make an attempt exceed a limit in seconds. The name is part of the judge's
// rubric, and so of the key of a judgment. So the calls of runs with other names are
// judged again.
func trainingSpec(c scenario, name string, o options) (spec.Spec, error) {
	self, err := os.Executable()
	if err != nil {
		return spec.Spec{}, fmt.Errorf("find the agent: %w", err)
	}
	agent := agentOptions{think: o.think, parallel: c.parallel, named: c.policies}
	s := spec.Spec{
		Seed:  7,
		Model: spec.Model{WarmStart: &spec.WarmStart{Demonstrations: "arithmetic", Updates: 400, Batch: 32}},
		Agent: spec.Agent{
			Command: append([]string{self}, agent.arguments()...),
			Limits:  spec.AgentLimits{Calls: 8, Seconds: 3600},
		},
		Tasks:      spec.Tasks{Train: "arithmetic:train:64", Gate: "arithmetic:gate:8", Test: "arithmetic:test:8"},
		Grader:     spec.Grader{Type: "exact"},
		Training:   spec.Training{Steps: 5, TasksPerStep: 4, SamplesPerTask: 4, Lag: c.lag, DynamicSampling: c.dynamicSampling},
		Evaluation: spec.Evaluation{Every: 2},
	}
	if c.critic {
		s.Credit, s.Critic = spec.Credit{Assignment: credit.TurnGAE}, &spec.Critic{}
	}
	if c.lora {
		s.Model.LoRA = &spec.LoRA{}
	}
	if c.policies {
		s.Policies = map[string]spec.Policy{
			agentNames[0]: {Match: []spec.PolicyMatch{{Agent: agentNames[0]}}},
			agentNames[1]: {Match: []spec.PolicyMatch{{Agent: agentNames[1]}}, Optimizer: &spec.Optimizer{LearningRate: 1e-3}},
		}
	}
	switch c.curriculum {
	case spec.CurriculumBand:
		s.Training.Curriculum = &spec.Curriculum{Type: c.curriculum, Forget: 0.1}
	case spec.CurriculumStages:
		two, reward := 2.0, 0.2
		s.Training.Curriculum = &spec.Curriculum{Type: c.curriculum, Stages: []spec.Stage{
			{Where: &spec.Where{Field: "operands", AtMost: &two}, Until: spec.Until{Steps: 3, Reward: &reward, Over: 2}}, {},
		}}
	}
	if c.judge {
		s.Credit = spec.Credit{Assignment: credit.Judge, Judge: &spec.Judge{URL: o.judge, Model: "random", Rubric: name}}
	}
	return s.WithDefaults(), nil
}

// startRun starts a run and retries until that succeeds. If judgedAs is not empty, the
// run uses the judgments of the run of that name.
func (s *suite) startRun(ctx context.Context, name string, c scenario, judgedAs string) error {
	training, err := trainingSpec(c, cmp.Or(judgedAs, name), s.options)
	workflow := "TrainingWorkflow"
	switch {
	case c.search != "":
		training, err = searchSpec(c, name, s.options)
		if workflow = "PromptWorkflow"; c.phases {
			workflow = "PhasesWorkflow"
		}
	case c.traffic:
		training, err = trafficSpec(c, s.options)
	}
	if err != nil {
		return err
	}
	data, err := json.Marshal(training)
	if err != nil {
		return fmt.Errorf("encode spec: %w", err)
	}
	s.newest.Store(c.runs(name)[0])
	return s.retry(ctx, "start run "+name, func(ctx context.Context) error {
		_, err := s.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
			ID: name, TaskQueue: workflows.QueueTraining, WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		}, workflow, workflows.TrainingInput{Spec: data})
		return err
	})
}

// retry repeats f while processes come back.
func (s *suite) retry(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, retryLimit)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := f(try)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (%w)", what, ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// completed reports whether a run has completed. It returns an error if the run ended in
// another way or stalled. If the store or Temporal can't be reached for a moment, it
// returns false.
func (s *suite) completed(ctx context.Context, name string) (bool, error) {
	if idle := s.monitor.idle(); idle > stallLimit {
		return false, fmt.Errorf("run %s has made no progress for %v", name, idle.Round(time.Second))
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status, err := s.db.Status(short, name)
	switch {
	case err != nil || status == "running":
		return false, nil
	case status == "completed":
		return true, nil
	case status != "":
		return false, fmt.Errorf("run %s is %s", name, status)
	}
	// It has no record yet; one that failed before it had one never will.
	d, err := s.temporal.DescribeWorkflowExecution(short, name, "")
	var absent *serviceerror.NotFound
	if errors.As(err, &absent) || err != nil {
		return false, nil
	}
	if st := d.WorkflowExecutionInfo.Status; st != enums.WORKFLOW_EXECUTION_STATUS_RUNNING && st != enums.WORKFLOW_EXECUTION_STATUS_COMPLETED {
		return false, fmt.Errorf("run %s is %s", name, st)
	}
	return false, nil
}

// awaitRun returns when a run has come to its end.
func (s *suite) awaitRun(ctx context.Context, name string) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		done, err := s.completed(ctx, name)
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// agentCommand is the argument that makes this program an agent.
const agentCommand = "agent"

// agentOptions say how the agent works.
type agentOptions struct {
	// think is the time before each call, so that most faults come between calls.
	think time.Duration
	// parallel makes two dialogs at once. Otherwise the second dialog follows the first.
	// Both then begin with the same request, which must be sampled again for the second.
	parallel bool
	// named gives the two dialogs the names of two agents, which other policies answer.
	named bool
}

// agentNames are the names of the dialogs with agentOptions.named.
var agentNames = [2]string{"first", "second"}

// arguments returns the arguments that parseAgentOptions reads.
func (m agentOptions) arguments() []string {
	return []string{agentCommand, m.think.String(), strconv.FormatBool(m.parallel), strconv.FormatBool(m.named)}
}

func parseAgentOptions(args []string) (m agentOptions, err error) {
	if len(args) != 3 {
		return m, errors.New("say how long to think before a call, whether to make two at once, and whether to name them")
	}
	if m.think, err = time.ParseDuration(args[0]); err != nil {
		return m, err
	}
	if m.parallel, err = strconv.ParseBool(args[1]); err != nil {
		return m, err
	}
	m.named, err = strconv.ParseBool(args[2])
	return m, err
}

// solve is an agent that knows nothing about its environment. It solves its task with the
// calculator twice. If the dialogs follow each other, it returns the last answer. If they
// run in parallel, it returns the answer that sorts last, so that it does not matter
// which one is finished first.
func solve(ctx context.Context, m agentOptions, in io.Reader, out io.Writer) error {
	var task struct {
		Input string `json:"input"`
	}
	if err := json.NewDecoder(in).Decode(&task); err != nil {
		return fmt.Errorf("read task: %w", err)
	}
	agent := func(name string) calculator.Agent {
		config := openai.DefaultConfig(os.Getenv("OPENAI_API_KEY"))
		config.BaseURL = os.Getenv("OPENAI_BASE_URL")
		if m.named {
			config.BaseURL = strings.TrimSuffix(config.BaseURL, "/v1") + "/n/" + name + "/v1"
		}
		config.HTTPClient = &http.Client{Transport: slowTransport{http.DefaultTransport, m.think}}
		return calculator.Agent{Client: openai.NewClientWithConfig(config), Model: os.Getenv("OPENAI_MODEL_NAME"), MaxTurns: 3}
	}
	answers := make([]string, 2)
	var both errgroup.Group
	if !m.parallel {
		both.SetLimit(1)
	}
	for i := range answers {
		question := task.Input
		if m.parallel && i == 1 {
			question += "+0"
		}
		both.Go(func() (err error) {
			answers[i], err = agent(agentNames[i]).Solve(ctx, question)
			if errors.Is(err, calculator.ErrNoAnswer) {
				err = nil
			}
			return err
		})
	}
	if err := both.Wait(); err != nil {
		return err
	}
	answer := answers[1]
	switch {
	case m.parallel:
		answer = slices.Max(answers)
	case m.named && answers[0] != answers[1]:
		answer = "they differ" // so that both of the policies matter
	}
	_, err := fmt.Fprintln(out, answer)
	return err
}

// slowTransport waits before each request.
type slowTransport struct {
	next  http.RoundTripper
	think time.Duration
}

// RoundTrip implements http.RoundTripper.
func (t slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	timer := time.NewTimer(t.think)
	defer timer.Stop()
	select {
	case <-timer.C:
		return t.next.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}
