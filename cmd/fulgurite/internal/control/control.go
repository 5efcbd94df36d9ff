// Package control holds the commands that act on a run under way, and those that move its
// promoted pointer.
package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/operator"
	"github.com/fulgurite/fulgurite/run/runstate"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// message has the flags of every command that sends a run an action.
type message struct {
	Run_    string            `arg:"" name:"run" help:"Name of the run."`
	Reason  string            `help:"Why; it stays on record." placeholder:"TEXT"`
	By      string            `help:"Who says so (default: user@host)." placeholder:"NAME"`
	JSON    bool              `help:"Print the answer as JSON." name:"json"`
	Records state.RecordFlags `embed:""`
}

// action returns the action that the message asks for.
func (m message) action(name record.ActionName, input record.ActionInput) record.Action {
	return record.Action{ID: operator.NewID(), Run: m.Run_, Name: name, By: cmp.Or(m.By, state.Person()), Reason: m.Reason, Input: input}
}

// versionInput returns the input for the version that a flag names. With version 0, the
// input names none, and the run decides.
func versionInput(version int) record.ActionInput {
	if version == 0 {
		return record.ActionInput{}
	}
	return record.ActionInput{Version: &version}
}

// Approve is `fulgurite approve`.
type Approve struct {
	Message message `embed:""`
	Version int     `help:"The version to decide on (default: the one that waits)." placeholder:"VERSION"`
}

// Outputs returns what the command prints as JSON.
func (*Approve) Outputs() []any { return []any{updateResult{}} }

// Run sends the action to the run.
func (c *Approve) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Message.send(ctx, s, t, record.ActionApprove, versionInput(c.Version))
}

// Reject is `fulgurite reject`.
type Reject struct {
	Message message `embed:""`
	Version int     `help:"The version to decide on (default: the one that waits)." placeholder:"VERSION"`
}

// Outputs returns what the command prints as JSON.
func (*Reject) Outputs() []any { return []any{updateResult{}} }

// Run sends the action to the run.
func (c *Reject) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Message.send(ctx, s, t, record.ActionReject, versionInput(c.Version))
}

// Pause is `fulgurite pause`.
type Pause struct {
	Message message `embed:""`
}

// Outputs returns what the command prints as JSON.
func (*Pause) Outputs() []any { return []any{updateResult{}} }

// Run sends the action to the run.
func (c *Pause) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Message.send(ctx, s, t, record.ActionPause, record.ActionInput{})
}

// Resume is `fulgurite resume`.
type Resume struct {
	Message message `embed:""`
}

// Outputs returns what the command prints as JSON.
func (*Resume) Outputs() []any { return []any{updateResult{}} }

// Run sends the action to the run.
func (c *Resume) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Message.send(ctx, s, t, record.ActionResume, record.ActionInput{})
}

// Stop is `fulgurite stop`.
type Stop struct {
	Message message `embed:""`
	Now     bool    `help:"End the run at once, also one that is blocked. What its unfinished steps did is lost; fulgurite retry makes them again."`
}

// Outputs returns what the command prints as JSON.
func (*Stop) Outputs() []any { return []any{updateResult{}} }

// Run sends the action to the run.
func (c *Stop) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Message.send(ctx, s, t, record.ActionStop, record.ActionInput{Now: c.Now})
}

// Set is `fulgurite set`.
type Set struct {
	Message message  `embed:""`
	Values  []string `arg:"" name:"key=number" help:"A key of the spec, for example training.optimizer.learning_rate=1e-4. traffic.record=all (or with-consent, none) is set alone, also after the end of the run."`
}

// Outputs returns what the command prints as JSON.
func (*Set) Outputs() []any { return []any{updateResult{}} }

// Run sends the action to the run.
func (c *Set) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	recording, err := recordingOf(c.Values)
	if err != nil {
		return err
	}
	if recording != "" {
		return c.Message.send(ctx, s, t, record.ActionSet, record.ActionInput{Record: recording})
	}
	values, err := numbers(c.Values)
	if err != nil {
		return err
	}
	return c.Message.send(ctx, s, t, record.ActionSet, record.ActionInput{Values: values})
}

// recordingOf returns the value of traffic.record, which is no number, or "" if the words set
// other keys.
func recordingOf(words []string) (string, error) {
	for _, v := range words {
		key, text, _ := strings.Cut(v, "=")
		switch {
		case key != spec.KeyRecord:
		case len(words) > 1:
			return "", terminal.Usagef("%s is set alone: set the other keys with another command", spec.KeyRecord)
		case !slices.Contains(spec.Recordings(), text):
			return "", terminal.Usagef("%q: want %s=%s", v, spec.KeyRecord, strings.Join(spec.Recordings(), "|"))
		default:
			return text, nil
		}
	}
	return "", nil
}

