// Package page implements `fulgurite page`, and serves the page for other commands.
package page

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/plan"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/training"
	"github.com/fulgurite/fulgurite/internal/memory"
	"github.com/fulgurite/fulgurite/internal/trust"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/actions"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workers/fleet"
	"github.com/fulgurite/fulgurite/workers/pageserver"
)

// Command is `fulgurite page`.
type Command struct {
	Port             *int `help:"Port to listen on (0: any; default: 8235, or a free one)." env:"FULGURITE_PAGE_PORT" placeholder:"PORT"`
	pageserver.Flags `embed:""`
	Records          state.RecordFlags `embed:""`
}

// Run serves the page until a signal comes.
func (c *Command) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	if err := flags(c.Options().Check()); err != nil {
		return err
	}
	peers, err := c.Peers()
	if err != nil {
		return flags(err)
	}
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	served, err := Serve(ctx, s, records, Stack{Dial: c.dial(s, t), Gateway: c.gateway(s), Peers: peers, ServingKey: strings.TrimSpace(os.Getenv(trust.ServingKey))}, c.Port, c.Options(), s.Logger(ctx, t.Err))
	if err != nil {
		return err
	}
	t.Printf("The runs of %s are at %s\nCtrl-C stops; nothing depends on it.\n", s.Dir, served.URL())
	<-ctx.Done()
	return served.Close()
}

// dial connects to the Temporal of the directory, while one runs there, or to the one that
// the environment names.
func (c *Command) dial(s *state.Flags, t *terminal.Terminal) pageserver.Dial {
	return func(ctx context.Context) (pageserver.Connection, error) {
		temporal, namespace, err := s.DialNamespace(ctx, t)
		if err != nil {
			return pageserver.Connection{}, err
		}
		a, err := s.Addresses()
		if err != nil {
			a.UI = "" // the page is as good without the link
		}
		return pageserver.Connection{Client: temporal, Namespace: namespace, UI: pageserver.UI(a.UI, namespace)}, nil
	}
}

// gateway returns the address of the gateway of the directory's stack, while one runs.
func (c *Command) gateway(s *state.Flags) func() string {
	return func() string {
		if holder, err := s.Layout().Holder(); err != nil || holder == "" {
			return ""
		}
		a, err := s.Addresses()
		if err != nil {
			return "" // without a readable file, no stack can be found
		}
		return a.Gateway
	}
}

// Stack holds the parts of a stack that the page uses if it runs in the same process.
type Stack struct {
	Dial pageserver.Dial
	// Gateway is where versions answer, ending in "/v1", or empty.
	Gateway func() string
	// Loaded returns the versions that this process has in memory. It is nil if this
	// process samples nothing.
	Loaded func() []model.VersionID
	// Peers says how samplers and gateways are asked, and ServingKey is what a gateway wants
	// from those who ask versions.
	Peers      trust.Peers
	ServingKey string
}

// Serve serves the page of records. Actions of local readers are recorded under the name
// of the user who runs this process.
func Serve(ctx context.Context, s *state.Flags, records fleet.Records, beside Stack, port *int, l pageserver.Listening, log *zap.Logger) (*pageserver.Served, error) {
	folder, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the working directory: %w", err)
	}
	served, err := pageserver.Serve(ctx, pageserver.Options{
		Records: records, Dial: beside.Dial, Gateway: beside.Gateway, Loaded: beside.Loaded, Peers: beside.Peers, ServingKey: beside.ServingKey, Port: port, Listening: l, Local: state.Person(), Place: s.Place(), Log: log.Named("page"),
		Starter: func(o pageserver.Operate) actions.Starter { return starter{o, s, folder} },
	})
	return served, flags(err)
}

// flags converts an error about the page's flags into an error of usage of the command.
func flags(err error) error {
	var mistake pageserver.UsageError
	if errors.As(err, &mistake) {
		return terminal.Usage(err)
	}
	return err
}

// starter starts runs as `fulgurite train --detach` does.
type starter struct {
	pageserver.Operate
	state  *state.Flags
	folder string
}

// Folder implements actions.Starter.
func (s starter) Folder() string { return s.folder }

// Plan implements actions.Starter.
func (s starter) Plan(ctx context.Context, text []byte, name string) (actions.Plan, error) {
	p, name, err := s.planOf(ctx, text, name)
	if err != nil {
		return actions.Plan{}, err
	}
	var b bytes.Buffer
	p.Print(&terminal.Terminal{Out: &b, Err: &b})
	return actions.Plan{Name: name, Digest: p.Digest, Text: b.String()}, nil
}

func (s starter) planOf(ctx context.Context, text []byte, name string) (plan.Plan, string, error) {
	p, err := plan.OfText(ctx, text, "spec", s.folder)
	if err != nil {
		return p, "", err
	}
	if err := p.Spec.Trainable(); err != nil && p.Spec.Optimizer == nil {
		return p, "", err
	}
	if name == "" {
		name = p.Spec.Name
	}
	if name == "" {
		return p, "", errors.New("name: the spec has none, so give the run one")
	}
	if err := record.CheckRunName(name); err != nil {
		return p, "", fmt.Errorf("name: %w", err)
	}
	return p, name, p.CheckName(name)
}

// Start implements actions.Starter.
func (s starter) Start(ctx context.Context, a record.Action, text []byte) (record.Action, error) {
	a.Outcome = record.ActionRefused
	p, name, err := s.planOf(ctx, text, a.Run)
	if err == nil && p.Digest != a.Input.Digest {
		err = errors.New("what it would run is not what was shown any more: look at its plan again")
	}
	if err != nil {
		a.Result.Message = err.Error()
		return a, err
	}
	a.Outcome, a.Run = record.ActionAsked, name
	c, err := s.Temporal(ctx)
	if err != nil {
		return a, err
	}
	under, err := training.UnderWay(ctx, c, name)
	if err != nil {
		return a, err
	}
	if free, known := s.state.FreeForRun(); known && !under {
		if err := p.CheckRoom(free, memory.Limit()); err != nil {
			a.Outcome, a.Result.Message = record.ActionRefused, err.Error()
			return a, err
		}
	}
	_, a, err = training.StartRecorded(ctx, c, s.Operator, a, p.Spec)
	if err == nil && len(p.Spec.Phases) > 0 { // these have no page, but each phase has
		a.Run = spec.PhaseName(name, 1, p.Spec.Phases[0])
	}
	return a, err
}
