package workers_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// refused runs a process that must end by itself, long before it would give up waiting,
// and returns its log.
func refused(t *testing.T, args ...string) string {
	t.Helper()
	var log strings.Builder
	began := time.Now()
	require.Equal(t, workers.ExitFailed, workers.Run(t.Context(), append(args, "--wait", "5m"), &log))
	require.Less(t, time.Since(began), time.Minute, log.String())
	return log.String()
}

// paired returns a store and its directory of blobs, as `migrate` leaves them.
func paired(t *testing.T) (database, blobs string) {
	t.Helper()
	dir := t.TempDir()
	database, blobs = filepath.Join(dir, "store.db"), filepath.Join(dir, "blobs")
	r, err := fleet.Open(t.Context(), database, blobs, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, r.Migrate(t.Context(), false))
	require.NoError(t, r.Close())
	return database, blobs
}

func TestAProcessWithOtherBlobsIsRefused(t *testing.T) {
	t.Parallel()
	database, blobs := paired(t)
	_, others := paired(t)
	empty := filepath.Join(t.TempDir(), "empty")
	for _, command := range []string{"gateway", "sampler", "gpu", "cpu", "page", "migrate"} {
		require.Contains(t, refused(t, command, "--store", database, "--blobs", others), "has the blobs of another store", command)
		require.Contains(t, refused(t, command, "--store", database, "--blobs", empty), "no file", command)
	}
	id, err := os.ReadFile(filepath.Join(blobs, "store"))
	require.NoError(t, err)
	// What the message says to write lets it start.
	require.Contains(t, refused(t, "gateway", "--store", database, "--blobs", empty), "`echo "+strings.TrimSpace(string(id))+" > "+empty+"/store`")
	require.NoError(t, os.WriteFile(filepath.Join(empty, "store"), id, 0o600))
	r := begin(t, "gateway", "--store", database, "--blobs", empty)
	r.log.await(t, `"msg":"started"`)
	r.stop()
	require.Zero(t, <-r.code)
	// A new store does not take over blobs of another one.
	require.NoError(t, os.Mkdir(filepath.Join(others, "ab"), 0o700))
	require.Contains(t, refused(t, "migrate", "--store", filepath.Join(t.TempDir(), "new.db"), "--blobs", others), "has blobs, and the store is new")
}

func TestAStoreThatCantBeUsedEndsAProcessAtOnce(t *testing.T) {
	t.Parallel()
	database, blobs := paired(t)
	require.Contains(t, refused(t, "gateway", "--store", "host=db password=hunter22", "--blobs", blobs), "form host=")
	log := refused(t, "gateway", "--store", "mysql://f:hunter22@db/f?password=hunter22", "--blobs", blobs)
	require.Contains(t, log, "mysql: is not a scheme")
	require.NotContains(t, log, "hunter22")
	db, err := sql.Open("sqlite", database)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "UPDATE goose_db_version SET version_id = 9999 WHERE version_id > 0")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	for _, command := range []string{"gateway", "sampler", "gpu", "cpu", "page", "migrate"} {
		require.Contains(t, refused(t, command, "--store", database, "--blobs", blobs), "it has schema 9999, of a newer release", command)
	}
}

func TestOnlyMigrateMakesAStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log strings.Builder
	args := []string{"gateway", "--store", filepath.Join(dir, "none.db"), "--blobs", filepath.Join(dir, "blobs"), "--wait", "100ms"}
	require.Equal(t, workers.ExitFailed, workers.Run(t.Context(), args, &log))
	require.Contains(t, log.String(), "no store at "+dir+"/none.db: `fulgurite-worker migrate --store "+dir+"/none.db --blobs "+dir+"/blobs` makes it")
	require.NoFileExists(t, filepath.Join(dir, "none.db"))
}

func TestARestoredStoreIsMendedBeforeProcessesStart(t *testing.T) {
	t.Parallel()
	database, blobs := paired(t)
	s, err := store.Open(t.Context(), database, nil)
	require.NoError(t, err)
	require.NoError(t, s.SetRestored(t.Context()))
	for _, command := range []string{"gateway", "sampler", "gpu", "cpu", "page"} {
		require.Contains(t, refused(t, command, "--store", database, "--blobs", blobs), "`fulgurite-worker mend --store "+database+" --blobs "+blobs+"` lets them go on", command)
	}
	require.NoError(t, s.SetMended(t.Context()))
	require.NoError(t, s.Close())
	r := begin(t, "gateway", "--store", database, "--blobs", blobs)
	r.log.await(t, `"msg":"started"`)
	r.stop()
	require.Zero(t, <-r.code)
}