// numbers reads KEY=NUMBER.
func numbers(words []string) (map[string]float64, error) {
	var values map[string]float64
	for _, v := range words {
		key, text, _ := strings.Cut(v, "=")
		number, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, terminal.Usagef("%q: want KEY=NUMBER", v)
		}
		if values == nil {
			values = map[string]float64{}
		}
		values[key] = number
	}
	return values, nil
}

// updateResult is the JSON output of these commands.
type updateResult struct {
	Step    int    `json:"step"`
	Message string `json:"message"`
}

// send asks the run's workflow and prints what it answers.
func (m message) send(ctx context.Context, s *state.Flags, t *terminal.Terminal, name record.ActionName, input record.ActionInput) error {
	o := operator.Operator{Dial: dial(s, t)}
	records, err := s.OpenRecords(ctx, t, m.Records)
	var absent terminal.UsageError
	switch {
	case err == nil:
		defer records.Close()
		// If the run is in another Temporal server, the directory's own store does not
		// know it.
		if _, err = records.Store.Run(ctx, m.Run_); err == nil || m.Records.Store != "" {
			o.Store = records.Store
		}
	case m.Records.Store != "" || !errors.As(err, &absent):
		return err
	} // else the run's fleet has a store that no flag names: only Temporal's history has the run
	unknown := err
	a, err := o.Act(ctx, m.action(name, input))
	if unknown != nil && errors.Is(err, state.ErrNoStack) {
		return fmt.Errorf("run %s: %w", m.Run_, unknown) // so it is nowhere
	}
	if err != nil {
		return m.explain(err, a, s)
	}
	message := s.Place().Complete(a.Result.Message)
	if m.JSON {
		return t.JSON(updateResult{a.Result.Step, message})
	}
	t.Printf("%s\n", message)
	return nil
}

// dial returns the function with which an operator connects to Temporal.
func dial(s *state.Flags, t *terminal.Terminal) operator.Dial {
	return func(ctx context.Context) (client.Client, string, func(), error) {
		c, namespace, err := s.DialNamespace(ctx, t)
		if err != nil {
			return nil, "", nil, err
		}
		return c, namespace, c.Close, nil
	}
}

// explain returns the error that tells why a run did not carry out an action.
func (m message) explain(err error, a record.Action, s *state.Flags) error {
	switch {
	case errors.Is(err, operator.ErrNotUnderWay):
		return terminal.Usagef("run %s is not under way: `%s` lists the runs", m.Run_, s.Command("runs"))
	case errors.Is(err, operator.ErrRefused):
		return terminal.Usagef("run %s: %s", m.Run_, a.Result.Message)
	case errors.Is(err, operator.ErrNoAnswer):
		return fmt.Errorf("run %s: %w see `%s`", m.Run_, err, s.Command("status", m.Run_))
	}
	return fmt.Errorf("run %s: %w", m.Run_, err)
}

// mover has the flags of every command that moves the promoted pointer.
type mover struct {
	By      string            `help:"Who does it (default: user@host)." placeholder:"NAME"`
	Records state.RecordFlags `embed:""`
}

// Promote is `fulgurite promote`.
type Promote struct {
	Run_    string `arg:"" name:"run" help:"Name of the run, or RUN:POLICY if each of several policies is promoted alone."`
	Version int    `arg:"" help:"Version to promote."`
	Reason  string `help:"Why; it stays on record." placeholder:"TEXT"`
	Mover   mover  `embed:""`
}

// Run promotes the version, and leaves the run free to promote another.
func (c *Promote) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Mover.move(ctx, s, t, record.Action{Run: c.Run_, Name: record.ActionPromote, Reason: c.Reason, Input: record.ActionInput{Version: &c.Version}})
}

// Rollback is `fulgurite rollback`.
type Rollback struct {
	Run_   string `arg:"" name:"run" help:"Name of the run, or RUN:POLICY if each of several policies is promoted alone."`
	To     *int   `help:"Version to promote (default: the one promoted before)." placeholder:"VERSION"`
	Reason string `help:"Why; it stays on record." placeholder:"TEXT"`
	Mover  mover  `embed:""`
}

// Run also works on runs that have ended: the pointer is in the store.
func (c *Rollback) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Mover.move(ctx, s, t, record.Action{Run: c.Run_, Name: record.ActionRollback, Reason: c.Reason, Input: record.ActionInput{Version: c.To}})
}

// Pin is `fulgurite pin`.
type Pin struct {
	Run_    string `arg:"" name:"run" help:"Name of the run, or RUN:POLICY if each of several policies is promoted alone."`
	Version int    `arg:"" help:"Version to promote and hold."`
	Reason  string `help:"Why; it stays on record." placeholder:"TEXT"`
	Mover   mover  `embed:""`
}

// Run promotes the version and keeps the run from promoting another one.
func (c *Pin) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Mover.move(ctx, s, t, record.Action{Run: c.Run_, Name: record.ActionPin, Reason: c.Reason, Input: record.ActionInput{Version: &c.Version}})
}

