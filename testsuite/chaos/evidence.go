package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"

	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

// evidence collects everything about a run.
func (s *suite) evidence(ctx context.Context, name string) (checker.Evidence, error) {
	e := checker.Evidence{
		Trained: map[int][]checker.Trained{}, Answers: s.answers(),
		Hangs: s.faultInjector.hangsOf(processes.Gateway, processes.Sampler), WorkerHangs: s.faultInjector.hangsOf(processes.CPU1, processes.CPU2),
	}
	err := s.retry(ctx, "read store", func(ctx context.Context) (err error) {
		e.Records, err = s.db.Records(ctx, name)
		return err
	})
	if err != nil {
		return e, err
	}
	err = s.retry(ctx, "read history", func(ctx context.Context) (err error) {
		e.History, err = s.readHistory(ctx, name, e.Records.Execution)
		if err == nil && !e.History.Completed {
			err = errors.New("it has not come to its end") // Temporal may be moments behind the store
		}
		return err
	})
	if err != nil {
		return e, err
	}
	for step, digest := range e.Records.Batches {
		if e.Trained[step], err = checker.ReadBatch(s.fleet.Blobs, digest); err != nil {
			return e, err
		}
	}
	log, err := os.Open(s.fleet.Generations)
	if err != nil {
		return e, fmt.Errorf("open the sampler's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	e.Generations, err = checker.ReadGenerations(log)
	return e, err
}

// answers returns the judge's answers so far.
func (s *suite) answers() []checker.Answer {
	var out []checker.Answer
	for _, a := range s.judgeServer.Answers() {
		out = append(out, checker.Answer(a))
	}
	return out
}

// readHistory reads a run's history, execution after execution.
func (s *suite) readHistory(ctx context.Context, name, execution string) (checker.History, error) {
	var all [][]*history.HistoryEvent
	for execution != "" {
		var events []*history.HistoryEvent
		next := ""
		for it := s.temporal.GetWorkflowHistory(ctx, name, execution, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
			e, err := it.Next()
			if err != nil {
				return checker.History{}, err
			}
			next = e.GetWorkflowExecutionContinuedAsNewEventAttributes().GetNewExecutionRunId()
			events = append(events, e)
		}
		all, execution = append(all, events), next
	}
	return checker.ReadHistory(all...)
}
