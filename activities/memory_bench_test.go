package activities_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// Each iteration is a step with plain GRPO: 128 groups of 8 attempts of 20 calls. Each
// request has 40 KB and 8,000 tokens.
func BenchmarkAssignCredit(b *testing.B) {
	const groups, samples, calls = 128, 8, 20
	w := newTestEnv(b)
	s := w.spec()
	s.Training.TasksPerStep, s.Training.SamplesPerTask = groups, samples
	w.prepare(s)
	in := activities.AssignCreditInput{Run: "demo", Policy: model.DefaultPolicy, Step: 1}
	var g errgroup.Group
	g.SetLimit(8)
	for task := range groups {
		of := activities.Group{Task: task}
		for sample := range samples {
			of.Attempts, of.Rewards = append(of.Attempts, 1), append(of.Rewards, float64(sample%2))
			g.Go(func() error { return w.longAttempt(task, sample, calls) })
		}
		in.Groups = append(in.Groups, of)
	}
	require.NoError(b, g.Wait())
	runtime.GC()
	peak := watchHeap()
	b.ReportAllocs()
	b.ResetTimer()
	for step := range b.N {
		if step > 0 {
			b.Fatal("one iteration: the batch of the step stands")
		}
		_, err := do[activities.AssignCreditResult](b, w.coordinator.AssignCredit, in)
		require.NoError(b, err)
	}
	b.ReportMetric(float64(peak())/1e6, "peak-MB")
}

func (w *testEnv) longAttempt(task, sample, calls int) error {
	id := record.RolloutID{Run: "demo", Kind: record.Train, Step: 1, Task: task, Sample: sample}
	a, err := w.store.BeginAttempt(w.t.Context(), id, "a", record.Terms{Policy: model.DefaultPolicy, Temperature: 1}, "key")
	if err != nil {
		return err
	}
	var said strings.Builder
	said.WriteString(strings.Repeat(fmt.Sprintf("task %d, sample %d: what is to be done? ", task, sample), 1100)[:40_000])
	prompt := make([]int32, 8000)
	for seq := range calls {
		fmt.Fprintf(&said, " and in turn %d something else is said", seq)
		c := callOf(a, seq, "a: "+said.String()[:20])
		c.Request, err = json.Marshal(map[string]any{"model": "m", "messages": []any{map[string]any{"role": "user", "content": said.String()}}})
		if err != nil {
			return err
		}
		c.Parent, c.Prompt = seq-1, append(prompt[:len(prompt):len(prompt)], 1, 2, 3)
		prompt = append(c.Prompt[:len(c.Prompt):len(c.Prompt)], c.Completion...)
		if err := w.store.AppendCall(w.t.Context(), &c); err != nil {
			return err
		}
	}
	reward := float64(sample % 2)
	return w.store.SealAttempt(w.t.Context(), record.Attempt{Address: a, Outcome: record.OutcomeCompleted, Reward: &reward})
}

// watchHeap begins to watch the size of the heap. The returned function ends that and
// returns by how much the largest observed size exceeded the first one.
func watchHeap() func() uint64 {
	read := func() uint64 {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	first, most, stop := read(), uint64(0), make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-stop:
				return
			case <-tick.C:
				most = max(most, read())
			}
		}
	})
	return func() uint64 {
		close(stop)
		done.Wait()
		return max(most, first) - first
	}
}
