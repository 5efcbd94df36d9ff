package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
	"github.com/fulgurite/fulgurite/workflows"
)

const (
	// fewestSegments is how many segments a run with faults learns from at least.
	fewestSegments = 3
	// segmentEvery is the time from an answer about a segment to the next question.
	segmentEvery = 500 * time.Millisecond
	// learningWait is how long a fault waits for a segment that is being learned from.
	learningWait = 3 * time.Second
)

// trafficSpec returns the spec of a run that learns from the conversations of its clients.
// They end soon, so that segments follow each other within seconds.
func trafficSpec(c scenario, o options) (spec.Spec, error) {
	self, err := os.Executable()
	if err != nil {
		return spec.Spec{}, fmt.Errorf("find the agent: %w", err)
	}
	s := spec.Spec{
		Seed:  7,
		Model: spec.Model{Context: 256, WarmStart: &spec.WarmStart{Demonstrations: "arithmetic", Updates: 400, Batch: 32}},
		Agent: spec.Agent{
			Command: append([]string{self}, agentOptions{think: o.think}.arguments()...), Limits: spec.AgentLimits{Calls: 8, Seconds: 3600},
		},
		Tasks:      spec.Tasks{Gate: "arithmetic:gate:3"},
		Grader:     spec.Grader{Type: "exact"},
		Training:   spec.Training{Steps: 1000},
		Evaluation: spec.Evaluation{Every: 1},
		Promotion:  spec.Promotion{Significance: 1},
		Traffic: &spec.Traffic{
			Record: spec.RecordConsent, IdleMinutes: 0.02, Train: &spec.TrafficTraining{Objective: spec.ObjectiveReward, MinReplies: 6, MaxReplies: 24},
		},
	}
	if c.experiment {
		return withExperiments(s)
	}
	return s.WithDefaults(), nil
}

// trafficWithFaults makes a run that learns from conversations, injects faults while clients
// talk and judge, and checks it. No other run is compared with it, because what clients say
// and when is not the same twice.
func (s *suite) trafficWithFaults(ctx context.Context, name string, c scenario) error {
	s.logf("run %s begins: %s", name, c.name)
	began, kills := time.Now(), s.injected.total
	if err := s.startRun(ctx, name, c, ""); err != nil {
		return err
	}
	if err := s.awaitServing(ctx, name); err != nil {
		return err
	}
	var all *clients
	err := s.retry(ctx, "make keys", func(ctx context.Context) (err error) {
		all, err = newClients(ctx, name, c.experiment, s.fleet, s.bin)
		return err
	})
	if err != nil {
		return err
	}
	gone, err := s.talkWithFaults(ctx, name, c, all)
	if err != nil {
		return err
	}
	if err := s.stopTraffic(ctx, name); err != nil {
		return err
	}
	s.recordDuration(name, began)
	s.logf("run %s is complete after %.1f s and %d kills", name, time.Since(began).Seconds(), s.injected.total-kills)
	return s.checkTraffic(ctx, name, all, gone)
}

// awaitServing waits until a version of a run is promoted.
func (s *suite) awaitServing(ctx context.Context, name string) error {
	return s.retry(ctx, "serve run "+name, func(ctx context.Context) error {
		promoted, _, err := s.db.Serves(ctx, name)
		if err == nil && !promoted {
			err = errors.New("no version is promoted")
		}
		return err
	})
}

// talkWithFaults injects faults while clients talk and segments are asked for, until there
// were enough of both. If versions are compared in use, enough comparisons end, and a user is
// forgotten meanwhile, who is returned.
func (s *suite) talkWithFaults(ctx context.Context, name string, c scenario, all *clients) (*checker.ForgottenUser, error) {
	group, ctx := errgroup.WithContext(ctx)
	silence, enough := make(chan struct{}), make(chan struct{})
	var segments, before atomic.Int64 // before: those that may have learned from the user
	var gone atomic.Pointer[checker.ForgottenUser]
	if c.experiment {
		group.Go(func() error {
			user, err := s.forget(ctx, name, all)
			before.Store(segments.Load())
			gone.Store(user)
			return err
		})
	}
	group.Go(func() error { return all.talk(ctx, s.seed, silence) })
	group.Go(func() error { return s.askForSegments(ctx, name, enough, &segments) })
	group.Go(func() error {
		defer close(enough)
		defer close(silence)
		if err := s.injectFaults(ctx, name, c); err != nil {
			return err
		}
		over, err := s.waitFor(ctx, name, func(time.Duration) bool {
			return segments.Load() >= fewestSegments &&
				(!c.experiment || gone.Load() != nil && segments.Load() > before.Load() && s.compared(ctx, name))
		})
		if over && err == nil {
			err = fmt.Errorf("run %s has ended while clients were talking", name)
		}
		return err
	})
	err := group.Wait()
	return gone.Load(), err
}

