package main

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

	"github.com/fulgurite/fulgurite/workflows"
)

// answerWithin is how long a run may take to answer. It does so at once, unless
// no worker is there to run it.
const answerWithin = 30 * time.Second

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

type approveCommand struct {
	Message message `embed:""`
	Version int     `help:"The version that is meant (default: the one that waits)." placeholder:"VERSION"`
}

func (c *approveCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	return c.Message.send(ctx, s, t, workflows.UpdateApprove, c.Message.verdict(c.Version))
}

type rejectCommand struct {
	Message message `embed:""`
	Version int     `help:"The version that is meant (default: the one that waits)." placeholder:"VERSION"`
}

func (c *rejectCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	return c.Message.send(ctx, s, t, workflows.UpdateReject, c.Message.verdict(c.Version))
}

type pauseCommand struct {
	Message message `embed:""`
}

func (c *pauseCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	return c.Message.send(ctx, s, t, workflows.UpdatePause, c.Message.control())
}

type resumeCommand struct {
	Message message `embed:""`
}

func (c *resumeCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	return c.Message.send(ctx, s, t, workflows.UpdateResume, c.Message.control())
}

type stopCommand struct {
	Message message `embed:""`
}

func (c *stopCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	return c.Message.send(ctx, s, t, workflows.UpdateStop, c.Message.control())
}

type setCommand struct {
	Message message  `embed:""`
	Values  []string `arg:"" name:"key=number" help:"A key of the spec, for example training.optimizer.learning_rate=1e-4."`
}

func (c *setCommand) Run(ctx context.Context, s *shared, t *terminal) error {
	values := map[string]float64{}
	for _, v := range c.Values {
		key, text, _ := strings.Cut(v, "=")
		number, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return usagef("%q: want KEY=NUMBER", v)
		}
		values[key] = number
	}
	return c.Message.send(ctx, s, t, workflows.UpdateSet, workflows.SetInput{By: cmp.Or(c.Message.By, person()), Values: values})
}

// send makes an Update of the run's workflow and prints what it answers.
func (m message) send(ctx context.Context, s *shared, t *terminal, update string, input any) error {
	c, err := s.dial(ctx, t)
	if err != nil {
		return err
	}
	defer c.Close()
	limited, cancel := context.WithTimeout(ctx, answerWithin)
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
		return t.json(r)
	}
	t.printf("%s\n", r.Message)
	return nil
}

// explain says why a run did not do what it was told.
func (m message) explain(limited context.Context, err error, s *shared) error {
	var refused *temporal.ApplicationError
	var unknown *serviceerror.NotFound
	switch {
	case errors.As(err, &refused):
		return usagef("run %s: %s", m.Run_, refused.Message())
	case errors.As(err, &unknown):
		return usagef("run %s is not under way: `fulgurite runs%s` lists the runs", m.Run_, s.flag())
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		return fmt.Errorf("run %s does not answer within %s: is there a worker for it? see `fulgurite status%s %s`", m.Run_, answerWithin, s.flag(), m.Run_)
	}
	return fmt.Errorf("run %s: %w", m.Run_, err)
}
