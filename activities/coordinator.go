package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/prompts/optimize"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/grading"
	"github.com/fulgurite/fulgurite/tasks/sqlmatch"
	"github.com/fulgurite/fulgurite/update"
)

// Coordinator runs the short activities of the training queue.
type Coordinator struct {
	Runs      Runs
	Ledger    Ledger
	Attempts  Attempts
	Blobs     Blobs
	Publisher Publisher
	Cluster   Cluster
	Codecs    Codecs
	// Reflectors makes the reflectors of searches for better prompts.
	Reflectors Reflectors
	// Starter starts the runs of specs with phases.
	Starter Starter
	// Traffic has the conversations that runs learn from, and Segments asks runs to.
	Traffic     Traffic
	Segments    Segments
	Experiments Experiments
	// Shadows keeps what candidates reply to recorded calls, and Sampler samples it.
	Shadows Shadows
	Sampler model.Sampler
	// Redact rewrites a text by the program of a command before it is recorded. nil refuses
	// the shadow of a run with a redactor.
	Redact func(ctx context.Context, command []string, timeout time.Duration, text string) (string, error)
	// ShadowPause is how long a candidate has between two failures that count. 0 means the
	// constant shadowPause.
	ShadowPause time.Duration
	// Collector deletes files that are no longer needed when a step has been recorded.
	// nil keeps all files.
	Collector Collector
	// Pruner removes what is no longer needed of runs that have ended.
	Pruner Pruner
	// WhyNotIsolated returns why this machine can't isolate an agent that is a command, or ""
	// if it can. An error means that it could not find out. It is asked for runs whose
	// specs leave agent.sandbox out.
	WhyNotIsolated func(ctx context.Context, a spec.Agent) (string, error)
	// FindContainer returns the ID of an agent's image. It returns *spec.Faults if this machine
	// can't run it. It is asked for runs whose specs have agent.sandbox: container and leave
	// the ID out.
	FindContainer func(ctx context.Context, a spec.Agent) (image string, err error)
	// Directory is the working directory of commands if a workflow's input sets none.
	Directory string

	searches openSearches
}

// The workflows whose input is a spec.
const (
	workflowTraining = "TrainingWorkflow"
	workflowPrompts  = "PromptWorkflow"
)

// ErrRunExists is wrapped if a run of that name was started before.
var ErrRunExists = errors.New("run exists")

// PrepareRun makes everything that a run reads immutable: it checks the spec,
// snapshots the tasks under their digests and writes the run's row. All faults
// of a spec are reported in one non-retryable error. A run that the same
// execution prepared before is returned unchanged, even if the files have changed
// since.
func (c *Coordinator) PrepareRun(ctx context.Context, in PrepareRunInput) (_ PrepareRunResult, err error) {
	defer temporalError(&err)
	if err := record.CheckRunName(in.Run); err != nil {
		return PrepareRunResult{}, invalid(fmt.Errorf("workflow id becomes the run's name: %w", err))
	}
	attributes, err := c.Cluster.HasSearchAttributes(ctx)
	if err != nil {
		return PrepareRunResult{}, fmt.Errorf("list search attributes: %w", err)
	}
	run, err := c.Runs.Run(ctx, in.Run)
	if errors.Is(err, record.ErrForgotten) {
		return PrepareRunResult{}, update.Final(fmt.Errorf("%w; choose another workflow id", err))
	}
	if errors.Is(err, record.ErrNotFound) || err == nil && run.Status == record.Refused {
		run, err = c.create(ctx, in)
	}
	if err != nil {
		return PrepareRunResult{}, c.refuse(ctx, in, fmt.Errorf("prepare run %s: %w", in.Run, err))
	}
	if run.ExecutionID != in.ExecutionID {
		return PrepareRunResult{}, update.Final(fmt.Errorf("%w: %s (%s, started %s); choose another workflow id",
			ErrRunExists, in.Run, run.Status, readable.Time(run.Created)))
	}
	s, err := decodeSpec(run)
	return PrepareRunResult{Spec: s.WithoutSecrets(), Splits: run.Splits, SearchAttributes: attributes}, err
}

