package backup_test

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkBackup measures what a backup of databases with 1 GB costs: its time, the longest
// time that a process which writes without a break waited for a write, with and without a
// backup, and the most memory that this process had.
func BenchmarkBackup(b *testing.B) {
	const rows, row = 1000, 1 << 20
	d := open(b, filepath.Join(b.TempDir(), "state"))
	d.run("first")
	_, err := d.temporal.ExecContext(b.Context(), "CREATE TABLE filler (data BLOB)")
	require.NoError(b, err)
	data := make([]byte, row)
	for range rows {
		_, _ = rand.Read(data) // never fails
		_, err := d.temporal.ExecContext(b.Context(), "INSERT INTO filler VALUES (?)", data)
		require.NoError(b, err)
	}
	_, err = d.temporal.ExecContext(b.Context(), "PRAGMA wal_checkpoint(TRUNCATE)")
	require.NoError(b, err)
	to := filepath.Join(b.TempDir(), "backup")
	before := memory(b)
	for b.Loop() {
		measure(b, before, func() float64 { return d.backup(to).Seconds },
			d.store.SetMark,
			func(ctx context.Context, i int64) error {
				_, err := d.temporal.ExecContext(ctx, "INSERT INTO marks VALUES (?)", i)
				return err
			})
	}
}

// BenchmarkFleetBackup measures the same for a store in PostgreSQL with 1 GB in one table, and
// how long a restore takes.
func BenchmarkFleetBackup(b *testing.B) {
	f := newFleet(b)
	f.run("first")
	for _, statement := range []string{
		`ALTER TABLE exchanges ALTER request SET STORAGE EXTERNAL`,
		`INSERT INTO exchanges SELECT 'first', 'train', i, 0, 0, 0, 0, -1, 0, decode(repeat(md5(i::text), 32768), 'hex'), '', '' FROM generate_series(1, 2000) i`,
	} {
		_, err := f.db.ExecContext(b.Context(), statement)
		require.NoError(b, err)
	}
	to := filepath.Join(b.TempDir(), "backup")
	before := memory(b)
	for b.Loop() {
		measure(b, before, func() float64 { return f.backup(to).Seconds }, f.store.SetMark)
		began := time.Now()
		require.NoError(b, restoreFleet(b, to, emptyPlace(b)))
		b.ReportMetric(time.Since(began).Seconds(), "s/restore")
		b.ReportMetric(memory(b)-before, "MB/more-memory-of-both")
	}
}

// measure reports what a backup costs while others write. before is the memory that the process
// had, in MB.
func measure(b *testing.B, before float64, backup func() float64, writes ...func(ctx context.Context, i int64) error) {
	b.Helper()
	alone := longest(b, func() { <-time.After(5 * time.Second) }, writes)
	took := 0.0
	beside := longest(b, func() { took = backup() }, writes)
	b.ReportMetric(took, "s/backup")
	b.ReportMetric(float64(beside.Milliseconds()), "ms/longest-write")
	b.ReportMetric(float64(alone.Milliseconds()), "ms/longest-write-alone")
	b.ReportMetric(memory(b)-before, "MB/more-memory")
}

// longest returns the longest time that a write to a database took while work was done.
func longest(b *testing.B, work func(), writes []func(ctx context.Context, i int64) error) (out time.Duration) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	var mutex sync.Mutex
	var writers sync.WaitGroup
	for _, write := range writes {
		writers.Go(func() {
			for i := int64(0); ctx.Err() == nil; i++ {
				began := time.Now()
				if write(ctx, i) != nil {
					return // ctx has ended
				}
				mutex.Lock()
				out = max(out, time.Since(began))
				mutex.Unlock()
			}
		})
	}
	work()
	stop()
	writers.Wait()
	return out
}

var peak = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// memory returns the most memory that this process had, in MB.
func memory(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("there is no /proc here")
	}
	kB, err := strconv.Atoi(string(peak.FindSubmatch(text)[1]))
	require.NoError(b, err)
	return float64(kB) / 1024
}
