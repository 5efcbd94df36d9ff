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
		alone := longest(b, d, func() { <-time.After(5 * time.Second) })
		took := 0.0
		beside := longest(b, d, func() { took = d.backup(to).Seconds })
		b.ReportMetric(took, "s/backup")
		b.ReportMetric(float64(beside.Milliseconds()), "ms/longest-write")
		b.ReportMetric(float64(alone.Milliseconds()), "ms/longest-write-alone")
		b.ReportMetric(memory(b)-before, "MB/more-memory")
	}
}

// longest returns the longest time that a write to a database took while work was done.
func longest(b *testing.B, d directory, work func()) (out time.Duration) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	var mutex sync.Mutex
	var writers sync.WaitGroup
	for _, write := range []func(i int64) error{
		func(i int64) error { return d.store.SetMark(ctx, i) },
		func(i int64) error {
			_, err := d.temporal.ExecContext(ctx, "INSERT INTO marks VALUES (?)", i)
			return err
		},
	} {
		writers.Go(func() {
			for i := int64(0); ctx.Err() == nil; i++ {
				began := time.Now()
				if write(i) != nil {
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