// create writes the run's row and returns the recorded one.
func (c *Coordinator) create(ctx context.Context, in PrepareRunInput) (record.Run, error) {
	s, err := parseInput(in.Spec, c.Directory)
	if err != nil {
		return record.Run{}, invalid(err)
	}
	switch {
	case len(s.Phases) > 0:
		return record.Run{}, invalid(errors.New("phases: each of them is a run; start PhasesWorkflow, or leave phases out"))
	case in.Workflow == workflowPrompts && s.Optimizer == nil:
		return record.Run{}, invalid(errors.New("optimizer: missing: PromptWorkflow searches for better prompts; give optimizer, or start TrainingWorkflow"))
	case in.Workflow == workflowTraining && s.Optimizer != nil:
		return record.Run{}, invalid(errors.New("optimizer: TrainingWorkflow trains weights; start PromptWorkflow (`fulgurite optimize`), or leave optimizer out"))
	}
	if s, err = c.withSources(ctx, s); err != nil {
		return record.Run{}, err
	}
	splits, err := c.snapshot(ctx, s)
	if err != nil {
		return record.Run{}, err
	}
	digest := spec.Digest(s)
	if s.Model, err = c.sourceModel(ctx, s.Model); err != nil {
		return record.Run{}, err
	}
	if s.Model.Codec, err = c.storeCodec(ctx, s); err != nil {
		return record.Run{}, err
	}
	if err := c.storePrompts(ctx, s); err != nil {
		return record.Run{}, err
	}
	if s, err = c.decideSandbox(ctx, s); err != nil {
		return record.Run{}, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return record.Run{}, fmt.Errorf("encode spec: %w", err)
	}
	run, _, err := c.Runs.CreateRun(ctx, record.Run{
		Name: in.Run, WorkflowID: in.WorkflowID, ExecutionID: in.ExecutionID, SpecDigest: digest,
		Spec: text, Splits: splits, Status: record.Running, Created: time.Now(),
	})
	return run, err
}

// decideSandbox writes into a spec whether its agents are isolated and, if they run in
// containers, in which image, so that all attempts of a run are alike, whatever the machine
// of each worker.
func (c *Coordinator) decideSandbox(ctx context.Context, s spec.Spec) (spec.Spec, error) {
	decided, err := s.DecideSandbox(func() (string, error) { return c.WhyNotIsolated(ctx, s.Agent) })
	var faults *spec.Faults
	switch {
	case errors.As(err, &faults):
		return s, invalid(err)
	case err != nil:
		return s, fmt.Errorf("find out whether this machine can isolate agents: %w", err)
	}
	decided, err = decided.DecideContainer(func(a spec.Agent) (string, error) { return c.FindContainer(ctx, a) })
	switch {
	case errors.As(err, &faults):
		return s, invalid(err)
	case err != nil:
		return s, fmt.Errorf("find the image of the agent: %w", err)
	}
	return decided, nil
}

// withSources returns a spec with what it takes from files and from other runs, apart from
// the model: so the digest of the result is that of the run.
func (c *Coordinator) withSources(ctx context.Context, s spec.Spec) (spec.Spec, error) {
	s, err := update.WithAdapter(s)
	if err != nil {
		return s, err
	}
	if s, err = c.sourcePrompts(ctx, s); err != nil {
		return s, err
	}
	if s, err = s.ReadPrompts(); err != nil {
		return s, invalid(err)
	}
	return s, nil
}

// refuse records a run as refused if err is invalid, and gives the error the type for
// refused runs. The name of such a run can be used again. Other errors are returned
// unchanged.
func (c *Coordinator) refuse(ctx context.Context, in PrepareRunInput, err error) error {
	var refusal update.InvalidError
	if !errors.As(err, &refusal) {
		return err
	}
	if !json.Valid(in.Spec) {
		in.Spec = nil
	}
	now := time.Now()
	_, _, failure := c.Runs.CreateRun(ctx, record.Run{
		Name: in.Run, WorkflowID: in.WorkflowID, ExecutionID: in.ExecutionID, Spec: in.Spec, Status: record.Refused,
		Result: record.Failure{Error: refusal.Error()}.Result(), Created: now, Finished: now,
	})
	if failure != nil {
		return fmt.Errorf("record that run %s is refused: %w", in.Run, failure) // another try refuses the run again
	}
	return temporal.NewNonRetryableApplicationError(err.Error(), ErrTypeRefused, nil)
}

