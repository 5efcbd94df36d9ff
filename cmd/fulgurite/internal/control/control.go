// Package control holds the commands that tell a run something, and those that move
// its promoted pointer.
package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/workflows"
)

// answerTimeout bounds how long a run may take to answer. It does so at once, unless
// no worker is there to run it.
const answerTimeout = 30 * time.Second

// message is what every command has that tells a run something.
type message struct {
	Run_   string `arg:"" name:"run" help:"Name of the run."`
	Reason string `help:"Why; it stays on record." placeholder:"TEXT"`
	By     string `help:"Who says so (default: user@host)." placeholder:"NAME"`
	JSON   bool   `help:"Print the answer as JSON." name:"json"`
}

func (m message) control() workflows.ControlInput {
	return workflows.ControlInput{By: cmp.Or(m.By, person()), Reason: m.Reason}
}

func (m message) verdict(version int) workflows.VerdictInput {
	return workflows.VerdictInput{Version: version, By: cmp.Or(m.By, person()), Reason: m.Reason}
}

// Approve is `fulgurite approve`.
type Approve struct {
	Message message `embed:""`
	Version int     `help:"The version that is meant (default: the one that waits)." placeholder:"VERSION"`
}

// Run sends the Update.
func (c *Approve) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Message.send(ctx, s, t, workflows.UpdateApprove, c.Message.verdict(c.Version))
}

// Reject is `fulgurite reject`.
type Reject struct {
	Message message `embed:""`
	Version int     `help:"The version that is meant (default: the one that waits)." placeholder:"VERSION"`
}

// Run sends the Update.
func (c *Reject) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Message.send(ctx, s, t, workflows.UpdateReject, c.Message.verdict(c.Version))
}

// Pause is `fulgurite pause`.
type Pause struct {
	Message message `embed:""`
}

// Run sends the Update.
func (c *Pause) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Message.send(ctx, s, t, workflows.UpdatePause, c.Message.control())
}

// Resume is `fulgurite resume`.
type Resume struct {
	Message message `embed:""`
}

// Run sends the Update.
func (c *Resume) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Message.send(ctx, s, t, workflows.UpdateResume, c.Message.control())
}

// Stop is `fulgurite stop`.
type Stop struct {
	Message message `embed:""`
}

// Run sends the Update.
func (c *Stop) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Message.send(ctx, s, t, workflows.UpdateStop, c.Message.control())
}

// Set is `fulgurite set`.
type Set struct {
	Message message  `embed:""`
	Values  []string `arg:"" name:"key=number" help:"A key of the spec, for example training.optimizer.learning_rate=1e-4."`
}

// Run sends the Update.
func (c *Set) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	values := map[string]float64{}
	for _, v := range c.Values {
		key, text, _ := strings.Cut(v, "=")
		number, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return terminal.Usagef("%q: want KEY=NUMBER", v)
		}
		values[key] = number
	}
	return c.Message.send(ctx, s, t, workflows.UpdateSet, workflows.SetInput{By: cmp.Or(c.Message.By, person()), Values: values})
}

// send makes an Update of the run's workflow and prints what it answers.
func (m message) send(ctx context.Context, s *state.Flags, t *terminal.Terminal, update string, input any) error {
	c, err := s.Dial(ctx, t)
	if err != nil {
		return err
	}
	defer c.Close()
	limited, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var r workflows.UpdateResult
	handle, err := c.UpdateWorkflow(limited, client.UpdateWorkflowOptions{
		WorkflowID: m.Run_, UpdateName: update, Args: []any{input}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(limited, &r)
	}
	if err != nil {
		return m.explain(limited, err, s)
	}
	if m.JSON {
		return t.JSON(r)
	}
	t.Printf("%s\n", r.Message)
	return nil
}

// explain says why a run did not do what it was told.
func (m message) explain(limited context.Context, err error, s *state.Flags) error {
	var refused *temporal.ApplicationError
	var unknown *serviceerror.NotFound
	switch {
	case errors.As(err, &refused):
		return terminal.Usagef("run %s: %s", m.Run_, refused.Message())
	case errors.As(err, &unknown):
		return terminal.Usagef("run %s is not under way: `fulgurite runs%s` lists the runs", m.Run_, s.DirFlag())
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		return fmt.Errorf("run %s does not answer within %s: is there a worker for it? see `fulgurite status%s %s`", m.Run_, answerTimeout, s.DirFlag(), m.Run_)
	}
	return fmt.Errorf("run %s: %w", m.Run_, err)
}