// Unpin is `fulgurite unpin`.
type Unpin struct {
	Run_   string `arg:"" name:"run" help:"Name of the run, or RUN:POLICY if each of several policies is promoted alone."`
	Reason string `help:"Why; it stays on record." placeholder:"TEXT"`
	Mover  mover  `embed:""`
}

// Run lets the run promote again.
func (c *Unpin) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	return c.Mover.move(ctx, s, t, record.Action{Run: c.Run_, Name: record.ActionUnpin, Reason: c.Reason})
}

func (m mover) move(ctx context.Context, s *state.Flags, t *terminal.Terminal, a record.Action) error {
	records, err := s.OpenRecords(ctx, t, m.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	a.ID, a.By = operator.NewID(), cmp.Or(m.By, state.Person())
	a.Run, a.Input.Policy, _ = strings.Cut(a.Run, ":")
	a, err = operator.Operator{Store: records.Store}.Act(ctx, a)
	if errors.Is(err, operator.ErrRefused) {
		return terminal.Usagef("run %s: %s", a.Run, a.Result.Message)
	}
	if err == nil {
		t.Printf("%s\n", s.Place().Complete(a.Result.Message))
	}
	return err
}

// Retry is `fulgurite retry`.
type Retry struct {
	Message message  `embed:""`
	Steps   int      `help:"Number of steps that the run has in all. With more than it has finished, a run goes on that has completed or was stopped." placeholder:"N"`
	Set     []string `help:"Another number for a key of the spec from the first step that is not finished, for example training.optimizer.learning_rate=1e-5. Repeatable." placeholder:"KEY=NUMBER" sep:"none"`
}

// retryResult is the JSON output of `fulgurite retry --json`.
type retryResult struct {
	Run string `json:"run"`
	// Execution is Temporal's run id of the workflow that goes on.
	Execution string `json:"execution"`
}

// Outputs returns what the command prints as JSON.
func (*Retry) Outputs() []any { return []any{retryResult{}} }

// Run lets the run go on.
func (c *Retry) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	values, err := numbers(c.Set)
	if err != nil {
		return err
	}
	if c.Steps < 0 {
		return terminal.Usagef("--steps %d: give the number of steps that the run has in all", c.Steps)
	}
	if c.Steps > 0 {
		if values == nil {
			values = map[string]float64{}
		}
		if _, twice := values[spec.KeySteps]; twice {
			return terminal.Usagef("%s is given twice, with --set and with --steps: leave one out", spec.KeySteps)
		}
		values[spec.KeySteps] = float64(c.Steps)
	}
	records, err := s.OpenRecords(ctx, t, c.Message.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	name := c.Message.Run_
	var execution string
	if _, err = records.Store.Run(ctx, name); errors.Is(err, record.ErrNotFound) {
		execution, err = c.phases(ctx, s, t, records, values)
	} else if err == nil {
		execution, err = c.run(ctx, s, t, records, name, values)
	}
	if err != nil {
		return err
	}
	if c.Message.JSON {
		return t.JSON(retryResult{name, execution})
	}
	t.Printf("Run %s goes on: %s\n", name, s.Command("status", name))
	return nil
}

// run lets a run go on, and returns its new execution.
func (c *Retry) run(ctx context.Context, s *state.Flags, t *terminal.Terminal, records fleet.Records, name string, values map[string]float64) (string, error) {
	m := c.Message
	m.Run_ = name
	a, err := operator.Operator{Store: records.Store, Dial: dial(s, t)}.Act(ctx, m.action(record.ActionRetry, record.ActionInput{Values: values}))
	if errors.Is(err, operator.ErrRefused) {
		return "", m.explain(err, a, s)
	}
	return a.Result.Execution, err
}

// phases lets the phases of a spec go on with the one that did not complete.
func (c *Retry) phases(ctx context.Context, s *state.Flags, t *terminal.Terminal, records fleet.Records, values map[string]float64) (string, error) {
	temporal, namespace, done, err := dial(s, t)(ctx)
	if err != nil { // only Temporal knows phases by their name
		return "", fmt.Errorf("run %s: %w; if it is the name of phases: %w", c.Message.Run_, record.ErrNotFound, err)
	}
	defer done()
	reason := "retried by " + cmp.Or(c.Message.By, state.Person())
	if c.Message.Reason != "" {
		reason += ": " + c.Message.Reason
	}
	retrier := runstate.Retrier{Client: temporal, Namespace: namespace, Store: records.Store}
	var retried bool
	execution, err := retrier.RetryPhases(ctx, c.Message.Run_, reason, func(run string) error {
		_, err := c.run(ctx, s, t, records, run, values)
		retried = err == nil
		return err
	})
	if err == nil && !retried && len(values) > 0 {
		fmt.Fprintf(t.Err, "fulgurite: warning: the numbers were not set, because the run of the phase had not failed: `%s` shows it\n", s.Command("status", c.Message.Run_))
	}
	if errors.Is(err, runstate.ErrNotRetried) {
		return "", terminal.Usagef("%s: %s", c.Message.Run_, err)
	}
	return execution, err
}