// storeCodec stores the files of a published model's codec, so that every process reads
// the same codec and later changes of a directory have no effect. It returns the codec's
// name.
func (c *Coordinator) storeCodec(ctx context.Context, s spec.Spec) (string, error) {
	if s.Model.Codec != spec.CodecTemplate {
		return s.Model.Codec, nil
	}
	codec, encoded, err := dialog.ReadCodecWith(s.Model.Base, update.CodecChoices(s))
	if err != nil {
		return "", invalid(err)
	}
	if _, err := c.Blobs.Put(ctx, encoded); err != nil {
		return "", fmt.Errorf("store the codec: %w", err)
	}
	return codec.Name(), nil
}

// storePrompts stores the prompts and rules of a spec that ReadPrompts has processed, for
// the gateways, which find them by the digest in the terms of attempts.
func (c *Coordinator) storePrompts(ctx context.Context, s spec.Spec) error {
	if s.Prompts == nil {
		return nil
	}
	set, err := s.Prompts.Set()
	if err != nil {
		return invalid(err)
	}
	digest, err := c.Blobs.Put(ctx, set.Encode())
	if err != nil {
		return fmt.Errorf("store prompts: %w", err)
	}
	if digest != s.PromptsDigest() {
		return fmt.Errorf("store prompts %s: they are stored as %s", s.PromptsDigest(), digest)
	}
	return nil
}

// parseInput reads a workflow's input, in which every path has to be absolute. Working
// directories that the input does not set become directory.
func parseInput(data []byte, directory string) (spec.Spec, error) {
	s, err := spec.Parse(data, "workflow input.json")
	var faults *spec.Faults
	if errors.As(err, &faults) {
		var rest spec.Spec
		_ = json.Unmarshal(data, &rest) // faults lists what can't be read
		var relative *spec.Faults
		if errors.As(rest.CheckAbsolute(), &relative) {
			faults.List = append(faults.List, relative.List...)
		}
		faults.List = append(faults.List, missing(rest.Resolve(directory), faults.List)...)
	}
	if err != nil {
		return s, err
	}
	resolved := s.WithDefaults().Resolve(directory)
	err = resolved.Check()
	var relative *spec.Faults
	if !errors.As(s.CheckAbsolute(), &relative) {
		return resolved, err
	}
	// The person who started the workflow can't know this process's directory.
	relative.Name = "workflow input.json"
	if errors.As(err, &faults) {
		relative.List = append(relative.List, unknown(faults.List, relative.List)...)
	}
	return resolved, relative
}

// missing returns the faults of files that s names and this machine does not have. It
// leaves out keys that already have a fault.
func missing(s spec.Spec, known []spec.Fault) []spec.Fault {
	var faults *spec.Faults
	if !errors.As(s.CheckFiles(), &faults) {
		return nil
	}
	return unknown(faults.List, known)
}

// unknown lists the faults of keys that have none in known.
func unknown(faults, known []spec.Fault) []spec.Fault {
	return slices.DeleteFunc(faults, func(f spec.Fault) bool {
		return slices.ContainsFunc(known, func(k spec.Fault) bool { return k.Key == f.Key })
	})
}

// snapshot stores the tasks of each split, if all splits can be used.
func (c *Coordinator) snapshot(ctx context.Context, s spec.Spec) (map[record.Kind]record.Split, error) {
	splits, err := grading.ReadSplits(ctx, s)
	switch {
	case errors.Is(err, sqlmatch.ErrDatabase) || ctx.Err() != nil:
		return nil, err // another try may read it
	case err != nil:
		return nil, invalid(err)
	}
	if s.Optimizer != nil {
		if _, err := optimize.Of(s, len(splits.Tasks[record.Train]), len(splits.Tasks[record.Validation])); err != nil {
			return nil, invalid(err)
		}
	}
	out := map[record.Kind]record.Split{}
	for kind, list := range splits.Tasks {
		data, err := tasks.Encode(list)
		if err != nil {
			return nil, invalid(fmt.Errorf("tasks.%s: %w", kind, err))
		}
		digest, err := c.Blobs.Put(ctx, data)
		if err != nil {
			return nil, fmt.Errorf("store tasks of split %s: %w", kind, err)
		}
		split := record.Split{Digest: digest, Count: len(list)}
		if kind == record.Train {
			split.Parts = splits.Parts
		}
		out[kind] = split
	}
	return out, nil
}