// askForSegments asks the run to learn from what is new, again and again, as a schedule does.
// Every third time two ask at once.
func (s *suite) askForSegments(ctx context.Context, name string, enough <-chan struct{}, segments *atomic.Int64) error {
	for n := 0; ; n++ {
		select {
		case <-enough:
			return nil
		default:
		}
		var both errgroup.Group
		for i := range 1 + (n%3)/2 {
			both.Go(func() error {
				step, err := s.askForSegment(ctx, name, fmt.Sprintf("%s/traffic-%d-%d", name, n, i))
				if step > 0 && i == 0 {
					segments.Add(1)
				}
				return err
			})
		}
		if err := both.Wait(); err != nil {
			return err
		}
		if err := pause(ctx, segmentEvery); err != nil {
			return err
		}
	}
}

// askForSegment starts a TrafficWorkflow and waits for its answer. The step is 0 if there was
// too little to learn from.
func (s *suite) askForSegment(ctx context.Context, name, id string) (step int, err error) {
	var out struct {
		Step int `json:"step"`
	}
	start := client.StartWorkflowOptions{ID: id, TaskQueue: workflows.QueueTraining}
	err = s.retry(ctx, "ask run "+name+" for a segment", func(ctx context.Context) error {
		_, err := s.temporal.ExecuteWorkflow(ctx, start, workflows.TypeTraffic, workflows.TrafficInput{Run: name})
		return err
	})
	if err != nil {
		return 0, err
	}
	err = s.retry(ctx, "wait for the segment of "+id, func(ctx context.Context) error {
		return s.temporal.GetWorkflow(ctx, id, "").Get(ctx, &out)
	})
	return out.Step, err
}

// stopTraffic ends a run that learns from conversations.
func (s *suite) stopTraffic(ctx context.Context, name string) error {
	err := s.retry(ctx, "stop run "+name, func(ctx context.Context) error {
		h, err := s.temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
			UpdateID: name + "-stop", WorkflowID: name, UpdateName: workflows.UpdateStop, Args: []any{workflows.ControlInput{By: "chaos"}},
			WaitForStage: client.WorkflowUpdateStageCompleted,
		})
		if err != nil {
			return err
		}
		return h.Get(ctx, nil)
	})
	if err != nil {
		return err
	}
	return s.retry(ctx, "await the end of run "+name, func(ctx context.Context) error {
		status, err := s.db.Status(ctx, name)
		if err == nil && status == "running" {
			err = errors.New("it is running")
		}
		return err
	})
}

// checkTraffic runs the checker on a run that learns from conversations, and has it prove
// that it would notice what can be wrong.
func (s *suite) checkTraffic(ctx context.Context, name string, all *clients, gone *checker.ForgottenUser) error {
	e, err := s.trafficEvidence(ctx, name, all, gone)
	if err != nil {
		return fmt.Errorf("check run %s: %w", name, err)
	}
	v := runResult{Findings: checker.CheckTraffic(e), Seconds: s.seconds[name], DigestEqual: true, Generations: count(e.Generations, name)}
	if len(v.Wrong) == 0 {
		unnoticed, err := checker.UnnoticedTraffic(e)
		if err != nil {
			return fmt.Errorf("test the checker on run %s: %w", name, err)
		}
		v.Wrong = append(v.Wrong, unnoticed...)
	}
	s.report.Runs = append(s.report.Runs, v)
	return nil
}

// trafficEvidence collects everything about a run that learns from conversations.
func (s *suite) trafficEvidence(ctx context.Context, name string, all *clients, gone *checker.ForgottenUser) (checker.TrafficEvidence, error) {
	e := checker.TrafficEvidence{
		Batches: map[int]checker.SegmentBatch{}, Forgotten: gone,
		Hangs: s.faultInjector.hangsOf(processes.Gateway, processes.Gateway2, processes.Sampler),
	}
	e.Requests, e.Feedback = all.noted()
	err := s.retry(ctx, "read store", func(ctx context.Context) (err error) {
		e.Records, err = s.db.TrafficRecords(ctx, name)
		return err
	})
	if err != nil {
		return e, err
	}
	err = s.retry(ctx, "read history", func(ctx context.Context) error {
		h, err := s.readHistory(ctx, name, e.Records.Execution)
		if e.Completed = h.Completed; err == nil && !e.Completed {
			err = errors.New("it has not come to its end") // Temporal may be moments behind the store
		}
		return err
	})
	if err != nil {
		return e, err
	}
	for step, digest := range e.Records.Batches {
		batch, err := checker.ReadSegmentBatch(s.fleet.Blobs, digest)
		switch {
		case err == nil:
			e.Batches[step] = batch
		case !errors.Is(err, fs.ErrNotExist):
			return e, err
		}
	}
	if e.Leftovers, err = s.leftovers(ctx); err != nil {
		return e, err
	}
	e.Generations, err = s.generations()
	return e, err
}

// learns reports whether a fault of a role should wait for a segment that is being learned
// from: every other one of those that do so.
func (s *suite) learns(role processes.Role) bool {
	return !strings.HasPrefix(string(role), "gateway") && role != processes.Sampler && s.injected.kills[role]%2 == 0
}

// learning reports whether a run is learning from a segment.
func (s *suite) learning(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, n, err := s.db.Serves(ctx, name)
	return err == nil && n > 0
}
