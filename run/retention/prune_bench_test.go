package retention_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/pgtest"
	"github.com/fulgurite/fulgurite/internal/wait"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/retention"
	"github.com/fulgurite/fulgurite/store"
)

var largeStoreCalls = flag.Int("large-store-calls", 1_000_000, "how many calls the store of BenchmarkRemovalsFromALargeStore has")

// BenchmarkRemovalsFromALargeStore measures how long a writer with its own connection, which
// appends calls without a break, waits at most and at the 99th percentile: beside nothing,
// while a run is pruned and then forgotten, and while the store is scrubbed. The store has
// 1,000,000 calls with their bodies (-large-store-calls), a tenth of them of this run, and
// 10,000 versions of 100 other runs. It also measures the most memory of the process. It
// takes minutes, and 3 GB of disk for each million of calls, and needs Linux.
func BenchmarkRemovalsFromALargeStore(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) {
		for range b.N {
			path := filepath.Join(b.TempDir(), "store.db")
			removeFromALargeStore(b, path, "sqlite", path)
		}
	})
	b.Run("postgres", func(b *testing.B) {
		for range b.N {
			url := pgtest.URL(b)
			removeFromALargeStore(b, url, "pgx", url)
		}
	})
}

// likeSQLite are functions of SQLite for PostgreSQL.
var likeSQLite = []string{
	`CREATE FUNCTION randomblob(n int) RETURNS bytea LANGUAGE sql VOLATILE AS $$ SELECT substring(decode(repeat(md5(random()::text), n / 16 + 1), 'hex') FROM 1 FOR n) $$`,
	`CREATE FUNCTION hex(b bytea) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT upper(encode(b, 'hex')) $$`,
}

// removeFromALargeStore fills the empty store at url through a driver of database/sql, and measures removals from it.
func removeFromALargeStore(b *testing.B, url, driver, source string) {
	const runs, versions = 100, 100 // versions of each run
	calls := *largeStoreCalls
	r := openAt(b, url, b.TempDir())
	r.run("ended", nil, 30)
	r.finish("ended")
	db, err := sql.Open(driver, source)
	require.NoError(b, err)
	db.SetMaxOpenConns(1)
	execute := func(statement string, args ...any) {
		_, err := db.ExecContext(b.Context(), statement, args...)
		require.NoError(b, err)
	}
	fill := func(rows int, statement string) {
		const each = 500_000 // rows of a transaction
		for first := 0; first < rows; first += each {
			execute(fmt.Sprintf(`WITH RECURSIVE numbers (value) AS (SELECT %d UNION ALL SELECT value + 1 FROM numbers WHERE value < %d) `, first, min(rows, first+each)-1) + statement)
			if driver == "sqlite" {
				execute("PRAGMA wal_checkpoint(TRUNCATE)") // rows are not filled in like this in practice
			}
		}
	}
	if driver != "sqlite" {
		for _, function := range likeSQLite {
			execute(function)
		}
	}
	fill(runs, `INSERT INTO runs SELECT 'old-' || value, '', '', '', hex(randomblob(2000)), '{}', 'completed', '', 1, 1 FROM numbers`)
	execute("BEGIN")
	for i := range runs * versions {
		text := fmt.Appendf(nil, `{"files":{"weights":{"digest":"sha256:%064x"},"mean":{"digest":"sha256:%064x"},"variance":{"digest":"sha256:%064x"}},"n":%d}`, 3*i, 3*i+1, 3*i+2, i)
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(text))
		path, err := r.blobs.Path(digest)
		require.NoError(b, err)
		require.NoError(b, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(b, os.WriteFile(path, text, 0o600))
		execute(`INSERT INTO versions (run, policy, number, parent, manifest, weights, batch, fingerprint, metrics, created, scores)
VALUES ($1, $2, $3, $4, $5, $6, $7, '', hex(randomblob(300)), 1, '')`, fmt.Sprint("old-", i/versions), model.DefaultPolicy, i%versions, i%versions-1, digest, fmt.Sprintf("sha256:%064x", 3*i), fmt.Sprintf("sha256:%064x", 1<<40+i))
	}
	execute("COMMIT")
	fill(runs*versions, `INSERT INTO batches (run, policy, step, digest, sequences, tokens, trained, metrics) SELECT 'old-' || (value / 100), 'main', value % 100, 'sha256:' || lower(hex(randomblob(32))), 0, 0, 0, hex(randomblob(300)) FROM numbers`)
	fill(runs*versions, `INSERT INTO steps (run, policy, step, batch, metrics, at) SELECT run, policy, step, digest, metrics, 0 FROM batches WHERE run LIKE 'old-%'`)
	fill(calls/100, `INSERT INTO attempts (run, kind, step, task, sample, attempt, task_id, policy, version, terms, key_hash, outcome, result, error, calls, tokens, begun, ended, stdout)
SELECT 'ended', 'train', value / 100, value % 100, 0, 1, 'task', 'main', 0, '{}', '', 'completed', '', '', 10, 100, 1, 1, hex(randomblob(500)) FROM numbers`)
	run := fmt.Sprintf(`CASE WHEN value < %d THEN 'ended' ELSE 'old-' || (value / %d) END`, calls/10, max(1, calls/runs))
	fill(calls, `INSERT INTO exchanges SELECT `+run+`, 'train', value / 1000, value / 10 % 100, 0, 1, value % 10, -1, 0, randomblob(400), randomblob(200), randomblob(1) FROM numbers`)
	fill(calls, `INSERT INTO calls (run, kind, step, task, sample, attempt, seq, policy, id, parent, agent, version, weights, key, occurrence, prompt, completion, logprobs, extent, chain, seed, temperature, finish, parse_error,
started, duration, replayed_from, exchange, recorded, diverged_from, diverged_seq, difference, api, form, drift, server, partly_read)
SELECT `+run+`, 'train', value / 1000, value / 10 % 100, 0, 1, value % 10, 'main', 'id', -1, '', 0, '', value, 0, randomblob(100), randomblob(50), randomblob(200), 0, '', 0, 1, 'stop', '', 0, 0, 0, '', 0, 0, 0, '', '', '', 0, '', 0 FROM numbers`)
	if driver != "sqlite" {
		execute("VACUUM ANALYZE")
	}
	require.NoError(b, db.Close())
	other, err := store.Open(b.Context(), url, nil)
	require.NoError(b, err)

	during := func(what string, do func() error) {
		done := make(chan error, 1)
		resetPeak(b)
		began := time.Now()
		go func() { done <- do() }()
		waits, err := appendUntil(b.Context(), other, what, done)
		require.NoError(b, err)
		took := time.Since(began)
		slices.Sort(waits)
		b.ReportMetric(milliseconds(waits[len(waits)-1]), "ms-longest-"+what)
		b.ReportMetric(milliseconds(waits[len(waits)*99/100]), "ms-p99-"+what)
		b.ReportMetric(took.Seconds(), "s-"+what)
		b.ReportMetric(peak(b), "MB-peak-"+what)
		b.Logf("%s: %d calls beside it; longest %v, then %v", what, len(waits), waits[len(waits)-1], waits[max(0, len(waits)-6):len(waits)-1])
	}
	during("nothing", func() error { wait.For(b.Context(), 10*time.Second); return nil })
	f := r.forgetter()
	during("prune", func() error {
		_, err := f.Prune(b.Context(), pruneAll("ended"), "me", false, func(retention.PruneReport) error { return nil })
		return err
	})
	during("forget", func() error {
		_, err := f.ForgetRun(b.Context(), "ended", "me", "")
		return err
	})
	during("scrub", func() error { return r.store.Scrub(b.Context(), false) })
	require.NoError(b, other.Close())
}

