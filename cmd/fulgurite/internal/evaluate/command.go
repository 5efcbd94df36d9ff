// Package evaluate implements `fulgurite evaluate`, which evaluates a model on the tasks
// of a spec without training, and `fulgurite compare`, which compares two evaluations on
// the same tasks.
package evaluate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/status"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/training"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/grading"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// Command is `fulgurite evaluate`.
type Command struct {
	Spec        string            `arg:"" help:"Spec file, YAML or JSON. Its agent, tasks, grader, sampling and seed are used." type:"path"`
	Model       string            `help:"What to evaluate: a version (RUN@12, RUN@promoted, RUN@newest, RUN, or of one of several policies, RUN:POLICY@12), a model's directory, or the URL of a server with OpenAI's API (default: the model that the spec starts from)." placeholder:"MODEL"`
	ServerModel string            `help:"Name of the model at the server, where it serves several." placeholder:"NAME"`
	ServerKey   string            `help:"Environment variable, of the process that samples, with the server's API key." placeholder:"NAME"`
	Split       string            `help:"Split of the spec: train, gate or test (default: test, or else gate)." enum:"train,gate,test," default:""`
	Samples     int               `help:"Attempts at each task; from 2 on they give pass@k (default: the spec's evaluation.samples)." placeholder:"N"`
	Name        string            `help:"Name of the evaluation (default: made of spec, split and model)."`
	Detach      bool              `help:"Return once the evaluation is started."`
	JSON        bool              `help:"Print the result as JSON, and no progress." name:"json"`
	Records     state.RecordFlags `embed:""`
}

// result is the outcome of an evaluation.
type result struct {
	Model string `json:"model"`
	report.Evaluation
}

// Outputs returns what the command prints as JSON.
func (*Command) Outputs() []any { return []any{result{}, training.Started{}, status.Status{}} }

// Run evaluates, goes on with an evaluation that is under way, or prints the one that is
// on record.
func (c *Command) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	if c.Samples < 0 {
		return terminal.Usagef("--samples %d: want at least 1", c.Samples)
	}
	sp, err := spec.Load(c.Spec)
	if err != nil {
		return terminal.Usage(err)
	}
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	label, err := c.prepare(ctx, t, records, &sp)
	if err != nil {
		return err
	}
	name, err := c.name(sp, label)
	if err != nil {
		return err
	}
	p, err := plan.Of(ctx, sp)
	if err != nil {
		return err
	}
	p.WarnOfTasks(t)
	done, err := c.recorded(ctx, t, records, name, p.Spec)
	if err != nil {
		return err
	}
	if !done {
		e := training.Execution{Name: name, Plan: p, Again: c.again(), Detach: c.Detach, JSON: c.JSON}
		if _, err := e.Run(ctx, s, t); err != nil || c.Detach {
			return err
		}
	}
	return c.print(ctx, t, records, name)
}

// again returns the words of the command that asks for the same evaluation again.
func (c *Command) again() []string {
	words := []string{"evaluate", c.Spec}
	for _, flag := range [][2]string{{"--model", c.Model}, {"--server-model", c.ServerModel}, {"--server-key", c.ServerKey}, {"--split", c.Split}, {"--name", c.Name}} {
		if flag[1] != "" {
			words = append(words, flag[0], flag[1])
		}
	}
	if c.Samples > 0 {
		words = append(words, "--samples", strconv.Itoa(c.Samples))
	}
	if c.JSON {
		words = append(words, "--json")
	}
	return words
}

// prepare turns sp, which may be a spec that trains, into a spec that only evaluates. It
// fills in defaults and checks the result. It returns a label for the model.
func (c *Command) prepare(ctx context.Context, t *terminal.Terminal, records fleet.Records, sp *spec.Spec) (label string, err error) {
	split := cmp.Or(c.Split, sp.Evaluation.Only)
	if split == "" {
		split = string(record.Test)
		if sp.Tasks.Test == "" && sp.Tasks.Gate != "" {
			split = string(record.Gate)
		}
	}
	source, _ := sp.Tasks.Split(split)
	if source == "" {
		return "", terminal.Usagef("%s: tasks.%s is missing: give it, or another --split", c.Spec, split)
	}
	sp.Tasks = sp.Tasks.Program(sp.Grader, source)
	switch record.Kind(split) {
	case record.Train:
		sp.Tasks.Train = source
	case record.Gate:
		sp.Tasks.Gate = source
	default:
		sp.Tasks.Test = source
	}
	sp.Evaluation = spec.Evaluation{Only: split, Samples: cmp.Or(c.Samples, sp.Evaluation.Samples), Success: sp.Evaluation.Success}
	sp.Optimizer, sp.Phases, sp.Budget = nil, nil, nil // an evaluation searches nothing, and has no steps
	sp.Training, sp.Algorithm, sp.Credit, sp.Loss, sp.Critic, sp.Promotion = spec.Training{}, "", spec.Credit{}, spec.Loss{}, nil, spec.Promotion{}
	sp.Policies = sp.PoliciesUntrained()
	if label, err = c.choose(ctx, t, records, sp); err != nil {
		return "", err
	}
	if *sp, err = sp.Complete(); err != nil {
		return "", terminal.Usage(fmt.Errorf("%s: %w", c.Spec, err))
	}
	return label, nil
}

