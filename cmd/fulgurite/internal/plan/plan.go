// Package plan reads what a run would read, starts nothing, and says what will run.
package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/output"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/torch"
	"github.com/fulgurite/fulgurite/model/sampler/upstream"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/curriculum"
	"github.com/fulgurite/fulgurite/tasks/grading"
	"github.com/fulgurite/fulgurite/update"
	"github.com/fulgurite/fulgurite/workers/fleet"
	"github.com/fulgurite/fulgurite/workflows"
)

// Command is `fulgurite plan`.
type Command struct {
	Spec string `arg:"" help:"Spec file, YAML or JSON." type:"path"`
	JSON bool   `help:"Print JSON." name:"json"`
}

// Plan describes what a spec will run.
type Plan struct {
	Digest     string              `json:"digest"`
	Spec       spec.Spec           `json:"spec"` // with defaults, paths absolute
	Parameters int                 `json:"parameters"`
	Engine     string              `json:"engine"` // its fingerprint
	Tasks      map[record.Kind]int `json:"tasks"`
	Steps      int                 `json:"steps"`
	Epochs     float64             `json:"epochs"`
	Rollouts   int                 `json:"rollouts"` // the number of rollouts to train on
	Gates      int                 `json:"gate_evaluations"`
	// Isolation is what isolates agents that are commands if this machine prepares the run:
	// process, container or none. IsolationReason says why they are not isolated, or
	// which image they run in.
	Isolation       string `json:"isolation,omitempty"`
	IsolationReason string `json:"isolation_reason,omitempty"`
	// Search is what the search of an optimizer may use; nil for a run that trains.
	Search *Search `json:"search,omitempty"`
	// Phases are the runs of a spec with phases. Steps, Rollouts and Gates are then sums.
	Phases []Phase `json:"phases,omitempty"`
	// Policies are the models of a spec with policies, by name.
	Policies []Policy `json:"policies,omitempty"`
	Queues   []string `json:"queues"`
	Sizes    Sizes    `json:"sizes"`
	// Shared says which splits share questions, which repeat some, and what the codec can't
	// do for an agent. Warnings has these texts, too.
	Shared []string `json:"-"`
	// Warnings are possible obstacles to learning, and what makes a result mean less.
	Warnings []string `json:"warnings"`
	// Targets lists the linear layers that an adapter adapts, if only transformers knows
	// the model's type.
	Targets []string `json:"targets,omitempty"`

	agent             spec.Agent         // with agent.sandbox decided
	architecture      model.Architecture // of the base
	codec             dialog.Codec
	tokens            []int32            // whose rows an adapter trains
	tokensOf          map[string][]int32 // the same of each of several policies
	largest           string             // the policy that takes most memory to train, if there are several
	offeredParameters int64              // size of the adapter that Room suggests, if the base has a Config
	pool              curriculum.Pool
}

// Outputs returns what the command prints as JSON.
func (*Command) Outputs() []any { return []any{Plan{}} }

// Run prints the plan of a spec.
func (c *Command) Run(ctx context.Context, t *terminal.Terminal) error {
	p, err := Make(ctx, c.Spec)
	if err != nil {
		return err
	}
	if p.Spec.Optimizer == nil {
		if err := p.Spec.Trainable(); err != nil {
			return err
		}
	}
	if c.JSON {
		return t.JSON(p)
	}
	p.Print(t)
	return nil
}

// Make reads everything that a run would read, opens its engines, and starts nothing
// else.
func Make(ctx context.Context, path string) (Plan, error) {
	sp, err := loadSpec(path)
	if err != nil {
		return Plan{}, err
	}
	return Of(ctx, sp)
}

// OfText does what Make does, for the text of a spec. Relative paths in it are relative to
// directory. name is the name of the text in errors.
func OfText(ctx context.Context, text []byte, name, directory string) (Plan, error) {
	sp, err := spec.LoadText(text, name, directory)
	if err != nil {
		return Plan{}, terminal.Usage(err)
	}
	if sp, err = sp.Complete(); err != nil {
		return Plan{}, terminal.Usage(err)
	}
	return Of(ctx, sp)
}

