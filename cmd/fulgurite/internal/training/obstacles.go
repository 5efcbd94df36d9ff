package training

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/progress"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/run/runstate"
)

const (
	// lookEvery is how often the obstacles of a followed run are looked for. One is told
	// when it is seen twice in a row, so it takes two looks.
	lookEvery = 4 * time.Second
	// lookTimeout bounds one look.
	lookTimeout = 3 * time.Second
	// maxAtOnce is how many new obstacles are told at once.
	maxAtOnce = 4
)

// watch tells the user who follows a run what keeps it from going on, each obstacle once,
// and when it goes on. It ends with ctx.
func watch(ctx context.Context, c client.Client, run, agents string, place shell.Place, d *progress.Display) {
	t := obstacleView{run: run, place: place, display: d}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		limited, cancel := context.WithTimeout(ctx, lookTimeout)
		found, err := runstate.Find(limited, c, run, agents, nil)
		going := err == nil && isGoing(limited, c, run)
		cancel()
		if going { // else the outage, or the run's end, is what tells
			t.show(found)
		}
	}
}

// isGoing reports whether a run's workflow has not ended.
func isGoing(ctx context.Context, c client.Client, run string) bool {
	d, err := c.DescribeWorkflowExecution(ctx, run, "")
	return err == nil && d.WorkflowExecutionInfo.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING
}

// obstacleView remembers which obstacles a user was told of.
type obstacleView struct {
	run         string
	place       shell.Place
	display     *progress.Display
	seen, shown []string // keys, of the last look and since the run last went on
}

// show takes the result of a look.
func (t *obstacleView) show(o runstate.Obstacles) {
	var keys, lines []string
	more := 0
	for _, one := range each(o) {
		line := one.Lines()[0]
		key := keyOf(one, line)
		if slices.Contains(keys, key) {
			continue // in another workflow of the run
		}
		keys = append(keys, key)
		if !slices.Contains(t.seen, key) || slices.Contains(t.shown, key) {
			continue
		}
		t.shown = append(t.shown, key)
		if len(lines) == maxAtOnce {
			more++
			continue
		}
		lines = append(lines, line)
	}
	t.seen = keys
	for _, line := range lines {
		t.display.Println("the run waits: " + terminal.Escape(t.place.Complete(line)))
	}
	if more > 0 {
		t.display.Println(fmt.Sprintf("  and %d more: `%s` lists them", more, t.place.Command("status", t.run)))
	}
	if len(lines) > 0 {
		t.display.Println(fmt.Sprintf("  once that is mended it goes on by itself; `%s` ends it", t.place.Command("stop", t.run, "--now")))
	}
	if len(keys) == 0 && len(t.shown) > 0 {
		t.shown = nil
		t.display.Println("the run goes on: nothing that was named keeps it waiting")
	}
}

// each returns obstacles one by one.
func each(o runstate.Obstacles) []runstate.Obstacles {
	var out []runstate.Obstacles
	for _, q := range o.Idle {
		out = append(out, runstate.Obstacles{Idle: []string{q}})
	}
	for _, b := range o.Blocked {
		out = append(out, runstate.Obstacles{Blocked: []runstate.Blockage{b}})
	}
	return out
}

// keyOf tells obstacles apart.
func keyOf(o runstate.Obstacles, line string) string {
	if len(o.Blocked) == 0 {
		return line
	}
	return o.Blocked[0].Key()
}
