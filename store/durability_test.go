package store_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/database"
)

// childURL is the environment variable that turns this test binary into a
// process that writes until it is killed.
const childURL = "STORE_TEST_CHILD"

func isConflict(err error) bool { return errors.Is(err, record.ErrConflict) }

// The child prints what was acknowledged. After kill -9, all of it must be on record with
// exactly the same tokens. This is done twice.
func TestKilledProcessLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		s := open(t, url)
		for range 2 {
			acknowledged := runAndKill(t, url, 300)
			require.GreaterOrEqual(t, len(acknowledged), 300)
			for _, line := range acknowledged {
				requireRecorded(t, s, line)
			}
		}
		all, err := s.Attempts(t.Context(), "demo", record.Train, 3)
		require.NoError(t, err)
		var latest int
		for _, a := range all {
			latest = max(latest, a.Attempt)
			calls, err := s.Exchanges(t.Context(), a.Address)
			require.NoError(t, err)
			require.Len(t, calls, a.Calls, "a call and its count are one commit")
		}
		require.Equal(t, 2, latest, "the second child began anew where the first one was")
	})
}

// runAndKill returns the lines that the child wrote before it was killed.
func runAndKill(t *testing.T, url string, lines int) []string {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), childURL+"="+url)
	pipe, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	var out []string
	for scanner := bufio.NewScanner(pipe); scanner.Scan(); {
		if out = append(out, scanner.Text()); len(out) == lines {
			require.NoError(t, c.Process.Kill())
		}
	}
	require.Error(t, c.Wait(), "the child was killed")
	return out
}

func requireRecorded(t *testing.T, s *store.Store, line string) {
	t.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	address, seqText, _ := strings.Cut(rest, " ")
	a, err := record.ParseAddress(address)
	require.NoError(t, err, line)
	if verb == "sealed" {
		got, err := s.Attempt(t.Context(), a)
		require.NoError(t, err)
		require.Equal(t, record.OutcomeCompleted, got.Outcome)
		return
	}
	require.Equal(t, "called", verb, line)
	var seq int
	_, err = fmt.Sscan(seqText, &seq)
	require.NoError(t, err)
	calls, err := s.Exchanges(t.Context(), a)
	require.NoError(t, err)
	require.Greater(t, len(calls), seq)
	requireEqual(t, conversation(a, seq+1)[seq], calls[seq])
}

// conversation returns the calls that the child writes and the parent expects.
func conversation(a record.Address, calls int) []record.Exchange {
	out := []record.Exchange{call(a, 0, []int32{int32(a.Sample), 1, 2}, []int32{3, 4})}
	for i := 1; i < calls; i++ {
		out = append(out, after(out[i-1], i, []int32{int32(i)}, []int32{5, 6}))
	}
	return out
}