// Of does what Make does, for a spec that was read and checked and has its defaults.
func Of(ctx context.Context, sp spec.Spec) (Plan, error) {
	if len(sp.Phases) > 0 {
		return ofPhases(ctx, sp, Of)
	}
	p, err := Read(ctx, sp)
	if err != nil {
		return p, err
	}
	engine, err := fleet.Engines(sp.Model.Engine)
	if err != nil {
		return p, terminal.Usage(err)
	}
	if e, ok := engine.(interface{ Close() }); ok {
		defer e.Close()
	}
	if err := checkSampler(sp); err != nil {
		return p, terminal.Usage(err)
	}
	p.Engine = engine.Fingerprint()
	if err := p.inspect(ctx, engine); err != nil {
		return p, terminal.Usage(err)
	}
	return p, nil
}

// Read does what Of does, but opens no engine: it reads only the files that the spec
// names.
func Read(ctx context.Context, sp spec.Spec) (Plan, error) {
	if len(sp.Phases) > 0 {
		return ofPhases(ctx, sp, Read)
	}
	sp, err := update.WithAdapter(sp)
	if err != nil {
		return Plan{}, terminal.Usage(err)
	}
	if sp, err = sp.ReadPrompts(); err != nil {
		return Plan{}, terminal.Usage(err)
	}
	p := Plan{Digest: spec.Digest(sp), Spec: sp, Tasks: map[record.Kind]int{}}
	if err := p.readTasks(ctx); err != nil {
		return p, terminal.Usage(err)
	}
	if err := p.readSearch(); err != nil {
		return p, terminal.Usage(err)
	}
	codec, err := planCodec(sp)
	if err != nil {
		return p, terminal.Usage(err)
	}
	if sp.Model.Version == "" { // else the codec is that of another run
		p.Shared = append(p.Shared, unheld(sp, codec)...)
	}
	architecture, files, err := p.readModel(codec)
	if err != nil {
		return p, err
	}
	for _, of := range ofPolicies(sp) {
		if err := checkDemonstrations(of.Model, codec, architecture.MaxPositions); err != nil {
			return p, terminal.Usage(fmt.Errorf("model.warm_start.demonstrations: %w", err))
		}
	}
	if server := sp.Sampling.Server; server != nil {
		if err := upstream.CheckUnused(server.Type, update.WithCodec(architecture, codec).Unused); err != nil {
			return p, terminal.Usage(fmt.Errorf("sampling.server.type: %w: %s", err, otherSampler(sp)))
		}
	}
	tr := sp.Training
	p.Parameters = architecture.Parameters()
	p.Steps = tr.Total(p.Tasks[record.Train])
	if !sp.FromTraffic() {
		p.Rollouts = p.Steps * tr.TasksPerStep * tr.SamplesPerTask
	}
	if n := p.Tasks[record.Train]; n > 0 { // a run that only evaluates may have none
		p.Epochs = float64(p.Steps*tr.TasksPerStep) / float64(n)
	}
	switch {
	case sp.Optimizer != nil:
		p.Gates = gatesOfSearch
	case p.Tasks[record.Gate] > 0 && sp.Evaluation.Only == "":
		p.Gates = 1 + (p.Steps+sp.Evaluation.Every-1)/sp.Evaluation.Every
		if sp.Promotion.Alone {
			p.Gates = 1 + (p.Gates-1)*len(sp.TrainedPolicies())
		}
	}
	p.architecture, p.codec = architecture, codec
	if files != nil {
		p.Parameters, p.offeredParameters = int(files.Parameters()), files.AdapterParameters(torch.OfferedRank, nil)
	}
	p.setSizes(files)
	p.Queues = []string{workflows.QueueTraining, sp.Agent.Queue, workflows.QueueTrainGPU}
	if v := sp.Model.Version; v != "" && sp.Evaluation.Only == "" {
		p.Shared = append(p.Shared, fmt.Sprintf("model.version: the run takes the model of %s from the store, which a plan does not read: parameters and sizes are those of the built-in model", v))
	}
	p.Warnings = append([]string{}, p.Shared...)
	if sp.Evaluation.Only == "" {
		p.Warnings = append(p.Warnings, p.warnings()...)
	}
	return p, p.readIsolation(ctx)
}

