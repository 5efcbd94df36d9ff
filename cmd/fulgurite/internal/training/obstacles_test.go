package training

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/progress"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/run/runstate"
)

// An obstacle is told at the second look, once, whatever numbers its failure has, and its
// end is told once.
func TestEachObstacleIsToldOnceAndItsEnd(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := progress.New(&out, false)
	v := obstacleView{run: "demo", place: shell.Place{Dir: "my state"}, display: d}
	blocked := func(workflow, failure string, attempt int) runstate.Blockage {
		return runstate.Blockage{Workflow: workflow, Activity: "RunAgent", Attempt: attempt, Failure: failure}
	}
	v.show(runstate.Obstacles{Idle: []string{"gpu"}}) // it is only seen once
	for attempt := 3; attempt < 7; attempt++ {
		v.show(runstate.Obstacles{Blocked: []runstate.Blockage{
			blocked("demo/train-1/0", "port 4021\x1b[2J is closed", attempt), blocked("demo/train-1/1", "port 4022\x1b[2J is closed", attempt),
		}})
	}
	v.show(runstate.Obstacles{})
	v.show(runstate.Obstacles{})
	d.Close()
	require.Equal(t, []string{
		`the run waits: RunAgent of demo/train-1/0 is blocked, attempt 4: port 4021\x1b[2J is closed`,
		"  once that is mended it goes on by itself; `fulgurite stop --dir 'my state' demo --now` ends it",
		"the run goes on: nothing that was named keeps it waiting",
	}, strings.Split(strings.TrimSpace(out.String()), "\n"))
}
