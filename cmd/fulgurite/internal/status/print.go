package status

import (
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/report"
	"github.com/fulgurite/fulgurite/internal/runstate"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/workflows"
)

// print writes the status for people. dirFlag is the flag by which other commands find the
// run's directory, or empty.
func (s Status) print(t *terminal.Terminal, dirFlag string) error {
	t.Printf("Run %s: %s\n", s.Run, s.headline())
	switch {
	case s.Stop == nil:
	case s.Status == record.Running:
		t.Printf("  stopping, %s; it ends after step %d of %d\n", terminal.Escape(s.Stop.Text()), s.Stop.After, s.Stop.Of)
	default:
		t.Printf("  %s\n", terminal.Escape(s.Stop.Text()))
	}
	if s.Error != "" {
		t.Printf("  %s\n", s.Error)
	}
	if retriable(s.Status) {
		t.Printf("  once the cause is fixed: `fulgurite retry%s %s`\n", dirFlag, s.Run)
	}
	if s.Progress != nil {
		s.printProgress(t, dirFlag)
	}
	s.printUsage(t)
	for _, text := range s.Warnings {
		t.Printf("  warning: %s\n", terminal.Escape(text))
	}
	if n := len(s.Evaluations); n > 0 {
		e := s.Evaluations[n-1]
		t.Printf("  version %d on the %s split: %.3f ± %.3f\n", e.Version, e.Kind, e.Mean, e.StdError)
		if e.Pass != nil {
			if err := e.Pass.WriteText(t.Out, "    "); err != nil {
				return err
			}
		}
	}
	if text := report.CollectedText(s.Collected); text != "" {
		t.Printf("  versions %s\n", text)
	}
	obstacles := runstate.Obstacles{Idle: s.Idle, Blocked: s.Blocked, Absent: s.Absent}.Lines()
	for _, text := range obstacles {
		t.Printf("  %s\n", terminal.Escape(text))
	}
	if len(obstacles) > 0 {
		t.Printf("  once that is mended it goes on by itself; `fulgurite stop%s %s --now` ends it\n", dirFlag, s.Run)
	}
	if s.Warning != "" {
		t.Printf("  %s\n", s.Warning)
	}
	return nil
}

// headline returns the status in a few words.
func (s Status) headline() string {
	switch {
	case s.Stop != nil && s.Status == record.Running:
		return "stopping"
	case s.Stop != nil && s.Status == record.Stopped:
		return fmt.Sprintf("stopped at %d of %d", s.Stop.After, s.Stop.Of)
	}
	return string(s.Status)
}

func (s Status) printProgress(t *terminal.Terminal, dirFlag string) {
	p := s.Progress
	step := fmt.Sprintf("step %d of %d, version %d is promoted", p.Step, p.Steps, p.Promoted)
	switch {
	case s.Only != "" && s.Evaluated != nil:
		t.Printf("  %s (%s), %d of %s\n", p.Phase, p.Subject, s.Evaluated.Done, readable.Count(s.Evaluated.Total, "rollout"))
	case s.Only != "":
	case s.Status != record.Running || p.Phase == workflows.PhaseUnknown: // the rest is said already
		t.Printf("  %s\n", step)
	default:
		t.Printf("  %s (%s), %s\n", p.Phase, p.Subject, step)
	}
	switch {
	case p.Phase == workflows.PhaseRollouts:
		t.Printf("  %d of %s, %s\n", p.Rollouts.Done, readable.Count(p.Rollouts.Total, "rollout"), readable.Count(p.StepTokens, "token"))
	case p.Phase == workflows.PhaseEvaluation && s.Only == "" && p.Rollouts.Total > 0:
		t.Printf("  %d of %s\n", p.Rollouts.Done, readable.Count(p.Rollouts.Total, "rollout"))
	}
	if p.Curriculum != "" {
		t.Printf("  its tasks: %s\n", terminal.Escape(p.Curriculum))
	}
	if pace := p.PaceText(time.Now()); pace != "" {
		t.Printf("  %s\n", pace)
	}
	if n := len(p.Curve); n > 0 {
		t.Printf("  reward of step %d: %.3f\n", p.Curve[n-1].Step, p.Curve[n-1].Reward)
	}
	if p.Paused {
		t.Printf("  paused: `fulgurite resume%s %s` goes on\n", dirFlag, s.Run)
	}
	if p.Pending != nil {
		t.Printf("  version %d waits for `fulgurite approve%s %s` or `fulgurite reject%s %s`\n", p.Pending.Decision.Candidate, dirFlag, s.Run, dirFlag, s.Run)
	}
	if p.Quarantined > 0 {
		t.Printf("  %s: `fulgurite report%s %s` says why\n", readable.Are(p.Quarantined, "task", "quarantined"), dirFlag, s.Run)
	}
}

// printUsage tells what all attempts took.
func (s Status) printUsage(t *terminal.Terminal) {
	u, until := s.Usage, "in all"
	if u == nil {
		return
	}
	if s.Status == record.Running {
		until = "so far"
	}
	t.Printf("  %s: %s, %s, %s whose agent failed\n", until, readable.Count(u.Calls, "model call"), readable.Count(u.Tokens, "token"), readable.Count(u.AgentFailed, "attempt"))
}