// otherSampler says how a spec samples without its server of type vllm. A server of type
// sglang is named only if the spec can have one: that takes no adapters.
func otherSampler(sp spec.Spec) string {
	server := *sp.Sampling.Server
	server.Type = spec.ServerSGLang
	words := "give " + server.Type
	if server.Versions != spec.VersionsNone {
		server.Versions = spec.VersionsReload
		words += " with sampling.server.versions " + server.Versions
	}
	sp.Sampling.Server = &server
	const builtIn = "leave sampling.server out, so that the built-in sampler samples"
	if sp.Validate() != nil {
		return builtIn
	}
	return words + ", or " + builtIn
}

// checkSampler returns an error if the spec's engine for sampling can't be opened here.
// An engine that also trains has been opened already.
func checkSampler(s spec.Spec) error {
	if s.Sampling.Engine != spec.EngineTorch || s.Model.Engine == spec.EngineTorch {
		return nil
	}
	e, err := fleet.Engines(s.Sampling.Engine)
	if err != nil {
		return fmt.Errorf("sampling.engine: %w", err)
	}
	if e, ok := e.(interface{ Close() }); ok {
		e.Close()
	}
	return nil
}

// planCodec returns the codec that a run would store and use.
func planCodec(s spec.Spec) (dialog.Codec, error) {
	if s.Model.Codec != spec.CodecTemplate {
		return dialog.Named(s.Model.Codec)
	}
	codec, _, err := dialog.ReadCodecWith(s.Model.Base, update.CodecChoices(s))
	return codec, err
}

// readTasks counts the tasks of each split, and reports the mistakes of all splits
// together.
func (p *Plan) readTasks(ctx context.Context) error {
	splits, err := grading.ReadSplits(ctx, p.Spec)
	for kind, list := range splits.Tasks {
		p.Tasks[kind] = len(list)
	}
	p.pool, p.Shared = splits.Pool, splits.Warnings
	return err
}

// WarnOfTasks prints what splits share and repeat, and what the codec can't do, for
// commands that print no plan.
func (p Plan) WarnOfTasks(t *terminal.Terminal) {
	for _, text := range p.Shared {
		fmt.Fprintf(t.Err, "fulgurite: warning: %s\n", text)
	}
}

// tokenNames returns the texts of the tokens whose rows are trained, or their ids if the
// codec has no texts.
func (p Plan) tokenNames(tokens []int32) string {
	names := make([]string, len(tokens))
	for i, id := range tokens {
		names[i] = strconv.Itoa(int(id))
		if _, ok := p.codec.(dialog.Sparse); ok {
			names[i] = p.codec.Text([]int32{id})
		}
	}
	return strings.Join(names, ", ")
}

