package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
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
	// Directory is what relative paths in a workflow's input are relative to.
	Directory string
}

// ErrRunExists is wrapped when a run of that name was started before.
var ErrRunExists = errors.New("run exists")

// PrepareRun makes everything that a run reads immutable: it checks the spec,
// snapshots the tasks under their digests and writes the run's row. All faults
// of a spec are reported in one non-retryable error.
func (c *Coordinator) PrepareRun(ctx context.Context, in PrepareRunInput) (PrepareRunResult, error) {
	if err := trace.CheckRunName(in.Run); err != nil {
		return PrepareRunResult{}, invalid(fmt.Errorf("workflow id becomes the run's name: %w", err))
	}
	s, err := readSpec(in.Spec, c.Directory)
	if err != nil {
		return PrepareRunResult{}, invalid(err)
	}
	splits, err := c.snapshot(ctx, s)
	if err != nil {
		return PrepareRunResult{}, err
	}
	attributes, err := c.Cluster.HasSearchAttributes(ctx)
	if err != nil {
		return PrepareRunResult{}, fmt.Errorf("list search attributes: %w", err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return PrepareRunResult{}, fmt.Errorf("encode spec: %w", err)
	}
	stands, created, err := c.Runs.CreateRun(ctx, record.Run{
		Name: in.Run, WorkflowID: in.WorkflowID, ExecutionID: in.ExecutionID, SpecDigest: spec.Digest(s),
		Spec: text, Splits: splits, Status: record.Running, Created: time.Now(),
	})
	if err != nil {
		return PrepareRunResult{}, fmt.Errorf("create run %s: %w", in.Run, err)
	}
	if !created && stands.ExecutionID != in.ExecutionID {
		return PrepareRunResult{}, invalid(fmt.Errorf("%w: %s (%s, started %s); choose another workflow id",
			ErrRunExists, in.Run, stands.Status, stands.Created.Format(time.RFC3339)))
	}
	return PrepareRunResult{Spec: s, Splits: splits, SearchAttributes: attributes}, nil
}

// readSpec reads a workflow's input. Paths in it that are not absolute are
// relative to directory, since there is no spec file here.
func readSpec(data []byte, directory string) (spec.Spec, error) {
	s, err := spec.Parse(data, "workflow input.json")
	if err != nil {
		return s, err
	}
	s = s.WithDefaults().Resolve(directory)
	return s, s.Check()
}

// snapshot stores the tasks of each split.
func (c *Coordinator) snapshot(ctx context.Context, s spec.Spec) (map[trace.Kind]record.Split, error) {
	out := map[trace.Kind]record.Split{}
	for kind, source := range map[trace.Kind]string{trace.Train: s.Tasks.Train, trace.Gate: s.Tasks.Gate, trace.Test: s.Tasks.Test} {
		if source == "" {
			continue
		}
		list, err := tasks.Open(source)
		if err == nil {
			err = tasks.CheckAnswers(s.Grader, list)
		}
		if err != nil {
			return nil, invalid(fmt.Errorf("tasks.%s: %w", kind, err))
		}
		data, err := tasks.Encode(list)
		if err != nil {
			return nil, invalid(fmt.Errorf("tasks.%s: %w", kind, err))
		}
		digest, err := c.Blobs.Put(ctx, data)
		if err != nil {
			return nil, fmt.Errorf("store tasks of split %s: %w", kind, err)
		}
		out[kind] = record.Split{Digest: digest, Count: len(list)}
	}
	return out, nil
}

// PublishVersion makes a version ready to be sampled.
func (c *Coordinator) PublishVersion(ctx context.Context, v model.VersionID) error {
	if err := c.Publisher.Publish(ctx, v); err != nil {
		return fmt.Errorf("publish %s: %w", v, err)
	}
	return nil
}

// RecordStep puts a finished step on record.
func (c *Coordinator) RecordStep(ctx context.Context, in RecordStepInput) error {
	return c.Ledger.PutStep(ctx, record.Step{
		Run: in.Run, Policy: in.Policy, Step: in.Step, Batch: in.Batch, Metrics: in.Metrics, At: time.Now(),
	})
}

// RecordEvaluation puts an evaluation on record.
func (c *Coordinator) RecordEvaluation(ctx context.Context, in RecordEvaluationInput) error {
	e := in.Evaluation
	return c.Ledger.PutEvaluation(ctx, record.Evaluation{
		Run: in.Run, Policy: in.Policy, Kind: e.Kind, Version: e.Version, Tasks: e.Tasks, Rollouts: e.Rollouts,
		Mean: e.Mean, StdError: e.StdError, Greedy: e.Greedy, At: time.Now(),
	})
}

// PromoteVersion moves the promoted pointer, by compare-and-swap, once for each
// decision.
func (c *Coordinator) PromoteVersion(ctx context.Context, in PromoteVersionInput) error {
	evidence, err := json.Marshal(in.Decision)
	if err != nil {
		return fmt.Errorf("encode decision %s: %w", in.DecisionID, err)
	}
	err = c.Ledger.Promote(ctx, record.Promotion{
		Run: in.Run, Policy: in.Policy, DecisionID: in.DecisionID, Version: in.Version, Previous: in.Previous,
		Reason: in.Decision.Reason(), Evidence: evidence, At: time.Now(),
	})
	if errors.Is(err, trace.ErrConflict) {
		return invalid(fmt.Errorf("promote version %d of %s: %w", in.Version, in.Run, err))
	}
	return err
}

// FinishRun closes a run's record. A workflow that was refused its name, or
// failed before it had a record, leaves things as they are.
func (c *Coordinator) FinishRun(ctx context.Context, in FinishRunInput) error {
	run, err := c.Runs.Run(ctx, in.Run)
	if errors.Is(err, trace.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read run %s: %w", in.Run, err)
	}
	if run.ExecutionID != in.ExecutionID {
		return nil
	}
	return c.Runs.FinishRun(ctx, in.Run, in.Status, in.Result)
}
