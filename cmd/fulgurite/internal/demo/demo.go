// Package demo implements `fulgurite demo`, which goes through a whole training: from an
// empty directory to a promoted version.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/progress"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/serve"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/training"
	"github.com/fulgurite/fulgurite/examples/calc"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/stack"
	"github.com/fulgurite/fulgurite/workflows"
)

// Command is `fulgurite demo`.
type Command struct {
	serve.Ports `embed:""`
	PagePort    *int   `help:"The page's port (0: any; default: 8235, or a free one)." env:"FULGURITE_PAGE_PORT" placeholder:"PORT"`
	Seed        uint64 `help:"Seed of everything random." default:"1"`
	FromScratch bool   `help:"Begin with random weights and make the warm start too."`
	JSON        string `help:"Also write the result to this file." name:"json" placeholder:"FILE" type:"path"`

	// Steps and Problems make the demo smaller. They are for tests: a smaller demo shows
	// less than the command promises.
	Steps    int `help:"Train so many steps." hidden:"" default:"0"`
	Problems int `help:"Size of each split." hidden:"" default:"0"`
}

// demoResult is the JSON output of `fulgurite demo --json`.
type demoResult struct {
	Seed         uint64  `json:"seed"`
	RewardBefore float64 `json:"reward_before"` // test split, temperature 1, version 0
	RewardAfter  float64 `json:"reward_after"`  // the same for the promoted version
	WallSeconds  float64 `json:"wall_seconds"`
	PeakRSSBytes int64   `json:"peak_rss_bytes"`
	WeightsSHA   string  `json:"weights_sha256"` // of the last version's weights
	Run          string  `json:"run"`

	GreedyBefore *float64 `json:"greedy_before,omitempty"`
	GreedyAfter  *float64 `json:"greedy_after,omitempty"`
	Promoted     int      `json:"promoted"`
	Steps        int      `json:"steps"`
}

// Run trains the run of the demo, or goes on with the one under way.
func (c *Command) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	began := time.Now()
	sp, err := c.spec(s)
	if err != nil {
		return err
	}
	st, err := serve.Start(ctx, s, t, c.Ports, nil, 0)
	if err != nil {
		return err
	}
	p, err := serve.Page(ctx, s, t, st, c.PagePort)
	if err != nil {
		return errors.Join(err, serve.Close(s, st))
	}
	held, release := serve.WhileHeld(ctx, st)
	defer release()
	result, err := c.train(held, s, t, st, p.URL(), sp)
	if err != nil && ctx.Err() != nil {
		t.Printf("\nStopped. The same command goes on with the run.\n")
	}
	if err == nil {
		err = c.report(held, s, t, st, result, began)
	}
	if lost := serve.Lost(held); lost != nil {
		err = lost
	}
	return errors.Join(err, p.Close(), serve.Close(s, st))
}

// spec returns the example's own spec, with the changes of the flags.
func (c *Command) spec(s *state.Flags) (spec.Spec, error) {
	sp, err := spec.Parse(calc.Spec, "examples/calc/spec.yaml")
	if err != nil {
		return sp, err
	}
	sp.Seed = c.Seed
	if c.Steps > 0 {
		sp.Training.Steps = c.Steps
	}
	if c.Problems > 0 {
		sp.Tasks = spec.Tasks{
			Train: fmt.Sprintf("arithmetic:train:%d", c.Problems), Gate: fmt.Sprintf("arithmetic:gate:%d", c.Problems),
			Test: fmt.Sprintf("arithmetic:test:%d", c.Problems),
		}
	}
	if !c.FromScratch {
		if sp.Model.Base, err = unpackBase(s.Layout()); err != nil {
			return sp, fmt.Errorf("unpack the warm-started checkpoint: %w", err)
		}
		sp.Model.WarmStart = nil
	}
	sp = sp.WithDefaults()
	return sp, sp.Check()
}

