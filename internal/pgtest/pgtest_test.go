package pgtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/pgtest"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	first, second := open(t), open(t)
	_, created, err := first.CreateRun(t.Context(), record.Run{Name: "demo"})
	require.NoError(t, err)
	require.True(t, created)
	runs, err := second.Runs(t.Context())
	require.NoError(t, err, "the schema is there")
	require.Empty(t, runs)
}

func open(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), pgtest.URL(t), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}
