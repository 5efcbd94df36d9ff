package store_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// column is a column of a table with a run's name in each row.
type column struct{ table, name, kind string }

// columnsOfRuns lists the columns of all tables that have a column "run", but for the
// tombstones.
func columnsOfRuns(t *testing.T, db *sql.DB, url string) map[string][]column {
	t.Helper()
	query := `SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = current_schema() ORDER BY ordinal_position`
	if strings.HasPrefix(url, "sqlite://") {
		query = `SELECT m.name, p.name, p.type FROM sqlite_master m, pragma_table_info(m.name) p WHERE m.type = 'table' ORDER BY p.cid`
	}
	rows, err := db.QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	all := map[string][]column{}
	for rows.Next() {
		var c column
		require.NoError(t, rows.Scan(&c.table, &c.name, &c.kind))
		all[c.table] = append(all[c.table], c)
	}
	require.NoError(t, rows.Err())
	for table, columns := range all {
		if table == "forgotten" || !slices.ContainsFunc(columns, func(c column) bool { return c.name == "run" }) {
			delete(all, table)
		}
	}
	require.Greater(t, len(all), 20)
	return all
}

// filled is how many rows fill puts into a table.
func filled(table string) int {
	if table == "archives" {
		return 1 // a run has one
	}
	return 3
}

// fill puts rows of a run into a table. Each text and each body is planted.
func fill(t *testing.T, db *sql.DB, columns []column, run string) {
	t.Helper()
	for row := range filled(columns[0].table) {
		names, places, values := []string{}, []string{}, []any{}
		for i, c := range columns {
			names, places = append(names, c.name), append(places, fmt.Sprintf("$%d", i+1))
			switch kind := strings.ToLower(c.kind); {
			case c.name == "run":
				values = append(values, run)
			case kind == "text":
				values = append(values, fmt.Sprintf("planted in %s.%s of %s, %d", c.table, c.name, run, row))
			case kind == "bytea":
				values = append(values, []byte(strings.Repeat(fmt.Sprintf("planted in %s.%s of %s, %d;", c.table, c.name, run, row), 300)))
			case strings.HasPrefix(kind, "double"):
				values = append(values, 0.5)
			default:
				values = append(values, row+len(run))
			}
		}
		_, err := db.ExecContext(t.Context(), `INSERT INTO `+columns[0].table+` (`+strings.Join(names, ", ")+`) VALUES (`+strings.Join(places, ", ")+`)`, values...)
		require.NoError(t, err, columns[0].table)
	}
}