// name returns the name that the flag gives, or else one that tells what is evaluated.
func (c *Command) name(sp spec.Spec, label string) (string, error) {
	name := c.Name
	if name == "" {
		file := strings.TrimSuffix(filepath.Base(c.Spec), filepath.Ext(c.Spec))
		name = plainName(fmt.Sprintf("%s-%s-%s", cmp.Or(sp.Name, file), sp.Evaluation.Only, label))
	}
	if err := record.CheckRunName(name); err != nil {
		if c.Name == "" {
			err = fmt.Errorf("the evaluation is named for the spec, the split and the model; give another name with --name: %w", err)
		} else {
			err = fmt.Errorf("--name: %w", err)
		}
		return "", terminal.Usage(err)
	}
	return name, nil
}

// plainName converts a text to a valid name of a run.
func plainName(text string) string {
	const most = 63
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_':
			return r
		}
		return '-'
	}, strings.ToLower(text))
	return strings.Trim(name[:min(most, len(name))], "._-")
}

// recorded reports whether the same evaluation is complete on record. Its tasks have to be
// those of today.
func (c *Command) recorded(ctx context.Context, t *terminal.Terminal, records fleet.Records, name string, sp spec.Spec) (bool, error) {
	run, err := records.Store.Run(ctx, name)
	if errors.Is(err, record.ErrNotFound) {
		return false, nil
	}
	if err != nil || run.Status != record.Completed || run.SpecDigest != spec.Digest(sp) {
		return false, err // if the name belongs to another run, starting this one is refused later
	}
	kind := record.Kind(sp.Evaluation.Only)
	digest, err := digestOf(ctx, sp)
	if err != nil {
		return false, err
	}
	if recorded := run.Splits[kind].Digest; recorded != digest {
		return false, terminal.Usagef("the tasks of tasks.%s have changed since evaluation %s: give --name to evaluate again", kind, name)
	}
	fmt.Fprintf(t.Err, "Evaluation %s is on record since %s; --name evaluates again under another name.\n", name, readable.Time(run.Finished))
	return true, nil
}

// digestOf returns the digest of the tasks of the split that a spec evaluates.
func digestOf(ctx context.Context, sp spec.Spec) (string, error) {
	source, _ := sp.Tasks.Split(sp.Evaluation.Only)
	var graders grading.Graders
	defer graders.Close()
	list, err := graders.Open(ctx, sp.Tasks, sp.Grader, source)
	if err != nil {
		return "", err
	}
	text, err := tasks.Encode(list)
	return fmt.Sprintf("sha256:%x", sha256.Sum256(text)), err
}

// print shows the evaluation on record.
func (c *Command) print(ctx context.Context, t *terminal.Terminal, records fleet.Records, name string) error {
	all, err := records.Store.Evaluations(ctx, name)
	if err != nil {
		return err
	}
	sp, err := records.Catalog.Spec(ctx, name)
	if err != nil {
		return err
	}
	shown, err := report.Evaluations(ctx, records.Store, all, sp)
	if err != nil {
		return err
	}
	if len(shown) != 1 {
		return fmt.Errorf("evaluation %s: %d evaluations are on record in this store, want one: --store says where it is", name, len(shown))
	}
	e := result{Model: cmp.Or(evaluation.ModelOf(sp), "the start of the spec"), Evaluation: shown[0]}
	if c.JSON {
		return t.JSON(e)
	}
	t.Printf("Evaluation %s: %s on the %s split, %s\n", name, e.Model, e.Kind, readable.Count(e.Tasks, "task"))
	t.Printf("  reward %.3f ± %.3f over %s\n", e.Mean, e.StdError, readable.Count(e.Rollouts, "rollout"))
	if e.Greedy != nil {
		t.Printf("  reward %.3f at temperature 0\n", *e.Greedy)
	}
	if e.Pass != nil {
		return e.Pass.WriteText(t.Out, "  ")
	}
	return nil
}

// Compare is `fulgurite compare`.
type Compare struct {
	A       string            `arg:"" help:"An evaluation: the name of one, or RUN@NUMBER of a version that its run evaluated."`
	B       string            `arg:"" help:"The one to compare with it, on the same tasks."`
	Split   string            `help:"Split of the evaluations, where versions have several: train, gate or test." enum:"train,gate,test," default:""`
	Greedy  bool              `help:"Compare the attempts at temperature 0 instead of the others."`
	Cluster string            `help:"Key of the tasks' metadata: tasks with one value of it are alike, as questions about one database are. Intervals and p-value are then by its values." placeholder:"KEY"`
	JSON    bool              `help:"Print JSON." name:"json"`
	Records state.RecordFlags `embed:""`
}

// Outputs returns what the command prints as JSON.
func (*Compare) Outputs() []any { return []any{evaluation.Comparison{}} }

// Run compares two evaluations on record.
func (c *Compare) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	a, err := c.load(ctx, records, c.A)
	if err != nil {
		return err
	}
	b, err := c.load(ctx, records, c.B)
	if err != nil {
		return err
	}
	comparison, err := evaluation.Compare(a, b, c.Cluster)
	if errors.Is(err, evaluation.ErrIncomparable) {
		return terminal.Usage(err)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return t.JSON(comparison)
	}
	return comparison.WriteText(t.Out)
}

func (c *Compare) load(ctx context.Context, records fleet.Records, reference string) (evaluation.Set, error) {
	e, err := evaluation.Find(ctx, records.Store, reference, record.Kind(c.Split))
	if err != nil {
		return evaluation.Set{}, terminal.Usage(err)
	}
	out, err := evaluation.Load(ctx, records.Store, records.Blobs, e, c.Greedy)
	if errors.Is(err, evaluation.ErrIncomplete) {
		return out, terminal.Usage(err)
	}
	return out, err
}
