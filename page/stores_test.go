package page_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// stores returns stores as different kinds of runs leave them, by name.
func stores() map[string]func(t testing.TB) *recorded {
	return map[string]func(t testing.TB) *recorded{
		"empty": func(t testing.TB) *recorded { return newEmpty(t, "plain") },
		"maze": func(t testing.TB) *recorded {
			r := newEmpty(t, "go north, then east")
			r.name, r.turns, r.critic = "maze", 14, true
			r.whole()
			return r
		},
		"agents": func(t testing.TB) *recorded {
			r := newEmpty(t, "ask the other one")
			r.name, r.turns, r.agents = "team", 5, []string{"planner", "solver", "critic of both"}
			r.whole()
			return r
		},
		"killed": func(t testing.TB) *recorded {
			r := newEmpty(t, "plain")
			r.name = "killed"
			r.whole()
			r.kill(3)
			return r
		},
		"measured": func(t testing.TB) *recorded {
			r := newEmpty(t, "plain")
			r.measured("measured", false, []int{0, 4}, better)
			r.measured("alone", true, []int{0}, better)
			for _, run := range []string{"measured", "alone"} {
				require.NoError(t, r.store.FinishRun(t.Context(), run, record.Completed, nil))
			}
			return r
		},
		"pair": newPair,
		"used": func(t testing.TB) *recorded { return newUsed(t, hostile) },
		"learned": func(t testing.TB) *recorded {
			r, _ := newLearned(t)
			return r
		},
		"prompts": func(t testing.TB) *recorded {
			r := newEmpty(t, "plain")
			r.searched(small("gepa", spec.AlgorithmGEPA))
			r.searched(small("apo", spec.AlgorithmAPO))
			c := wide("many", 60)
			c.memory = false
			r.searched(c)
			c = small("goes", spec.AlgorithmGEPA)
			c.most = 6
			r.searched(c)
			return r
		},
		"failed": func(t testing.TB) *recorded {
			r := newEmpty(t, hostile)
			r.name = "failed"
			r.whole()
			require.NoError(t, r.store.FinishRun(t.Context(), r.name, record.Failed, record.Failure{Error: "train step 3: the disk is full", Detail: strings.Repeat("no space left on device; ", 40)}.Result()))
			_, _, err := r.store.CreateRun(t.Context(), record.Run{Name: "refused", WorkflowID: "refused", Spec: []byte(`{"seed":"many"}`)})
			require.NoError(t, err)
			require.NoError(t, r.store.FinishRun(t.Context(), "refused", record.Refused, record.Failure{Error: "seed: want a number"}.Result()))
			return r
		},
	}
}

// whole fills the store with a run of two steps and evaluations.
func (r *recorded) whole() {
	r.t.Helper()
	r.runs++
	r.createRun()
	for step := 1; step <= 2; step++ {
		r.step(step)
	}
	r.begin(record.RolloutID{Run: r.name, Kind: record.Train, Step: 3, Task: 2 * perStep})
	r.decide()
}

// values stores a critic's values for the calls of a step, and returns their digest.
func (r *recorded) values(step int) string {
	r.t.Helper()
	v := model.Values{Policy: model.CriticPolicy, Version: step - 1}
	for i := range perStep {
		for sample := range samples {
			attempt := record.Address{RolloutID: record.RolloutID{Run: r.name, Kind: record.Train, Step: step, Task: (step-1)*perStep + i, Sample: sample}, Attempt: 1}
			if step == 1 && i == 0 && sample == 0 {
				attempt.Attempt = 2
			}
			calls, err := r.store.ExchangesBetween(r.t.Context(), attempt, 0, r.turns+1)
			require.NoError(r.t, err)
			var of [][]float32
			for _, c := range calls {
				of = append(of, make([]float32, len(c.Completion)))
			}
			v.Calls = append(v.Calls, of)
		}
	}
	file, err := hf.EncodeValues(v)
	require.NoError(r.t, err)
	digest, err := r.blobs.Put(r.t.Context(), file)
	require.NoError(r.t, err)
	return digest
}

// kill cuts off all attempts of a step at the same time, as the death of a worker does,
// and begins them again.
func (r *recorded) kill(step int) {
	r.t.Helper()
	for i := range perStep {
		for sample := range samples {
			id := record.RolloutID{Run: r.name, Kind: record.Train, Step: step, Task: (step-1)*perStep + i, Sample: sample}
			a := r.begin(id)
			first := r.call(a, 0, -1, nil)
			first.Started = time.Now()
			require.NoError(r.t, r.store.AppendCall(r.t.Context(), &first))
		}
	}
	for i := range perStep {
		for sample := range samples {
			r.begin(record.RolloutID{Run: r.name, Kind: record.Train, Step: step, Task: (step-1)*perStep + i, Sample: sample})
		}
	}
}

// maxElements and maxBytes bound every page.
const (
	maxElements = 4000
	maxBytes    = 300 << 10
)

// shown returns the pages of a store, one of each kind. It checks that they exist and
// stay within the limits.
func (r *recorded) shown(at string) []string {
	r.t.Helper()
	var out []string
	for _, path := range []string{
		"/", "/fleet", "/playground", "/compare", "/runs/%s", "/runs/%s/steps", "/runs/%s/train-1", "/runs/%s/gate-1", "/runs/%s/train-1/0", "/runs/%s/train-1/0/0/2", "/runs/%s/train-3/4/0/1",
		"/runs/%s/train-1/0/0/2/credit", "/runs/%s/versions", "/runs/%s/versions/1", "/runs/%s/versions/compare?a=0&b=1", "/runs/%s/tasks", "/runs/%s/actions",
		"/runs/%s/conversations", "/runs/%s/experiments", "/runs/%s/segments", "/runs/%s/served-0/0/0/1",
	} {
		if strings.Contains(path, "served") && r.said == 0 {
			continue
		}
		if strings.Contains(path, "%s") {
			path = fmt.Sprintf(path, r.name)
		}
		body, reply := get(r.t, at+path)
		if r.runs == 0 && reply.StatusCode == http.StatusNotFound && strings.HasPrefix(path, "/runs/") {
			continue
		}
		require.Equal(r.t, http.StatusOK, reply.StatusCode, path)
		require.Less(r.t, len(body), maxBytes, path)
		require.Less(r.t, len(elements(r.t, body)), maxElements, path)
		out = append(out, path)
	}
	return out
}

func TestPagesOfEveryStoreAreBounded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it reads much and shows nothing of goroutines")
	}
	for name, open := range stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			require.GreaterOrEqual(t, len(r.shown(r.serve(nil).URL)), 4)
		})
	}
}
