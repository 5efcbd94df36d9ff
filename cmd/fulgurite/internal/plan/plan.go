// Package plan reads what a run would read, starts nothing, and says what will run.
package plan

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/fleet"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workflows"
)

// Command is `fulgurite plan`.
type Command struct {
	Spec string `arg:"" help:"Spec file, YAML or JSON." type:"path"`
	JSON bool   `help:"Print JSON." name:"json"`
}

// Plan is what a spec will run.
type Plan struct {
	Digest     string             `json:"digest"`
	Spec       spec.Spec          `json:"spec"` // with defaults, paths absolute
	Parameters int                `json:"parameters"`
	Engine     string             `json:"engine"` // its fingerprint
	Tasks      map[trace.Kind]int `json:"tasks"`
	Steps      int                `json:"steps"`
	Epochs     float64            `json:"epochs"`
	Rollouts   int                `json:"rollouts"` // that are trained on
	Gates      int                `json:"gate_evaluations"`
	Queues     []string           `json:"queues"`
	// Warnings are what may stand in the way of learning.
	Warnings []string `json:"warnings"`
}

// Run prints the plan of a spec.
func (c *Command) Run(_ context.Context, t *terminal.Terminal) error {
	p, err := Make(c.Spec)
	if err != nil {
		return err
	}
	if err := p.Spec.Trainable(); err != nil {
		return err
	}
	if c.JSON {
		return t.JSON(p)
	}
	p.print(t)
	return nil
}

// Make reads everything that a run would read and starts nothing.
func Make(path string) (Plan, error) {
	sp, err := loadSpec(path)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Digest: spec.Digest(sp), Spec: sp, Tasks: map[trace.Kind]int{}}
	if err := p.readTasks(); err != nil {
		return p, terminal.Usage(err)
	}
	codec, err := planCodec(sp.Model)
	if err != nil {
		return p, terminal.Usage(err)
	}
	architecture := model.Tiny(codec.VocabSize())
	architecture.MaxPositions = sp.Model.Context
	if sp.Model.Base != "tiny" {
		if architecture, _, err = hf.ReadDirectory(sp.Model.Base); err != nil {
			return p, terminal.Usage(fmt.Errorf("model.base: %w", err))
		}
		if architecture.VocabSize < codec.VocabSize() {
			return p, terminal.Usagef("model.base: %s has a vocabulary of %d tokens, but codec %s has %d: give the model's own codec (model.codec)",
				sp.Model.Base, architecture.VocabSize, codec.Name(), codec.VocabSize())
		}
	}
	if err := checkDemonstrations(sp.Model, codec, architecture.MaxPositions); err != nil {
		return p, terminal.Usage(fmt.Errorf("model.warm_start.demonstrations: %w", err))
	}
	engine, err := fleet.Engines(sp.Model.Engine)
	if err != nil {
		return p, terminal.Usage(err)
	}
	tr := sp.Training
	p.Parameters, p.Engine = architecture.Parameters(), engine.Fingerprint()
	p.Steps = tr.Total(p.Tasks[trace.Train])
	p.Rollouts = p.Steps * tr.TasksPerStep * tr.SamplesPerTask
	p.Epochs = float64(p.Steps*tr.TasksPerStep) / float64(p.Tasks[trace.Train])
	if p.Tasks[trace.Gate] > 0 {
		p.Gates = 1 + (p.Steps+sp.Evaluation.Every-1)/sp.Evaluation.Every
	}
	p.Queues = []string{workflows.QueueTraining, sp.Agent.Queue, workflows.QueueTrainGPU}
	p.Warnings = p.warnings()
	return p, nil
}

// planCodec is the codec that a run would store and use.
func planCodec(m spec.Model) (dialog.Codec, error) {
	if m.Codec != spec.CodecTemplate {
		return dialog.Named(m.Codec)
	}
	bundle, err := dialog.ReadBundle(m.Base)
	if err != nil {
		return nil, fmt.Errorf("model.codec: %w", err)
	}
	bundle.ToolParser = m.ToolParser
	codec, err := bundle.Codec(m.Codec)
	if err == nil {
		err = dialog.CheckTools(codec, m.ToolParser)
	}
	return codec, err
}