// Print prints the plan as readable text.
func (p Plan) Print(t *terminal.Terminal) {
	s := p.Spec
	line := func(label, format string, args ...any) { t.Printf("%-12s %s\n", label, fmt.Sprintf(format, args...)) }
	line("spec", "%s", p.Digest)
	line("seed", "%d", s.Seed)
	line("model", "%s, %d parameters, codec %s%s", s.Model.Base, p.Parameters, s.Model.Codec, templateOf(s.Model))
	for _, l := range p.adapterLines() {
		line(l.label, "%s", l.text)
	}
	line("engine", "%s", p.Engine)
	if w := s.Model.WarmStart; w != nil {
		line("warm start", "%s", warmStartOf(*w))
	}
	for _, l := range p.policyLines() {
		line(l.label, "%s", l.text)
	}
	if s.Optimizer != nil {
		line("tasks", "train %d, validation %d, gate %d, test %d", p.Tasks[record.Train], p.Tasks[record.Validation], p.Tasks[record.Gate], p.Tasks[record.Test])
	} else {
		line("tasks", "train %d, gate %d, test %d", p.Tasks[record.Train], p.Tasks[record.Gate], p.Tasks[record.Test])
	}
	line("agent", "%s; at most %s", agentOf(s.Agent), limitsOf(s.Agent.Limits))
	if len(s.Agent.Command) > 0 {
		line("sandbox", "%s", p.sandbox())
	}
	for _, l := range promptsOf(s) {
		line(l.label, "%s", l.text)
	}
	line("grader", "%s", s.Grader.Type)
	line("sampling", "temperature %g, at most %s a reply", *s.Sampling.Temperature, readable.Count(s.Sampling.MaxTokens, "token"))
	if e := s.Sampling.Engine; e != "" {
		line("sampler", "built in, engine %s", e)
	}
	if sv := s.Sampling.Server; sv != nil {
		line("server", "%s at %s, model %s, versions: %s", sv.Type, strings.Join(sv.URLs, ", "), sv.Model, sv.Versions)
	}
	lines := p.trainingLines
	switch {
	case len(s.Phases) > 0:
		lines = p.phaseLines
	case s.Optimizer != nil:
		lines = p.searchLines
	case s.FromTraffic():
		lines = p.trafficLines
	}
	for _, l := range lines() {
		line(l.label, "%s", l.text)
	}
	if text := trafficOf(s.Traffic); text != "" {
		line("in use", "%s", text)
	}
	if b := s.Budget; b != nil {
		line("ends early", "%s", endsAt(s))
	}
	line("queues", "%s", strings.Join(p.Queues, ", "))
	for _, w := range p.Warnings {
		line("warning", "%s", w)
	}
}

// trainingLines describes the steps of a run that trains, and what they need.
func (p Plan) trainingLines() []planLine {
	s, tr := p.Spec, p.Spec.Training
	var out []planLine
	line := func(label, format string, args ...any) {
		out = append(out, planLine{label, fmt.Sprintf(format, args...)})
	}
	line("a step", "%s × %s = %s, then %s", readable.Count(tr.TasksPerStep, "task"), readable.Count(tr.SamplesPerTask, "sample"), readable.Count(tr.TasksPerStep*tr.SamplesPerTask, "rollout"), updatesOf(tr))
	if tr.Lag > 0 {
		line("lag", "step s samples from version s − %d; its rollouts begin while version s − %d is made", 1+tr.Lag, tr.Lag)
	}
	line("the run", "%s = %.2f epochs, %s", readable.Count(p.Steps, "step"), p.Epochs, readable.Count(p.Rollouts, "rollout"))
	if text := p.curriculumOf(); text != "" {
		line("curriculum", "%s", text)
	}
	out = append(out, learning(s)...)
	line("optimizer", "%s", optimizerOf(tr.Optimizer))
	if names := s.TrainedPolicies(); p.Gates > 0 && s.Promotion.Alone {
		line("promotion", "each policy alone: %d evaluations of the gate split, %d each time, and one more for each policy whose promoted versions were not evaluated together; a version must be better by more than %g%s",
			p.Gates, len(names), s.Promotion.Margin, p.evidence())
	} else if p.Gates > 0 {
		line("promotion", "%d evaluations of the gate split; a version must be better by more than %g%s", p.Gates, s.Promotion.Margin, p.evidence())
	} else {
		line("promotion", "none: without tasks.gate nothing is evaluated, and version 0 stays promoted")
	}
	return append(out, p.Sizes.lines()...)
}

func optimizerOf(o spec.Optimizer) string {
	schedule := o.Schedule
	if schedule != spec.ScheduleConstant {
		schedule += fmt.Sprintf(" to %g of it", o.FinalFraction)
	}
	return fmt.Sprintf("AdamW, learning rate %g, %s, gradient norm clipped at %g", o.LearningRate, schedule, o.ClipNorm)
}

