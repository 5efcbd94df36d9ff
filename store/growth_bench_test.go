package store_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// dialog is an attempt whose every request repeats what was said before: 40 KB of
// instructions and tools, and about 600 bytes more with each turn.
type dialog struct {
	random   *rand.Rand
	messages []map[string]any
	tools    string
	last     record.Exchange
}

func newDialog(seed uint64) *dialog {
	d := &dialog{random: rand.New(rand.NewPCG(seed, 1))}
	d.messages = []map[string]any{{"role": "system", "content": d.text(28_000)}}
	d.tools = d.text(12_000)
	return d
}

func (d *dialog) text(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString([]string{"the", "river", "of", "tokens", "runs", "quite", "deep", "and", "never", "stops"}[d.random.IntN(10)])
		fmt.Fprintf(&b, "%x ", d.random.IntN(1<<16))
	}
	return b.String()
}

// next returns the next call: 8,000 prompt tokens at first, and 120 more with each call.
func (d *dialog) next(t testing.TB, a record.Address, seq int) record.Exchange {
	d.messages = append(d.messages, map[string]any{"role": "user", "content": d.text(300)})
	request, err := json.Marshal(map[string]any{"model": "m", "messages": d.messages, "tools": []any{map[string]any{"type": "function", "description": d.tools}}})
	require.NoError(t, err)
	said := d.text(250)
	d.messages = append(d.messages, map[string]any{"role": "assistant", "content": said})
	response, err := json.Marshal(map[string]any{"id": "chatcmpl-1", "choices": []any{map[string]any{"message": map[string]any{"role": "assistant", "content": said}}}})
	require.NoError(t, err)
	var c record.Exchange
	if seq == 0 {
		c = call(a, seq, make([]int32, 8000), make([]int32, 60))
	} else {
		c = after(d.last, seq, make([]int32, 60), make([]int32, 60))
	}
	c.Request, c.Response = request, response
	d.last = c
	return c
}

// One iteration is an attempt of the given number of turns. The size of the file is
// measured after the store is closed.
func BenchmarkLongAttempt(b *testing.B) {
	for _, turns := range []int{25, 50, 100} {
		b.Run(fmt.Sprintf("turns=%d", turns), func(b *testing.B) {
			var size, appended float64
			for range b.N {
				b.StopTimer()
				path := filepath.Join(b.TempDir(), "store.db")
				s, err := store.Open(b.Context(), path, nil)
				require.NoError(b, err)
				require.NoError(b, s.Migrate(b.Context()))
				a, d := begin(b, s, rollout(0, 0)), newDialog(1)
				for seq := range turns {
					c := d.next(b, a, seq)
					b.StartTimer()
					require.NoError(b, s.AppendCall(b.Context(), &c))
					b.StopTimer()
					appended++
				}
				require.NoError(b, s.Close())
				file, err := os.Stat(path)
				require.NoError(b, err)
				size = float64(file.Size())
				b.StartTimer()
			}
			b.ReportMetric(size, "file-bytes")
			b.ReportMetric(size/float64(turns), "bytes/turn")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/appended, "µs/call")
		})
	}
}
