// Command curriculum counts the rollouts that a run needs until it reaches a goal, with
// and without a curriculum of type band that chooses each step's tasks, for several
// seeds. The training tasks are problems for the calculator. Most of them can't be
// solved, because their answers are wrong. The goal is a mean reward on a gate split of
// problems that can all be solved.
//
//	go run ./bench/curriculum -seeds 3
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/builtin"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "curriculum:", err)
		os.Exit(1)
	}
}

// options are the command-line options.
type options struct {
	steps, tasks, hopeless int
	goal                   float64
}

func run(ctx context.Context) error {
	var o options
	first := flag.Int("first", 1, "the first seed")
	seeds := flag.Int("seeds", 3, "runs of each variant")
	kinds := flag.String("kinds", "uniform,band", "which curricula, separated by commas")
	flag.IntVar(&o.steps, "steps", 30, "steps of a run")
	flag.IntVar(&o.tasks, "tasks", 64, "training tasks that can be solved")
	flag.IntVar(&o.hopeless, "hopeless", 192, "training tasks that can't")
	flag.Float64Var(&o.goal, "goal", 0.6, "mean reward on the gate split")
	flag.Parse()
	fmt.Println("| curriculum | seed | gate before | gate at the end | rollouts to the goal | groups with a gradient | seconds |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	for seed := *first; seed < *first+*seeds; seed++ {
		for kind := range strings.SplitSeq(*kinds, ",") {
			began := time.Now()
			out, err := measure(ctx, o, kind, uint64(seed))
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", kind, seed, err)
			}
			reached := "not reached"
			if out.rollouts >= 0 {
				reached = fmt.Sprint(out.rollouts)
			}
			fmt.Printf("| %s | %d | %.3f | %.3f | %s | %.2f | %.0f |\n", kind, seed, out.before, out.after, reached, out.teaching, time.Since(began).Seconds())
		}
	}
	return nil
}

// outcome is the outcome of a run.
type outcome struct {
	before, after float64 // mean reward on the gate split
	rollouts      int     // until the first version that reached the goal, or -1
	teaching      float64 // share of the groups whose rewards differ
}

// specOf returns the spec of a run, and writes its training tasks to a file in dir.
func specOf(o options, kind string, seed uint64, dir string) (spec.Spec, error) {
	file := filepath.Join(dir, "tasks.jsonl")
	list, err := tasks.Open(fmt.Sprintf("arithmetic:train:%d", o.tasks+o.hopeless))
	if err != nil {
		return spec.Spec{}, err
	}
	for i := range list[o.tasks:] {
		list[o.tasks+i].Answer = "none"
	}
	data, err := tasks.Encode(list)
	if err != nil {
		return spec.Spec{}, err
	}
	return spec.Spec{
		Name: "curriculum", Seed: seed,
		Model:    spec.Model{WarmStart: &spec.WarmStart{Demonstrations: "arithmetic", Updates: 500, Batch: 64}},
		Agent:    spec.Agent{Func: "calculator"},
		Tasks:    spec.Tasks{Train: file, Gate: "arithmetic:gate:64"},
		Grader:   spec.Grader{Type: spec.GraderExact},
		Sampling: spec.Sampling{MaxTokens: 24},
		Training: spec.Training{
			Steps: o.steps, TasksPerStep: 8, SamplesPerTask: 8, Curriculum: &spec.Curriculum{Type: kind},
			Optimizer: spec.Optimizer{LearningRate: 1e-3, Schedule: spec.ScheduleConstant},
		},
		Evaluation: spec.Evaluation{Every: 3, Samples: 2},
	}.WithDefaults(), os.WriteFile(file, data, 0o600)
}

// measure makes one run in its own stack.
func measure(ctx context.Context, o options, kind string, seed uint64) (out outcome, err error) {
	dir, err := os.MkdirTemp("", "curriculum-")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := specOf(o, kind, seed, dir)
	if err != nil {
		return out, err
	}
	st, err := stack.Start(ctx, stack.Options{Dir: filepath.Join(dir, "state"), Agents: builtin.Agents(), Log: zap.NewNop()})
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	data, err := json.Marshal(s)
	if err != nil {
		return out, err
	}
	handle, err := st.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: s.Name, TaskQueue: workflows.QueueTraining}, workflows.TrainingWorkflow,
		workflows.TrainingInput{Spec: data})
	if err != nil {
		return out, err
	}
	if err := handle.Get(ctx, nil); err != nil {
		return out, err
	}
	evaluations, err := st.Store.Evaluations(ctx, s.Name)
	if err != nil {
		return out, err
	}
	steps, err := st.Store.Steps(ctx, s.Name, model.DefaultPolicy)
	if err != nil {
		return out, err
	}
	return outcomeOf(o, s, evaluations, steps), nil
}

func outcomeOf(o options, s spec.Spec, evaluations []record.Evaluation, steps []record.Step) outcome {
	evaluations = slices.DeleteFunc(evaluations, func(e record.Evaluation) bool { return e.Kind != record.Gate })
	out := outcome{before: evaluations[0].Mean, after: evaluations[len(evaluations)-1].Mean, rollouts: -1}
	for _, e := range evaluations {
		if e.Mean >= o.goal && out.rollouts < 0 {
			out.rollouts = e.Version * s.Training.TasksPerStep * s.Training.SamplesPerTask
		}
	}
	for _, step := range steps {
		out.teaching += (1 - step.Metrics["batch/zero_variance_groups"]/float64(s.Training.TasksPerStep)) / float64(len(steps))
	}
	return out
}