func warmStartOf(w spec.WarmStart) string {
	return fmt.Sprintf("%s of %s from %s, learning rate %g", readable.Count(w.Updates, "update"), readable.Count(w.Batch, "dialog"), w.Demonstrations, w.LearningRate)
}

// agentOf names the program or function that makes the model calls.
func agentOf(a spec.Agent) string {
	switch {
	case a.Service != nil:
		return "service " + a.Service.URL
	case a.Temporal != nil:
		kind, name := "workflow", a.Temporal.Workflow
		if name == "" {
			kind, name = "activity", a.Temporal.Activity
		}
		return fmt.Sprintf("%s %s on queue %s", kind, name, a.Temporal.Queue)
	case a.Func != "":
		return "function " + a.Func
	}
	return "command " + strings.Join(a.Command, " ")
}

// templateOf names a chat template that is not the model's own.
func templateOf(m spec.Model) string {
	if m.Template == "" {
		return ""
	}
	return " with the chat template " + m.Template
}

// limitsOf describes the limits of an attempt.
func limitsOf(l spec.AgentLimits) string {
	out := fmt.Sprintf("%s, %g s", readable.Count(l.Calls, "call"), l.Seconds)
	if l.Tokens > 0 {
		out += ", " + readable.Count(l.Tokens, "token")
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

// evidence describes the further conditions of a promotion.
func (p Plan) evidence() string {
	promotion, out := p.Spec.Promotion, ""
	if promotion.Significance < 1 {
		out = fmt.Sprintf(", at a p-value of at most %g", promotion.Significance)
		if least := p.leastSignificance(); least > promotion.Significance {
			out += fmt.Sprintf(" (with %s no p-value is below %g: nothing will be promoted)", readable.Count(p.Tasks[record.Gate], "task"), least)
		}
	}
	if promotion.Approval {
		out += fmt.Sprintf(", and a person must approve within %g hours", promotion.ApprovalHours)
	}
	return out
}

// loadSpec reads a spec file completely: defaults filled in, everything checked.
func loadSpec(path string) (spec.Spec, error) {
	sp, err := spec.Load(path)
	if err != nil {
		return sp, terminal.Usage(err)
	}
	if sp, err = sp.Complete(); err != nil {
		return sp, terminal.Usage(fmt.Errorf("%s: %w", path, err))
	}
	return sp, nil
}

// Input returns a spec as the input of its workflow.
func Input(s spec.Spec) (workflows.TrainingInput, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return workflows.TrainingInput{}, fmt.Errorf("encode spec: %w", err)
	}
	return workflows.TrainingInput{Spec: data}, nil
}

// Schema is `fulgurite schema`.
type Schema struct {
	Of []string `arg:"" optional:"" name:"command" help:"A command: print the schema of its --json instead, for example status or token list."`
}

// Run prints the JSON Schema of specs, or of what a command prints.
func (c *Schema) Run(t *terminal.Terminal) error {
	schema, err := spec.Schema()
	if len(c.Of) > 0 {
		schema, err = output.Schema(strings.Join(c.Of, " "))
	}
	if err != nil {
		return err
	}
	t.Printf("%s\n", bytes.TrimSpace(schema))
	return nil
}

// endsAt says when the budget of a spec ends a run.
func endsAt(s spec.Spec) string {
	b, limits := *s.Budget, []string(nil)
	if b.Tokens > 0 {
		limits = append(limits, "after "+readable.Count(b.Tokens, "sampled token"))
	}
	if b.Calls > 0 {
		limits = append(limits, "after "+readable.Count(b.Calls, "request")+" to models")
	}
	if b.Hours > 0 {
		limits = append(limits, fmt.Sprintf("%g h after its start", b.Hours))
	}
	begun := "the step that has begun then"
	switch {
	case len(s.Phases) > 0:
		return "each phase " + strings.Join(limits, ", or ")
	case s.Optimizer != nil:
		begun = "what the search has asked for by then"
	case s.Training.Lag > 0:
		begun = "what has begun by then"
	}
	return fmt.Sprintf("%s; %s is finished", strings.Join(limits, ", or "), begun)
}