func count(t *testing.T, db *sql.DB, table, run string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM `+table+` WHERE run = $1`, run).Scan(&n))
	return n
}

// endedRun puts a run that has ended on record.
func endedRun(t *testing.T, s *store.Store, name string) record.Run {
	t.Helper()
	_, _, err := s.CreateRun(t.Context(), record.Run{Name: name, WorkflowID: name, ExecutionID: "x"})
	require.NoError(t, err)
	require.NoError(t, s.FinishRun(t.Context(), name, record.Completed, nil))
	r, err := s.Run(t.Context(), name)
	require.NoError(t, err)
	return r
}

var errKilled = errors.New("killed")

func TestAForgottenRunLeavesNothingButItsTombstone(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		s := open(t, url)
		db := tables(t, url)
		all := columnsOfRuns(t, db, url)
		r := endedRun(t, s, "demo")
		endedRun(t, s, "other")
		for _, columns := range all {
			fill(t, db, columns, "demo")
			fill(t, db, columns, "other")
		}
		stone := record.Forgotten{Run: "demo", What: record.ForgottenRun, By: "me", Reason: "asked to", Begun: noon, Report: []byte(`{"a":1}`)}
		_, created, err := s.BeginForgetting(t.Context(), r, stone)
		require.NoError(t, err)
		require.True(t, created)
		_, err = s.Run(t.Context(), "demo")
		require.ErrorIs(t, err, record.ErrNotFound)
		require.ErrorIs(t, err, record.ErrForgotten, "nobody uses a run whose removal has begun")
		r, err = s.RunToForget(t.Context(), "demo")
		require.NoError(t, err)
		require.Equal(t, record.Forgetting, r.Status)
		counts, err := s.RowsOfRun(t.Context(), "demo")
		require.NoError(t, err)
		require.Len(t, counts, len(all), "each table that has rows of runs is known")

		require.NoError(t, s.RemoveRows(t.Context(), "demo"))
		require.NoError(t, s.RemoveRows(t.Context(), "other"), "it is not marked")
		require.NoError(t, s.EndForgetting(t.Context(), stone))
		for table := range all {
			require.Zero(t, count(t, db, table, "demo"), table)
			require.Equal(t, filled(table), count(t, db, table, "other"), table)
		}
		_, err = s.Run(t.Context(), "demo")
		require.ErrorIs(t, err, record.ErrNotFound)
		require.ErrorIs(t, err, record.ErrForgotten)
		require.ErrorContains(t, err, "by me: asked to")
		_, _, err = s.CreateRun(t.Context(), record.Run{Name: "demo", ExecutionID: "y"})
		require.ErrorIs(t, err, record.ErrForgotten)
		stones, err := s.Forgotten(t.Context(), "demo")
		require.NoError(t, err)
		require.Len(t, stones, 1)
		require.False(t, stones[0].Ended.IsZero())

		require.NoError(t, s.Scrub(t.Context(), true))
		if path, ok := strings.CutPrefix(url, "sqlite://"); ok {
			for _, name := range []string{path, path + "-wal"} {
				text, err := os.ReadFile(name)
				require.NoError(t, err)
				require.NotContains(t, string(bytes.ToValidUTF8(text, []byte("?"))), "of demo,", filepath.Base(name))
			}
		}
	})
}

func TestARemovalThatWasKilledIsEndedByTheNext(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		s := open(t, url)
		db := tables(t, url)
		all := columnsOfRuns(t, db, url)
		for i, ended := 0, false; !ended; i++ {
			name := fmt.Sprintf("demo-%d", i)
			r := endedRun(t, s, name)
			for _, columns := range all {
				fill(t, db, columns, name)
			}
			stone := record.Forgotten{Run: name, What: record.ForgottenRun, By: "me"}
			dying, err := store.Open(t.Context(), url, nil)
			require.NoError(t, err)
			store.Dying(dying, i/2, i%2 == 1, errKilled)
			_, _, err = dying.BeginForgetting(t.Context(), r, stone)
			if err == nil {
				err = dying.RemoveRows(t.Context(), name)
			}
			if err == nil {
				err = dying.EndForgetting(t.Context(), stone)
			}
			require.NoError(t, dying.Close())
			if ended = err == nil; !ended {
				require.ErrorIs(t, err, errKilled)
				r, err = s.RunToForget(t.Context(), name)
				if errors.Is(err, record.ErrForgotten) {
					continue // it was killed after its last write
				}
				require.NoError(t, err)
				_, _, err = s.BeginForgetting(t.Context(), r, stone)
				require.NoError(t, err)
				require.NoError(t, s.RemoveRows(t.Context(), name))
				require.NoError(t, s.EndForgetting(t.Context(), stone))
			}
			for table := range all {
				require.Zero(t, count(t, db, table, name), table)
			}
			_, err = s.Run(t.Context(), name)
			require.ErrorIs(t, err, record.ErrForgotten)
		}
	})
}

func TestNothingIsForgottenOfARunThatIsUnderWayOrHasChanged(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		r, _, err := s.CreateRun(t.Context(), record.Run{Name: "demo", ExecutionID: "x"})
		require.NoError(t, err)
		stone := record.Forgotten{Run: "demo", What: record.ForgottenRun, By: "me"}
		_, _, err = s.BeginForgetting(t.Context(), r, stone)
		require.ErrorIs(t, err, record.ErrConflict)
		require.NoError(t, s.FinishRun(t.Context(), "demo", record.Failed, nil))
		_, _, err = s.BeginForgetting(t.Context(), r, stone)
		require.ErrorIs(t, err, record.ErrConflict, "it has ended since")
		_, _, err = s.BeginForgetting(t.Context(), r, record.Forgotten{Run: "none"})
		require.ErrorIs(t, err, record.ErrNotFound)

		r, err = s.Run(t.Context(), "demo")
		require.NoError(t, err)
		for _, what := range []record.ForgottenKind{record.ForgottenTask, record.ForgottenRun} {
			_, _, err = s.BeginForgetting(t.Context(), r, record.Forgotten{Run: "demo", What: what, Task: "t", By: "me"})
			require.NoError(t, err)
			r, err = s.RunToForget(t.Context(), "demo")
			require.NoError(t, err)
			require.ErrorIs(t, s.ReopenRun(t.Context(), r), record.ErrForgotten, "a reset finds it changed")
			if what == record.ForgottenTask { // before it has ended, the run can't be removed
				require.NoError(t, s.EndForgetting(t.Context(), record.Forgotten{Run: "demo", What: what, Task: "t"}))
			}
		}
	})
}

func TestAnEmptyAttemptKeepsItsCountsAndItsReward(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		a, b := begin(t, s, rollout(0, 0)), begin(t, s, rollout(1, 0))
		for _, one := range []record.Address{a, b} {
			appendCalls(t, s, call(one, 0, []int32{1, 2}, []int32{3}))
			require.NoError(t, s.PutEvent(ctx, record.Event{Address: one, Name: "e", Fields: map[string]any{"x": "secret"}}))
			require.NoError(t, s.PutSpans(ctx, one, []record.Span{{Trace: "t", ID: "i", Name: "secret"}}))
			require.NoError(t, s.AddRefusal(ctx, record.Refusal{Address: one, Code: "c", Message: "secret"}))
			require.NoError(t, s.SealAttempt(ctx, record.Attempt{
				Address: one, Outcome: record.OutcomeCompleted, Result: "secret", Verdict: "secret", Error: "secret", Output: record.Output{Stdout: "secret", Stderr: "secret"},
			}))
			require.NoError(t, s.PutReward(ctx, record.Reward{Address: one, Name: "final", Value: 0.25, Source: store.Grader}))
			_, err := s.PutGradingFailure(ctx, one, "secret")
			require.NoError(t, err)
			require.NoError(t, s.PutQuarantine(ctx, record.Quarantine{Run: one.Run, Policy: "main", Step: one.Step, Kind: one.Kind, Task: one.Task, Reason: "secret"}))
		}
		before, err := s.Attempt(ctx, b)
		require.NoError(t, err)
		all, err := s.AttemptsOnTask(ctx, "demo", "task-x")
		require.NoError(t, err)
		require.Equal(t, []record.Address{a, b}, all)

		require.NoError(t, s.EmptyAttempt(ctx, a))
		require.NoError(t, s.EmptyAttempt(ctx, a), "a second time too")
		got, err := s.Attempt(ctx, a)
		require.NoError(t, err)
		require.Equal(t, 1, got.Calls)
		require.Equal(t, 1, got.Tokens)
		require.Equal(t, record.OutcomeCompleted, got.Outcome)
		require.Equal(t, number(0.25), got.Reward)
		require.Equal(t, store.ForgottenError, got.Error)
		require.Empty(t, got.Result+got.Verdict)
		output, err := s.Output(ctx, a)
		require.NoError(t, err)
		require.Zero(t, output)
		x, err := s.Exchanges(ctx, a)
		require.NoError(t, err)
		require.Empty(t, x)
		events, err := s.Events(ctx, a)
		require.NoError(t, err)
		require.Empty(t, events)
		spans, err := s.Spans(ctx, a)
		require.NoError(t, err)
		require.Empty(t, spans)
		refusals, err := s.Refusals(ctx, a)
		require.NoError(t, err)
		require.Empty(t, refusals)
		quarantines, err := s.Quarantines(ctx, "demo", "main")
		require.NoError(t, err)
		require.Equal(t, []string{store.ForgottenError, "secret"}, []string{quarantines[0].Reason, quarantines[1].Reason})
		require.NoError(t, s.EmptyQuarantines(ctx, "demo", 1), "no task with this index was quarantined")
		require.NoError(t, s.EmptyQuarantines(ctx, "demo", 0))
		quarantines, err = s.Quarantines(ctx, "demo", "main")
		require.NoError(t, err)
		require.Equal(t, []string{store.ForgottenError, store.ForgottenError}, []string{quarantines[0].Reason, quarantines[1].Reason})

		after, err := s.Attempt(ctx, b)
		require.NoError(t, err)
		requireEqual(t, before, after)
		x, err = s.Exchanges(ctx, b)
		require.NoError(t, err)
		require.Len(t, x, 1)
	})
}

func TestRunsNameTheFilesThatTheyNeed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		digest := func(n int) string { return fmt.Sprintf("sha256:%064x", n) }
		for i, name := range []string{"demo", "other"} {
			n := 100 * i
			_, _, err := s.CreateRun(ctx, record.Run{
				Name: name, Spec: []byte(fmt.Sprintf(`{"prompts":{},"codec":%q}`, digest(n))), Splits: map[record.Kind]record.Split{record.Train: {Digest: digest(n + 1)}},
			})
			require.NoError(t, err)
			for v := range 2 {
				_, _, err = s.PutVersion(ctx, model.Version{
					VersionID: model.VersionID{Run: name, Policy: "main", Number: v}, Parent: v - 1, Manifest: digest(n + 10 + v), Weights: digest(n + 12), Scores: digest(n + 13), Batch: digest(n + 20),
				})
				require.NoError(t, err)
			}
			require.NoError(t, s.MarkCollected(ctx, name, "main", func(record.Holdings) []int { return []int{0} }))
			require.NoError(t, s.PutProgress(ctx, model.Progress{VersionID: model.VersionID{Run: name, Policy: "main", Number: 2}, Manifest: digest(n + 14)}))
			require.NoError(t, s.NoteFile(ctx, model.VersionID{Run: name, Policy: "main", Number: 2}, digest(n+15)))
			require.NoError(t, s.PutPromptVersion(ctx, record.PromptVersion{Run: name, Prompts: digest(n + 16)}))
			of := terms
			of.Prompts = digest(n + 17)
			_, err = s.BeginAttempt(ctx, record.RolloutID{Run: name, Kind: record.Train, Step: 1}, "t", of, "k")
			require.NoError(t, err)
		}
		own, err := s.FilesOf(ctx, "demo")
		require.NoError(t, err)
		require.ElementsMatch(t, []string{digest(11), digest(14)}, own.Manifests)
		require.Equal(t, []string{digest(10)}, own.Collected)
		require.ElementsMatch(t, []string{digest(20)}, own.Batches)
		require.Subset(t, own.Others, []string{digest(0), digest(1), digest(10), digest(12), digest(13), digest(15), digest(16), digest(17)})
		var others record.NamedFiles
		require.NoError(t, s.WhileOthersNeed(ctx, "demo", nil, func(f record.NamedFiles) error { others = f; return nil }))
		require.ElementsMatch(t, []string{digest(111), digest(114)}, others.Manifests)
		require.Equal(t, []string{digest(110)}, others.Collected)
		require.ElementsMatch(t, []string{digest(120)}, others.Batches)
		require.Subset(t, others.Others, []string{digest(100), digest(101), digest(110), digest(112), digest(113), digest(115), digest(116)})
		prompts, err := s.PromptsOfOthers(ctx, "demo")
		require.NoError(t, err)
		require.Equal(t, []string{digest(117)}, prompts)
	})
}