// readTasks counts the tasks of each split, and reports the mistakes of all splits
// together.
func (p *Plan) readTasks() error {
	var faults []error
	for _, split := range []struct {
		kind   trace.Kind
		source string
	}{{trace.Train, p.Spec.Tasks.Train}, {trace.Gate, p.Spec.Tasks.Gate}, {trace.Test, p.Spec.Tasks.Test}} {
		if split.source == "" {
			continue
		}
		list, err := tasks.Open(split.source)
		if err == nil {
			err = tasks.CheckAnswers(p.Spec.Grader, list)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("tasks.%s: %w", split.kind, err))
		}
		p.Tasks[split.kind] = len(list)
	}
	return errors.Join(faults...)
}

func (p Plan) print(t *terminal.Terminal) {
	s, tr := p.Spec, p.Spec.Training
	line := func(label, format string, args ...any) { t.Printf("%-12s %s\n", label, fmt.Sprintf(format, args...)) }
	line("spec", "%s", p.Digest)
	line("seed", "%d", s.Seed)
	line("model", "%s, %d parameters, codec %s", s.Model.Base, p.Parameters, s.Model.Codec)
	line("engine", "%s", p.Engine)
	if w := s.Model.WarmStart; w != nil {
		line("warm start", "%d updates of %d dialogs from %s, learning rate %g", w.Updates, w.Batch, w.Demonstrations, w.LearningRate)
	}
	line("tasks", "train %d, gate %d, test %d", p.Tasks[trace.Train], p.Tasks[trace.Gate], p.Tasks[trace.Test])
	agent := "function " + s.Agent.Func
	if s.Agent.Func == "" {
		agent = "command " + strings.Join(s.Agent.Command, " ")
	}
	line("agent", "%s; at most %s", agent, limitsOf(s.Agent.Limits))
	line("grader", "%s", s.Grader.Type)
	line("sampling", "temperature %g, at most %d tokens a reply", *s.Sampling.Temperature, s.Sampling.MaxTokens)
	if sv := s.Sampling.Server; sv != nil {
		line("server", "%s at %s, model %s, versions: %s", sv.Type, strings.Join(sv.URLs, ", "), sv.Model, sv.Versions)
	}
	line("a step", "%d tasks × %d samples = %d rollouts, then %s", tr.TasksPerStep, tr.SamplesPerTask, tr.TasksPerStep*tr.SamplesPerTask, updatesOf(tr))
	if tr.Lag > 0 {
		line("lag", "step s samples from version s − %d; its rollouts begin while version s − %d is made", 1+tr.Lag, tr.Lag)
	}
	line("the run", "%d steps = %.2f epochs, %d rollouts", p.Steps, p.Epochs, p.Rollouts)
	for _, l := range learning(s) {
		line(l.label, "%s", l.text)
	}
	o := tr.Optimizer
	line("optimizer", "AdamW, learning rate %g, %s to %g of it, gradient norm clipped at %g", o.LearningRate, o.Schedule, o.FinalFraction, o.ClipNorm)
	if p.Gates > 0 {
		line("promotion", "%d evaluations of the gate split; a version must be better by more than %g%s", p.Gates, s.Promotion.Margin, p.evidence())
	} else {
		line("promotion", "none: without tasks.gate nothing is evaluated, and version 0 stays promoted")
	}
	line("queues", "%s", strings.Join(p.Queues, ", "))
	for _, w := range p.Warnings {
		line("warning", "%s", w)
	}
}

// limitsOf says what an attempt may use.
func limitsOf(l spec.AgentLimits) string {
	out := fmt.Sprintf("%d calls, %g s", l.Calls, l.Seconds)
	if l.Tokens > 0 {
		out += fmt.Sprintf(", %d tokens", l.Tokens)
	}
	if l.MemoryBytes > 0 {
		out += fmt.Sprintf(", %d MiB", l.MemoryBytes>>20)
	}
	if l.IdleSeconds > 0 {
		out += fmt.Sprintf(", %g s idle", l.IdleSeconds)
	}
	return out
}

func updatesOf(t spec.Training) string {
	if t.Passes*t.Minibatches == 1 {
		return "one update"
	}
	return fmt.Sprintf("%d × %d updates", t.Passes, t.Minibatches)
}

// evidence says what else it takes to be promoted.
func (p Plan) evidence() string {
	promotion, out := p.Spec.Promotion, ""
	if promotion.Significance < 1 {
		out = fmt.Sprintf(", at a p-value of at most %g", promotion.Significance)
		if least := p.leastSignificance(); least > promotion.Significance {
			out += fmt.Sprintf(" (with %d tasks none is below %g: nothing will be promoted)", p.Tasks[trace.Gate], least)
		}
	}
	if promotion.Approval {
		out += fmt.Sprintf(", and a person must approve within %g hours", promotion.ApprovalHours)
	}
	return out
}
