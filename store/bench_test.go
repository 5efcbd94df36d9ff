package store_test

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/internal/pgtest"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

func benchmarkEach(b *testing.B, bench func(b *testing.B, s *store.Store)) {
	b.Run("sqlite", func(b *testing.B) { bench(b, open(b, filepath.Join(b.TempDir(), "store.db"))) })
	b.Run("postgres", func(b *testing.B) { bench(b, open(b, pgtest.URL(b))) })
}

// One iteration is one call of 100 new tokens, committed.
func BenchmarkAppendCall(b *testing.B) {
	benchmarkEach(b, func(b *testing.B, s *store.Store) {
		for round, writers := range []int{1, 32} {
			b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
				addresses := make([]record.Address, writers)
				for i := range addresses {
					addresses[i] = begin(b, s, rollout(round, i))
				}
				var left atomic.Int64
				left.Store(int64(b.N))
				var g errgroup.Group
				b.ResetTimer()
				for _, a := range addresses {
					g.Go(func() error {
						for seq := 0; left.Add(-1) >= 0; seq++ {
							c := call(a, seq, make([]int32, 80), make([]int32, 20))
							if err := s.AppendCall(b.Context(), &c); err != nil {
								return err
							}
						}
						return nil
					})
				}
				require.NoError(b, g.Wait())
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			})
		}
	})
}

// One iteration reads a step of 128 attempts with six calls each.
func BenchmarkTrajectories(b *testing.B) {
	benchmarkEach(b, func(b *testing.B, s *store.Store) {
		addresses := make([]record.Address, 128)
		for i := range addresses {
			addresses[i] = begin(b, s, rollout(i/8, i%8))
			appendCalls(b, s, conversation(addresses[i], 6)...)
		}
		for b.Loop() {
			_, err := s.Trajectories(b.Context(), addresses)
			require.NoError(b, err)
		}
	})
}
