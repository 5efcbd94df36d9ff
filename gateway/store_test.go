package gateway_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// database is the journal that runs use, in a file of the test's own.
type database struct {
	*store.Store
	t testing.TB
}

func openDatabase(t testing.TB) database {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "journal.db"), zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	return database{s, t}
}

func (d database) Begin(a record.Attempt) {
	got, err := d.BeginAttempt(d.t.Context(), a.RolloutID, a.TaskID, a.Terms, a.KeyHash)
	require.NoError(d.t, err)
	require.Equal(d.t, a.Address, got)
}

// Attempt dates the attempt by the clock of the tests instead of the store's.
func (d database) Attempt(ctx context.Context, address record.Address) (record.Attempt, error) {
	a, err := d.Store.Attempt(ctx, address)
	a.Begun = start
	return a, err
}

func (d database) Seal(address record.Address, outcome record.Outcome) {
	require.NoError(d.t, d.SealAttempt(d.t.Context(), record.Attempt{Address: address, Outcome: outcome}))
}

func TestTheStoreKeepsTheContractOfAJournal(t *testing.T) {
	t.Parallel()
	testJournal(t, func() journalUnderTest { return openDatabase(t) })
}

func TestADialogGoesOnFromTheStoreAfterEveryTurn(t *testing.T) {
	t.Parallel()
	d := openDatabase(t)
	s := newTestEnv(t, nil, func(c *gateway.Config) { c.Journal = d })
	d.Begin(s.attempts[address])
	s.replies = [][]int32{
		say(int32(32+'1'), tokenizer.End), say("2", tokenizer.End), say("3", tokenizer.End),
	}
	turns := `{"role":"user","content":"` + "\\u0000\\ud800" + `"}`
	for _, reply := range []string{"1", "2", "3"} {
		a := s.chat(t, `{"messages":[`+turns+`]}`)
		require.Equal(t, 200, a.status, a.body)
		s.restart(t)
		turns += `,{"role":"assistant","content":"` + reply + `"},{"role":"user","content":"?"}`
	}
	calls, err := d.Exchanges(t.Context(), address)
	require.NoError(t, err)
	require.Len(t, calls, 3)
	for i, c := range calls {
		require.Equal(t, i-1, c.Parent)
		require.Equal(t, s.requests()[i].Prompt, c.Prompt)
	}
	require.Len(t, record.Merge(record.Calls(calls)), 1)
}
