package store_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// Each request repeats everything before it, beginning with 40 KB.
func TestBodiesOfADialogGrowLinearly(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		s := open(t, url)
		a, d := begin(t, s, rollout(0, 0)), newDialog(1)
		kept, sent := map[int]int{}, 0
		var last record.Exchange
		for seq := range 100 {
			last = d.next(t, a, seq)
			appendCalls(t, s, last)
			sent += len(last.Request)
			row := tables(t, url).QueryRowContext(t.Context(), `SELECT SUM(LENGTH(request)), MAX(cost) FROM exchanges`)
			var bytes, cost int
			require.NoError(t, row.Scan(&bytes, &cost))
			require.LessOrEqual(t, cost, 2*len(last.Request), "what it takes to read one request")
			kept[seq+1] = bytes
		}
		require.Less(t, kept[100], 3*(kept[50]-40_000)+40_000, "%v", kept)
		require.Less(t, kept[100]*20, sent)
		got, err := s.Exchanges(t.Context(), a)
		require.NoError(t, err)
		requireEqual(t, last, got[99])
	})
}

// Several agents take turns. None of their calls continues another's tokens, as it
// happens when the template leaves out thoughts.
func TestBodiesOfAgentsInTurnsAreKeptOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a, agents := begin(t, s, rollout(0, 0)), []*dialog{newDialog(1), newDialog(2), newDialog(3)}
		var want []record.Exchange
		for seq := range 12 {
			c := agents[seq%3].next(t, a, 0)
			c.Seq, c.Key = seq, fmt.Sprint(seq)
			want = append(want, c)
		}
		appendCalls(t, s, want...)
		got, err := s.Exchanges(t.Context(), a)
		require.NoError(t, err)
		requireEqual(t, want, got)
	})
}

// A process may need the bodies of a call that another process wrote.
func TestAnotherProcessContinuesBodies(t *testing.T) {
	t.Parallel()
	eachURL(t, func(t *testing.T, url string) {
		a, d := begin(t, open(t, url), rollout(0, 0)), newDialog(1)
		var want []record.Exchange
		for seq := range 8 {
			want = append(want, d.next(t, a, seq))
			appendCalls(t, open(t, url), want[seq])
		}
		var whole int
		row := tables(t, url).QueryRowContext(t.Context(), `SELECT COUNT(*) FROM exchanges WHERE base < 0`)
		require.NoError(t, row.Scan(&whole))
		require.Equal(t, 1, whole)
		got, err := open(t, url).Exchanges(t.Context(), a)
		require.NoError(t, err)
		requireEqual(t, want, got)
	})
}

func TestAnyBodiesComeBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		task := 0
		rapid.Check(t, func(r *rapid.T) {
			a := begin(t, s, rollout(task, 0))
			task++
			body := rapid.SliceOfN(rapid.SampledFrom([]byte("ab\x00\xff{")), 0, 3000)
			var want []record.Exchange
			for seq := range rapid.IntRange(1, 6).Draw(r, "calls") {
				c := call(a, seq, []int32{int32(seq)}, []int32{1})
				c.Request, c.Response = body.Draw(r, "request"), body.Draw(r, "response")
				if seq > 0 && rapid.Bool().Draw(r, "continues") {
					c.Request = append(append([]byte{}, want[seq-1].Request...), c.Request...)
				}
				want = append(want, c)
			}
			appendCalls(t, s, want...)
			got, err := s.Exchanges(t.Context(), a)
			require.NoError(r, err)
			requireEqual(t, want, got)
		})
	})
}

func TestDamagedBodiesAreNotRead(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"another response": `UPDATE exchanges SET response = CAST('x' AS BLOB) WHERE seq = 0`,
		"another delta":    `UPDATE exchanges SET request = CAST('xyz' AS BLOB) WHERE seq = 1`,
		"a lost base":      `DELETE FROM exchanges WHERE seq = 0`,
		"a lost row":       `DELETE FROM exchanges WHERE seq = 2`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := filepath.Join(t.TempDir(), "store.db")
			s := open(t, url)
			a, d := begin(t, s, rollout(0, 0)), newDialog(1)
			for seq := range 3 {
				appendCalls(t, s, d.next(t, a, seq))
			}
			_, err := tables(t, "sqlite://"+url).ExecContext(t.Context(), damage)
			require.NoError(t, err)
			_, err = s.Exchanges(t.Context(), a)
			require.ErrorIs(t, err, store.ErrBodies)
			calls, err := s.Calls(t.Context(), a)
			require.NoError(t, err, "tokens are apart")
			require.Len(t, calls, 3)
		})
	}
}

func TestAFewCallsOfAnAttemptAreReadAlone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		a := begin(t, s, rollout(0, 0))
		var prompt []int32
		for seq := range 6 {
			c := call(a, seq, append(prompt, int32(10+seq)), []int32{1})
			c.Parent = seq - 1
			c.Request = json.RawMessage(fmt.Sprintf(`{"turns":%q}`, strings.Repeat("said before. ", 400*(seq+1))))
			appendCalls(t, s, c)
			prompt = append(append([]int32{}, c.Prompt...), c.Completion...)
		}
		all, err := s.Exchanges(t.Context(), a)
		require.NoError(t, err)
		some, err := s.ExchangesBetween(t.Context(), a, 3, 5)
		require.NoError(t, err)
		for i, want := range all[3:5] {
			want.Prompt = []int32{int32(13 + i)}
			requireEqual(t, want, some[i])
		}
		require.Len(t, some, 2)
		none, err := s.ExchangesBetween(t.Context(), a, 6, 99)
		require.NoError(t, err)
		require.Empty(t, none)
	})
}
