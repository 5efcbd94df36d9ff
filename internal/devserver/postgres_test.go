package devserver_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/internal/devserver"
	"github.com/fulgurite/fulgurite/internal/pgtest"
)

// freshDatabase returns the URL of a database that does not exist yet. It and the one for
// visibility are dropped when the test ends.
func freshDatabase(t *testing.T) string {
	t.Helper()
	existing := pgtest.URL(t)
	u, err := url.Parse(existing)
	require.NoError(t, err)
	u.Path += "_temporal"
	t.Cleanup(func() {
		ctx := context.Background() // the test's is over
		conn, err := pgx.Connect(ctx, existing)
		require.NoError(t, err)
		for _, suffix := range []string{"", "_visibility"} {
			_, err := conn.Exec(ctx, `DROP DATABASE IF EXISTS "`+u.Path[1:]+suffix+`" WITH (FORCE)`)
			require.NoError(t, err)
		}
		require.NoError(t, conn.Close(ctx))
	})
	return u.String()
}

func TestWorkflowsGoOnInPostgreSQL(t *testing.T) {
	t.Parallel()
	options := devserver.Options{
		Database:         freshDatabase(t),
		SearchAttributes: map[string]enums.IndexedValueType{"Step": enums.INDEXED_VALUE_TYPE_INT},
	}
	s, err := devserver.Start(t.Context(), options)
	require.NoError(t, err)
	c, err := s.Client(t.Context())
	require.NoError(t, err)
	step := temporal.NewSearchAttributeKeyInt64("Step")
	_, err = c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: "one", TaskQueue: queue, TypedSearchAttributes: temporal.NewSearchAttributes(step.ValueSet(3)),
	}, AwaitSignal)
	require.NoError(t, err)
	c.Close()
	require.NoError(t, s.Stop())

	again := connect(t, start(t, options))
	work(t, again)
	require.NoError(t, again.SignalWorkflow(t.Context(), "one", "", signal, "hello"))
	var got string
	require.NoError(t, again.GetWorkflow(t.Context(), "one", "").Get(t.Context(), &got))
	require.Equal(t, "hello", got)
}

func TestAnotherSchemaIsLeftToTemporalsOwnTool(t *testing.T) {
	t.Parallel()
	database := freshDatabase(t)
	s, err := devserver.Start(t.Context(), devserver.Options{Database: database})
	require.NoError(t, err)
	require.NoError(t, s.Stop())
	conn, err := pgx.Connect(t.Context(), database)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `UPDATE schema_version SET curr_version = '1.0'`)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	_, err = devserver.Start(t.Context(), devserver.Options{Database: database})
	require.ErrorContains(t, err, "temporal-sql-tool")
}

func TestOnlyPostgreSQLIsTakenForADatabase(t *testing.T) {
	t.Parallel()
	for _, database := range []string{"mysql://x/y", "temporal.db", "postgres:// "} {
		_, err := devserver.Start(t.Context(), devserver.Options{Database: database})
		require.Error(t, err, database)
	}
}
