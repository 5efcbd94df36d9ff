package store_test

import (
	"bytes"
	"compress/gzip"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/pgtest"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/trace"
)

// recordedCall is a call as the previous release read it. Its bodies may be any bytes.
type recordedCall struct {
	Call              trace.Call
	Request, Response []byte
}

// recordedStore holds all that the previous release read from testdata/release-12.db.
type recordedStore struct {
	Attempts []struct {
		Attempt        trace.Attempt
		Calls, Earlier []recordedCall
		Rewards        []trace.Reward
		Spans          []trace.Span
		Events         []trace.Event
		Refusals       []trace.Refusal
		Output         trace.Output
	}
	Divergences []struct {
		Address string
		Seq     int
		Of      trace.Divergence
	}
	Trials []record.Trial
	Run    record.Run
}

func TestAStoreOfTheReleaseBeforeIsReadAsItWas(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		requireAsBefore(t, open(t, oldStore(t)))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		url := pgtest.URL(t)
		copyStore(t, tables(t, "sqlite://"+oldStore(t)), tables(t, url))
		requireAsBefore(t, open(t, url))
	})
}

// oldStore returns a copy of the store that the previous release wrote.
func oldStore(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	require.NoError(t, os.WriteFile(path, unzip(t, "testdata/release-12.db.gz"), 0o600))
	return path
}

func unzip(t *testing.T, name string) []byte {
	t.Helper()
	file, err := os.ReadFile(name)
	require.NoError(t, err)
	r, err := gzip.NewReader(bytes.NewReader(file))
	require.NoError(t, err)
	content, err := io.ReadAll(r)
	require.NoError(t, err)
	return content
}

// copyStore creates the old schema in another database and copies all rows.
func copyStore(t *testing.T, from, to *sql.DB) {
	t.Helper()
	_, err := to.ExecContext(t.Context(), "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
	require.NoError(t, err)
	provider, err := goose.NewProvider(goose.DialectPostgres, to, os.DirFS("database/migrations"), goose.WithLogger(goose.NopLogger()))
	require.NoError(t, err)
	_, err = provider.UpTo(t.Context(), 12)
	require.NoError(t, err)
	for _, table := range []string{"runs", "rollouts", "attempts", "calls", "rewards", "events", "versions", "spans", "refusals"} {
		rows, err := from.QueryContext(t.Context(), "SELECT * FROM "+table)
		require.NoError(t, err)
		names, err := rows.Columns()
		require.NoError(t, err)
		places := make([]string, len(names))
		for i := range places {
			places[i] = fmt.Sprintf("$%d", i+1)
		}
		insert := fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", table, strings.Join(names, ", "), strings.Join(places, ", "))
		for rows.Next() {
			values, fields := make([]any, len(names)), make([]any, len(names))
			for i := range values {
				fields[i] = &values[i]
			}
			require.NoError(t, rows.Scan(fields...))
			for i := range values {
				if b, ok := values[i].([]byte); ok && b == nil {
					values[i] = []byte{} // SQLite's driver gives nil for an empty blob
				}
			}
			_, err := to.ExecContext(t.Context(), insert, values...)
			require.NoError(t, err, table)
		}
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
	}
}

func requireAsBefore(t *testing.T, s *store.Store) {
	t.Helper()
	ctx := t.Context()
	var want recordedStore
	require.NoError(t, json.Unmarshal(unzip(t, "testdata/release-12.json.gz"), &want))
	require.Len(t, want.Attempts, 7)
	for _, w := range want.Attempts {
		a := w.Attempt.Address
		got, err := s.Trajectories(ctx, []trace.Address{a})
		require.NoError(t, err)
		got[0].KeyHash = ""
		requireEqual(t, w.Attempt, got[0].Attempt)
		exchanges, err := s.Exchanges(ctx, a)
		require.NoError(t, err)
		requireRecordedCalls(t, w.Calls, exchanges)
		requireEqual(t, trace.Calls(exchanges), got[0].History)
		earlier, err := s.EarlierExchanges(ctx, a)
		require.NoError(t, err)
		requireRecordedCalls(t, w.Earlier, earlier)
		// Types whose address has the JSON tag "-" have no address in the file.
		for name, pair := range map[string][2]any{
			"rewards":  {w.Rewards, second(s.Rewards(ctx, a))},
			"spans":    {w.Spans, second(s.Spans(ctx, a))},
			"events":   {w.Events, second(s.Events(ctx, a))},
			"refusals": {w.Refusals, second(s.Refusals(ctx, a))},
			"output":   {w.Output, second(s.Output(ctx, a))},
		} {
			require.JSONEq(t, asJSON(t, pair[0]), asJSON(t, pair[1]), "%s of %s", name, a)
		}
	}
	divergences, err := s.Divergences(ctx, "demo")
	require.NoError(t, err)
	require.Len(t, divergences, len(want.Divergences))
	for i, d := range want.Divergences {
		require.Equal(t, []any{d.Address, d.Seq}, []any{divergences[i].Address.String(), divergences[i].Seq})
		require.JSONEq(t, asJSON(t, d.Of), asJSON(t, divergences[i]))
	}
	require.JSONEq(t, asJSON(t, want.Trials), asJSON(t, second(s.Trials(ctx, "demo", "main"))))
	require.JSONEq(t, asJSON(t, want.Run), asJSON(t, second(s.Run(ctx, "demo"))))

	// A new call continues the calls that were moved.
	a := want.Attempts[len(want.Attempts)-1].Attempt.Address
	exchanges, err := s.Exchanges(ctx, a)
	require.NoError(t, err)
	last := exchanges[len(exchanges)-1]
	next := after(last, len(exchanges), []int32{1}, []int32{2})
	appendCalls(t, s, last, next)
	exchanges, err = s.Exchanges(ctx, a)
	require.NoError(t, err)
	requireEqual(t, next, exchanges[len(exchanges)-1])
}

func requireRecordedCalls(t *testing.T, want []recordedCall, got []trace.Exchange) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, w := range want {
		require.Equal(t, string(w.Request), string(got[i].Request))
		require.Equal(t, string(w.Response), string(got[i].Response))
		if w.Call.Divergence != nil { // its address and seq are not in the JSON
			w.Call.Divergence.Address, w.Call.Divergence.Seq = got[i].Address, got[i].Seq
		}
		requireEqual(t, w.Call, got[i].Call)
		require.True(t, w.Call.Recorded.Equal(got[i].Recorded))
	}
}

func second[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	if string(b) == "null" {
		return "[]"
	}
	return string(b)
}
