package activities_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/internal/pgtest"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/run/catalog"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workflows"
)

// database is a database on a PostgreSQL server, with the URL of its administrator.
type database struct{ name, admin string }

// close cuts all connections to the database and refuses others.
func (d database) close(ctx context.Context) error {
	if err := d.do(ctx, "ALTER DATABASE "+d.name+" ALLOW_CONNECTIONS false"); err != nil {
		return err
	}
	return d.do(ctx, fmt.Sprintf("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s'", d.name))
}

func (d database) open(ctx context.Context) error {
	return d.do(ctx, "ALTER DATABASE "+d.name+" ALLOW_CONNECTIONS true")
}

func (d database) do(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, d.admin)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, statement)
	return err
}

// onPostgres puts the records of w into a PostgreSQL database.
func (w *testEnv) onPostgres() database {
	w.t.Helper()
	at, err := url.Parse(pgtest.URL(w.t))
	require.NoError(w.t, err)
	records, err := store.Open(w.t.Context(), at.String(), nil)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, records.Close()) })
	before := w.store
	w.t.Cleanup(func() { w.store = before })
	w.store, w.catalog = records, catalog.Catalog{Store: records, Blobs: w.blobs}
	w.coordinator.Runs, w.coordinator.Ledger, w.coordinator.Attempts = records, records, records
	d := database{name: at.Path[1:]}
	at.Path = "/postgres"
	d.admin = at.String()
	return d
}

// beatAsWorkersDo sends heartbeats for an activity until stop is called, as a worker
// does. They are needed because closing a database that is in use takes a while.
func beatAsWorkersDo(ctx context.Context) (_ context.Context, stop func()) {
	var k activities.KeepAlive
	ctx = activities.WithKeepAlive(ctx, &k)
	beating, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-beating.Done():
				return
			case <-tick.C:
				k.Beat(ctx)
			}
		}
	}()
	return ctx, func() { cancel(); <-ended }
}

// PostgreSQL refuses connections for more tries of a grading than a grader has.
func TestARunThatGradesByCommandOutlastsItsDatabase(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	d := w.onPostgres()
	s := w.spec()
	self, err := os.Executable()
	require.NoError(t, err)
	s.Grader = spec.Grader{Type: "command", Command: []string{self, "grade", filepath.Join(w.dir, "asked")}}
	s.Training.Steps, s.Training.TasksPerStep, s.Training.SamplesPerTask = 1, 1, 2
	c := w.processActivities(w.serve(w.gateway()), func(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
		_, err := ask(ctx, env, task.Input)
		return "42", err
	})
	env := w.temporal()
	o := downtime{failed: map[string]int{}}
	o.register(env, c, c)
	var failed atomic.Int64
	env.RegisterActivityWithOptions(func(ctx context.Context, in activities.GradeRolloutInput) (activities.GradeRolloutResult, error) {
		ctx, stop := beatAsWorkersDo(ctx)
		defer stop()
		switch first := in.Address.Sample == 0; {
		case first && activity.GetInfo(ctx).Attempt == 1:
			require.NoError(t, d.close(ctx))
		case first && activity.GetInfo(ctx).Attempt == outageTries:
			require.NoError(t, d.open(ctx))
		}
		out, err := c.GradeRollout(ctx, in)
		if err != nil {
			failed.Add(1)
		}
		return out, err
	}, activity.RegisterOptions{Name: "GradeRollout", DisableAlreadyRegisteredCheck: true})
	env.ExecuteWorkflow(workflows.TrainingWorkflow, workflows.TrainingInput{Spec: w.request(s).Spec})
	require.NoError(t, env.GetWorkflowError())
	require.Greater(t, failed.Load(), int64(activities.GraderTries))
	excluded, err := w.store.Quarantines(t.Context(), "demo", model.DefaultPolicy)
	require.NoError(t, err)
	require.Empty(t, excluded)
}
