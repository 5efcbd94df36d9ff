package status

import (
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/workflows"
)

// print writes the status for people, with its texts placed. place is where the commands
// that are shown find the run.
func (s Status) print(t *terminal.Terminal, place shell.Place) error {
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
	switch {
	case s.lost:
		t.Printf("  its workflow is no longer in Temporal, so it can't go on: start its spec under another name\n")
	case s.canRetry:
		t.Printf("  once the cause is fixed: `%s`\n", place.Command("retry", s.Run))
	}
	if s.Progress != nil {
		s.printProgress(t, place)
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
		t.Printf("  once that is mended it goes on by itself; `%s` ends it\n", place.Command("stop", s.Run, "--now"))
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

func (s Status) printProgress(t *terminal.Terminal, place shell.Place) {
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
		t.Printf("  paused: `%s` goes on\n", place.Command("resume", s.Run))
	}
	if p.Pending != nil {
		t.Printf("  version %d waits for `%s` or `%s`\n", p.Pending.Decision.Candidate, place.Command("approve", s.Run), place.Command("reject", s.Run))
	}
	if p.Quarantined > 0 {
		t.Printf("  %s: `%s` says why\n", readable.Are(p.Quarantined, "task", "quarantined"), place.Command("report", s.Run))
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