// writeUntilKilled is the child process. It returns only if a write fails.
func writeUntilKilled(url string) error {
	ctx := context.Background()
	s, err := store.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for w := range 8 {
		g.Go(func() error {
			for task := 0; ; task++ {
				if err := writeAttempt(ctx, s, rollout(task, w)); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

func writeAttempt(ctx context.Context, s *store.Store, id record.RolloutID) error {
	a, err := s.BeginAttempt(ctx, id, "x", terms, "")
	if err != nil {
		return err
	}
	for _, c := range conversation(a, 6) {
		if err := s.AppendCall(ctx, &c); err != nil {
			return err
		}
		fmt.Println("called", a, c.Seq)
	}
	if err := s.SealAttempt(ctx, record.Attempt{Address: a, Outcome: record.OutcomeCompleted}); err != nil {
		return err
	}
	fmt.Println("sealed", a)
	return nil
}

// A refused promotion has already created its pointer; the pointer must be undone, too.
func TestFailedWriteIsUndoneWhole(t *testing.T) {
	t.Parallel()
	url := filepath.Join(t.TempDir(), "store.db")
	s := open(t, url)
	require.NoError(t, s.PutStep(t.Context(), record.Step{Run: "demo", Policy: "main", Step: 1}))
	refused := s.Promote(t.Context(), record.Promotion{Run: "demo", Policy: "main", DecisionID: "d", Version: 2, Previous: 1})
	require.ErrorIs(t, refused, record.ErrConflict)
	var pointers, steps int
	require.NoError(t, tables(t, "sqlite://"+url).QueryRowContext(t.Context(),
		"SELECT (SELECT COUNT(*) FROM promoted), (SELECT COUNT(*) FROM steps)").Scan(&pointers, &steps))
	require.Equal(t, []int{0, 1}, []int{pointers, steps})
}

// holdFile takes SQLite's write lock, as another process would.
func holdFile(t *testing.T, path string) (release func()) {
	t.Helper()
	conn, err := tables(t, "sqlite://"+path).Conn(t.Context())
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	return func() {
		_, err := conn.ExecContext(t.Context(), "COMMIT")
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
}

// A caller that gives up does not affect others, and its write is not done if it had not
// begun.
func TestCallerThatGivesUpLeavesTheWriterWorking(t *testing.T) {
	t.Parallel()
	url := filepath.Join(t.TempDir(), "store.db")
	s := open(t, url)
	a := begin(t, s, rollout(0, 0))
	release := holdFile(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	var g errgroup.Group
	for i := range 10 {
		g.Go(func() error {
			c := call(a, i, []int32{1}, nil)
			return s.AppendCall(ctx, &c)
		})
	}
	cancel()
	require.ErrorIs(t, g.Wait(), context.Canceled)
	release()
	appendCalls(t, s, call(a, 10, []int32{1}, nil))
}

// Waiting for the disk is not worthwhile for a write that only has to survive a killed
// process.
func TestWhatEndsAPieceOfWorkIsSynced(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	last := store.LastDurability(s)
	a := begin(t, s, rollout(0, 0))
	require.Equal(t, database.SurvivesKill, last())
	appendCalls(t, s, call(a, 0, []int32{1}, nil))
	require.Equal(t, database.SurvivesKill, last())
	require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted}))
	require.Equal(t, database.SurvivesPowerLoss, last())
	begin(t, s, rollout(0, 1))
	require.Equal(t, database.SurvivesKill, last())
	_, _, err := s.PutVersion(t.Context(), model.Version{})
	require.NoError(t, err)
	require.Equal(t, database.SurvivesPowerLoss, last())
}

func TestStoreIsThereAfterReopening(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		s, err := store.Open(t.Context(), url, nil)
		require.NoError(t, err)
		require.NoError(t, s.Migrate(t.Context()))
		a := begin(t, s, rollout(0, 0))
		want := conversation(a, 3)
		appendCalls(t, s, want...)
		require.NoError(t, s.Close())
		_, err = s.BeginAttempt(t.Context(), rollout(0, 0), "x", terms, "")
		require.Error(t, err, "a closed store takes nothing")

		got, err := open(t, url).Exchanges(t.Context(), a)
		require.NoError(t, err)
		requireEqual(t, want, got)
	})
}

func TestManyMayMigrateAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	var g errgroup.Group
	for range 6 {
		s, err := store.Open(t.Context(), path, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		g.Go(func() error { return s.Migrate(t.Context()) })
	}
	require.NoError(t, g.Wait())
}

func TestFileNamesHoldNoOptions(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b?mode=memory&#%41", "store.db")
	begin(t, open(t, "sqlite://"+path), rollout(0, 0))
	require.FileExists(t, path)
}

func TestWhatIsNoStoreIsRefused(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "sqlite://", ":memory:", "mysql://host/db", "postgres://127.0.0.1:1/none?connect_timeout=1"} {
		_, err := store.Open(t.Context(), url, nil)
		require.Error(t, err, url)
	}
}
