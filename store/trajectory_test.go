package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// Reads more attempts than one query takes. Earlier attempts, other samples and other
// steps must not be among the results.
func TestTrajectoriesAreThoseAskedForInThatOrder(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *store.Store) {
		var addresses []record.Address
		want := map[record.Address][]record.Call{}
		for i := range 150 {
			id := rollout(i/4, i%4)
			if i%10 == 0 {
				lost := begin(t, s, id)
				appendCalls(t, s, call(lost, 0, []int32{9}, []int32{9}))
			}
			if i%7 == 0 {
				id.Step = 4
			}
			a := begin(t, s, id)
			root := call(a, 0, []int32{1, int32(i)}, []int32{2})
			next := after(root, 1, []int32{3}, []int32{4, 5})
			want[a] = []record.Call{root.Call, next.Call}
			appendCalls(t, s, root, next)
			require.NoError(t, s.PutReward(t.Context(), record.Reward{Address: a, Name: "final", Value: float64(i), Source: "agent"}))
			require.NoError(t, s.SealAttempt(t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: number(float64(i))}))
			if i != 33 {
				addresses = append([]record.Address{a}, addresses...)
			}
		}
		got, err := s.Trajectories(t.Context(), append(addresses, addresses[0]))
		require.NoError(t, err)
		require.Len(t, got, len(addresses)+1)
		requireEqual(t, got[0], got[len(addresses)])
		for i, a := range addresses {
			require.Equal(t, a, got[i].Address)
			requireEqual(t, want[a], got[i].History)
			alone, err := s.Attempt(t.Context(), a)
			require.NoError(t, err)
			requireEqual(t, alone, got[i].Attempt)
			requireEqual(t, []record.Reward{{Address: a, Name: "final", Value: *alone.Reward, Source: "agent"}}, got[i].Rewards)
		}
		none, err := s.Trajectories(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, none)
		absent := addresses[3]
		absent.Attempt = 9
		_, err = s.Trajectories(t.Context(), append(addresses, absent))
		require.ErrorIs(t, err, record.ErrNotFound)
		require.ErrorContains(t, err, absent.String())
	})
}