// PublishVersion makes a version ready to be sampled.
func (c *Coordinator) PublishVersion(ctx context.Context, v PublishVersionInput) error {
	if err := c.Publisher.Publish(ctx, v); err != nil {
		return fmt.Errorf("publish %s: %w", v, err)
	}
	return nil
}

// LastStepInput asks for the last step of a run.
type LastStepInput struct {
	Run string `json:"run"`
}

// LastStepResult is the last step of which a version is on record; 0 before the first one.
type LastStepResult struct {
	Step int `json:"step"`
}

// LastStep returns the last step of a run of which a version is on record.
func (c *Coordinator) LastStep(ctx context.Context, in LastStepInput) (LastStepResult, error) {
	v, err := c.Ledger.LastVersion(ctx, in.Run, model.DefaultPolicy)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return LastStepResult{}, err
	}
	return LastStepResult{v.Number}, nil
}

// RecordStep records a finished step, unless it is already recorded with the same batch.
func (c *Coordinator) RecordStep(ctx context.Context, in RecordStepInput) (err error) {
	defer temporalError(&err)
	err = c.Ledger.PutStep(ctx, record.Step{
		Run: in.Run, Policy: in.Policy, Step: in.Step, Batch: in.Batch, Metrics: in.Metrics, At: time.Now(),
	})
	if err == nil {
		c.collect(ctx, in.Run)
	}
	if !errors.Is(err, record.ErrConflict) {
		return err
	}
	all, failure := c.Ledger.Steps(ctx, in.Run, in.Policy)
	if failure != nil {
		return failure
	}
	if slices.ContainsFunc(all, func(s record.Step) bool { return s.Step == in.Step && s.Batch == in.Batch }) {
		return nil
	}
	return finalConflict(err)
}

// collect deletes the files of versions that the run no longer keeps. If that fails, the
// step stays recorded, and the next step tries again.
func (c *Coordinator) collect(ctx context.Context, run string) {
	if c.Collector == nil {
		return
	}
	if err := c.Collector.Collect(ctx, run); err != nil {
		activity.GetLogger(ctx).Warn("versions that are not needed any more stay", "run", run, "error", err)
	}
}

// RecordEvaluation records an evaluation.
func (c *Coordinator) RecordEvaluation(ctx context.Context, in RecordEvaluationInput) (err error) {
	defer temporalError(&err)
	return finalConflict(c.Ledger.PutEvaluation(ctx, record.Evaluation{
		Run: in.Run, Policy: in.Policy, EvaluationResult: in.Evaluation, At: time.Now(),
	}))
}

// FinishRun closes a run's record. It changes nothing if the workflow was refused its
// name or its spec. A workflow that was reset closes the record again, with its last
// outcome.
func (c *Coordinator) FinishRun(ctx context.Context, in FinishRunInput) (err error) {
	defer temporalError(&err)
	run, err := c.Runs.Run(ctx, in.Run)
	if errors.Is(err, record.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read run %s: %w", in.Run, err)
	}
	if run.ExecutionID != in.ExecutionID || run.Status == record.Refused {
		return nil
	}
	err = c.Runs.FinishRun(ctx, in.Run, in.Status, in.Result)
	if !errors.Is(err, record.ErrConflict) {
		return err
	}
	if run, err = c.Runs.Run(ctx, in.Run); err != nil {
		return fmt.Errorf("read run %s: %w", in.Run, err)
	}
	if err := c.Runs.ReopenRun(ctx, run); err != nil {
		return err // another executor is closing it, so this is tried again
	}
	return c.Runs.FinishRun(ctx, in.Run, in.Status, in.Result)
}

// finalConflict marks a conflict with the record as invalid: another try would not change
// the record.
func finalConflict(err error) error {
	if errors.Is(err, record.ErrConflict) {
		return invalid(err)
	}
	return err
}
