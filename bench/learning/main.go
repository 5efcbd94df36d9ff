// Command learning compares how different settings of one spec learn. It trains every
// variant with every seed, one run after the other, on equal tasks and with equal numbers
// of samples. It prints three mean rewards: of all training rollouts (the area under the
// curve), of the last tenth of the steps, and of the last version on the test split. Each
// is a mean over seeds with a 95 % interval. For the first and the last of them it prints
// the difference to the first variant; these differences are taken seed by seed and have
// their own interval. It also draws the curves.
//
//	go run ./bench/learning -spec examples/maze/spec.yaml -seeds 5 \
//	    -variants credit.assignment=identical,discounted,gigpo,value_difference,turn_gae -svg curves.svg
//	go run ./bench/learning -spec examples/calc/spec.yaml -seeds 3 \
//	    -variants 'training.lag=0,2,4' -and 'loss.correction=none,decoupled'
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
	"time"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/bench/interval"
	"github.com/fulgurite/fulgurite/internal/builtin"
	"github.com/fulgurite/fulgurite/internal/chart"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "learning:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	file := flag.String("spec", "examples/maze/spec.yaml", "the spec that variants change")
	axis := flag.String("variants", "", "key=value,value: what is compared")
	other := flag.String("and", "", "likewise: every combination of the two is a variant")
	seeds := flag.Int("seeds", 5, "runs of each variant")
	steps := flag.Int("steps", 0, "steps of a run; 0 are the spec's")
	svg := flag.String("svg", "", "file for the curves")
	flag.Parse()
	base, err := spec.Load(*file)
	if err != nil {
		return err
	}
	if *steps > 0 {
		base.Training.Steps = *steps
	}
	all, err := variants([]string{*axis, *other})
	if err != nil {
		return err
	}
	plot := chart.Plot{Title: "Reward while training, mean of " + fmt.Sprint(*seeds) + " seeds", XLabel: "step", YLabel: "mean reward"}
	fmt.Println("| variant | all steps | last tenth | test, last version | all steps less the first's | test less the first's | seconds |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	var first outcome
	for i, v := range all {
		s, err := v.apply(base)
		if err != nil {
			return err
		}
		o, err := measure(ctx, s, *seeds, v.name)
		if err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		if i == 0 {
			first = o
		}
		fmt.Printf("| %s | %s | %s | %s | %s | %s | %.0f |\n", v.name, interval.Of(o.all), interval.Of(o.last), interval.Of(o.test),
			interval.Of(differences(o.all, first.all)), interval.Of(differences(o.test, first.test)), o.seconds)
		plot.Series = append(plot.Series, o.series(v.name))
	}
	if *svg == "" {
		return nil
	}
	return os.WriteFile(*svg, plot.SVG(), 0o644)
}

// measure trains a spec with seeds 1 to n. Each run has its own stack, so that data of
// one run can't slow another. It reports each run on standard error.
func measure(ctx context.Context, s spec.Spec, n int, name string) (outcome, error) {
	var out outcome
	began := time.Now()
	for seed := range n {
		s.Seed = uint64(seed + 1)
		curve, test, err := train(ctx, s)
		if err != nil {
			return out, fmt.Errorf("seed %d: %w", s.Seed, err)
		}
		out.add(curve, test)
		fmt.Fprintf(os.Stderr, "%s, seed %d: all steps %.3f, last tenth %.3f, test %.3f\n", name, s.Seed, out.all[seed], out.last[seed], test)
	}
	out.seconds = time.Since(began).Seconds() / float64(n)
	return out, nil
}

// train makes one run. It returns the reward of each step, and the reward of the last
// version on the test split. The run has no gate split, so the version that it reports is
// the last one.
func train(ctx context.Context, s spec.Spec) (curve []float64, test float64, err error) {
	dir, err := os.MkdirTemp("", "learning-")
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	st, err := stack.Start(ctx, stack.Options{Dir: filepath.Join(dir, "state"), Agents: builtin.Agents(), Log: zap.NewNop()})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	s.Name, s.Tasks.Gate, s.Evaluation.Every, s.Promotion = "learning", "", 0, spec.Promotion{}
	data, err := json.Marshal(s)
	if err != nil {
		return nil, 0, err
	}
	handle, err := st.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: s.Name, TaskQueue: workflows.QueueTraining}, workflows.TrainingWorkflow,
		workflows.TrainingInput{Spec: data})
	if err != nil {
		return nil, 0, err
	}
	var result workflows.TrainingResult
	if err := handle.Get(ctx, &result); err != nil {
		return nil, 0, err
	}
	steps, err := st.Store.Steps(ctx, s.Name, model.DefaultPolicy)
	if err != nil {
		return nil, 0, err
	}
	for _, one := range steps {
		curve = append(curve, one.Metrics["reward/mean"])
	}
	if result.After == nil {
		return nil, 0, errors.New("the spec has no tasks.test")
	}
	return curve, result.After.Mean, nil
}