// unpackBase writes the warm-started checkpoint that the binary carries.
func unpackBase(l stack.Layout) (string, error) {
	dir := filepath.Join(string(l), "base")
	for name, data := range map[string][]byte{model.WeightsFile: calc.Weights, model.ConfigFile: calc.Config} {
		if err := state.ReplaceFile(filepath.Join(dir, name), data); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// train starts the run, or goes on with the one under way, and follows it.
func (c *Command) train(ctx context.Context, s *state.Flags, t *terminal.Terminal, st *stack.Stack, page string, sp spec.Spec) (workflows.TrainingResult, error) {
	name, going, err := c.next(ctx, st, sp)
	if err != nil {
		return workflows.TrainingResult{}, err
	}
	verb := "started"
	if going {
		verb = "goes on"
	}
	t.Printf("Run %s %s. Watch it on its page, or in Temporal's Web UI:\n%s/runs/%s\n%s\n\n", name, verb, page, name, st.WorkflowURL(name))
	run, err := training.Start(ctx, st.Client, name, sp)
	if err != nil {
		return workflows.TrainingResult{}, err
	}
	display := progress.New(t.Out, t.TTY)
	defer display.Close()
	result, err := training.Follower{Client: st.Client, Display: display, Place: s.Place()}.Follow(ctx, run, sp)
	if err != nil && ctx.Err() == nil {
		return result, fmt.Errorf("run %s: %w", name, err)
	}
	return result, err
}

// demoPrefix begins the names of the demo's runs: demo-1, demo-2, …
const demoPrefix = "demo-"

// next returns the name of the demo's run that is under way, or else the name of the next
// one.
func (c *Command) next(ctx context.Context, st *stack.Stack, sp spec.Spec) (name string, going bool, err error) {
	runs, err := st.Store.Runs(ctx)
	if err != nil {
		return "", false, err
	}
	last := 0
	for _, r := range runs {
		n, err := strconv.Atoi(strings.TrimPrefix(r.Name, demoPrefix))
		if err != nil || !strings.HasPrefix(r.Name, demoPrefix) {
			continue
		}
		going := false
		if r.Status == record.Running {
			if going, err = training.UnderWay(ctx, st.Client, r.Name); err != nil {
				return "", false, err
			}
		}
		if going {
			if r.SpecDigest != spec.Digest(sp) {
				return "", false, terminal.Usagef("run %s is under way with other settings: use the same --seed and --from-scratch to go on, or another --dir", r.Name)
			}
			return r.Name, true, nil
		}
		last = max(last, n)
	}
	return demoPrefix + strconv.Itoa(last+1), false, nil
}

// report shows the outcome of the run and writes the files that stay.
func (c *Command) report(ctx context.Context, s *state.Flags, t *terminal.Terminal, st *stack.Stack, r workflows.TrainingResult, began time.Time) error {
	dir := st.Layout.Run(r.Run)
	svg, err := training.DrawCurve(ctx, t, st.Store, r.Run, dir)
	if err != nil {
		return err
	}
	checkpoint := filepath.Join(dir, "promoted")
	id := model.VersionID{Run: r.Run, Policy: model.DefaultPolicy, Number: r.Promoted}
	k, _, err := st.Catalog.Load(ctx, id)
	if err == nil {
		err = hf.WriteDirectory(checkpoint, k.Architecture, k.Weights)
	}
	if err != nil {
		return fmt.Errorf("export version %s: %w", id, err)
	}
	out := demoResult{
		Seed: c.Seed, RewardBefore: r.Before.Mean, RewardAfter: r.After.Mean, WallSeconds: time.Since(began).Seconds(),
		PeakRSSBytes: peakRSS(), WeightsSHA: strings.TrimPrefix(r.Weights, "sha256:"), Run: r.Run,
		GreedyBefore: r.Before.Greedy, GreedyAfter: r.After.Greedy, Promoted: r.Promoted, Steps: r.Steps,
	}
	t.Printf("\n  test reward before   %s\n", training.Describe(*r.Before))
	t.Printf("  test reward after    %s\n", training.Describe(*r.After))
	t.Printf("  promoted             version %d of %d, in %s\n", r.Promoted, r.Steps, checkpoint)
	t.Printf("  reward curve         %s\n", svg)
	t.Printf("  run history          %s\n", st.WorkflowURL(r.Run))
	t.Printf("                       (while `%s` runs)\n", s.Command("dev"))
	t.Printf("  all state            %s (rm -r removes it)\n", st.Layout)
	t.Printf("  took                 %.0f s, %d MB at most\n\n", out.WallSeconds, out.PeakRSSBytes>>20)
	t.Printf("Ask it something:  %s\n", s.Command("chat", r.Run+"@promoted", "12+7*3"))
	if c.JSON == "" {
		return nil
	}
	data, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	return os.WriteFile(c.JSON, append(data, '\n'), 0o644)
}

// peakRSS returns the largest resident memory that this process has had, in bytes.
func peakRSS() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return u.Maxrss // bytes on macOS, kilobytes on other systems
	}
	return u.Maxrss << 10
}