// appendUntil appends calls of a run under way without a break until done has something. It
// returns how long each took.
func appendUntil(ctx context.Context, s *store.Store, what string, done <-chan error) (waits []time.Duration, err error) {
	const perAttempt = 10
	var a record.Address
	body := make([]byte, 300)
	for n := 0; ; n++ {
		select {
		case err := <-done:
			return waits, err
		default:
		}
		if n%perAttempt == 0 {
			id := record.RolloutID{Run: "live-" + what, Kind: record.Train, Step: n / 1000, Task: n / perAttempt % 100}
			if a, err = s.BeginAttempt(ctx, id, "task", record.Terms{Policy: model.DefaultPolicy, Graded: true}, "k"); err != nil {
				return nil, err
			}
		}
		at := time.Now()
		err := s.AppendCall(ctx, &record.Exchange{
			Call:    record.Call{Address: a, Seq: n % perAttempt, ID: "c", Parent: -1, Policy: model.DefaultPolicy, Key: fmt.Sprint(n), Prompt: make([]int32, 80), Completion: make([]int32, 20), Logprobs: make([]float32, 20)},
			Request: body, Response: body,
		})
		if err != nil {
			return nil, err
		}
		waits = append(waits, time.Since(at))
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// resetPeak makes peak count from now on (https://docs.kernel.org/filesystems/proc.html).
func resetPeak(b *testing.B) {
	debug.FreeOSMemory()
	require.NoError(b, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0))
}

// peak returns the most memory that this process had, in MB.
func peak(b *testing.B) float64 {
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(b, err)
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kilobytes, err := strconv.ParseFloat(strings.Fields(after)[0], 64)
	require.NoError(b, err)
	return kilobytes / 1000
}
