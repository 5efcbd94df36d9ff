package provenance_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/provenance"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

// records are a store and its blobs.
type records struct {
	t     *testing.T
	store *store.Store
	blobs *blob.Store
	runs  int
}

func open(t *testing.T) *records {
	t.Helper()
	dir := t.TempDir()
	s, err := store.Open(t.Context(), filepath.Join(dir, "store.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	b, err := blob.Open(filepath.Join(dir, "blobs"))
	require.NoError(t, err)
	return &records{t: t, store: s, blobs: b}
}

// run makes a run with version 0 and as many steps as there are lists of tasks. Each attempt
// has two calls: of policy "writer" with two tokens, and of "checker" with one, if the spec
// has these, and otherwise both of the only policy.
func (r *records) run(name string, s spec.Spec, steps ...[]string) {
	r.t.Helper()
	ctx := r.t.Context()
	text, err := json.Marshal(s)
	require.NoError(r.t, err)
	r.runs++
	_, _, err = r.store.CreateRun(ctx, record.Run{Name: name, ExecutionID: "x", Spec: text, SpecDigest: "digest of " + name, Created: time.Unix(int64(r.runs), 0)})
	require.NoError(r.t, err)
	policies := append([]string{model.DefaultPolicy}, s.PolicyNames()...)
	r.version(name, policies, 0, "")
	for i, ids := range steps {
		step := i + 1
		b := model.Batch{Policy: model.DefaultPolicy, Step: step, VocabSize: 9}
		for task, id := range ids {
			a, err := r.store.BeginAttempt(ctx, record.RolloutID{Run: name, Kind: record.Train, Step: step, Task: task}, id, record.Terms{Policy: model.DefaultPolicy}, "k")
			require.NoError(r.t, err)
			b.Trajectories = append(b.Trajectories, model.BatchTrajectory{Attempt: a.String(), Group: task, Reward: 0.5})
			for call, tokens := range []int{2, 1} {
				row := model.BatchRow{Row: model.Row{Tokens: []int32{1, 2, 3}, Temperature: 1}, Sampled: []bool{false, true, tokens == 2}, Logprobs: make([]float32, 3), Advantages: make([]float32, 3), Calls: []int32{-1, int32(call), int32(call)}, Trajectory: task}
				if len(s.Policies) > 0 {
					row.Policy = []string{"writer", "checker"}[call]
				}
				b.Rows = append(b.Rows, row)
			}
		}
		b.Count()
		data, err := hf.EncodeBatch(b)
		require.NoError(r.t, err)
		digest, err := r.blobs.Put(ctx, data)
		require.NoError(r.t, err)
		r.version(name, policies, step, digest)
	}
}

func (r *records) version(run string, policies []string, n int, batch string) {
	r.t.Helper()
	for _, policy := range policies {
		_, _, err := r.store.PutVersion(r.t.Context(), model.Version{
			VersionID: model.VersionID{Run: run, Policy: policy, Number: n}, Parent: n - 1, Manifest: "m", Weights: fmt.Sprint("w of ", run, n), Batch: batch, Fingerprint: "f",
		})
		require.NoError(r.t, err)
	}
}

func (r *records) walker() provenance.Walker {
	return provenance.Walker{Store: r.store, Blobs: r.blobs}
}

func (r *records) of(run, policy string, n int) (p provenance.Provenance, steps []provenance.Step) {
	r.t.Helper()
	p, err := r.walker().Of(r.t.Context(), model.VersionID{Run: run, Policy: policy, Number: n}, func(s provenance.Step) error {
		steps = append(steps, s)
		return nil
	})
	require.NoError(r.t, err)
	return p, steps
}

func from(version string) spec.Spec { return spec.Spec{Model: spec.Model{Version: version}} }

func TestProvenanceGoesBackOverRuns(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.run("first", spec.Spec{}, []string{"a", "b"}, []string{"b"}, []string{"never"})
	r.run("second", from("first@2"), []string{"c"})
	r.run("third", from("second@0"), []string{"a"}, []string{"d"})
	p, steps := r.of("third", model.DefaultPolicy, 1)
	require.Equal(t, 3, p.Steps)
	require.Equal(t, 4, p.Attempts)
	require.Equal(t, 2, p.Tasks, "a and b")
	require.Equal(t, 8, p.Calls)
	require.Equal(t, 12, p.Tokens)
	var parts []string
	for _, part := range p.Parts {
		parts = append(parts, fmt.Sprintf("%s@%d %s: %d, %s, %s", part.Run, part.Version, part.SpecDigest, part.Steps, part.Fingerprints, part.Source))
	}
	require.Equal(t, []string{
		"third@1 digest of third: 1, [f], version second@0",
		"second@0 digest of second: 0, [f], version first@2",
		"first@2 digest of first: 2, [f], model tiny",
	}, parts)
	require.Equal(t, "third/train-1/0/0/1", steps[0].Attempts[0].Attempt)
	require.Equal(t, "first", steps[2].Run)
	require.Equal(t, 1, steps[2].Step, "the latest comes first")
	require.Equal(t, provenance.Attempt{
		Attempt: "first/train-1/1/0/1", Task: "b", Step: 1, Reward: 0.5, Tokens: 3,
		Calls: []provenance.Call{{Attempt: "first/train-1/1/0/1", Call: 0, Tokens: 2}, {Attempt: "first/train-1/1/0/1", Call: 1, Tokens: 1}},
	}, steps[2].Attempts[1])

	made, err := r.walker().MadeFrom(t.Context(), "first", 2)
	require.NoError(t, err)
	require.Equal(t, []string{"first@2 to first@3", "second@0 to second@1", "third@0 to third@2"}, made)
	made, err = r.walker().MadeFrom(t.Context(), "first", 3)
	require.NoError(t, err)
	require.Equal(t, []string{"first@3"}, made, "no other run has started from it")
}

func TestAPolicyIsMadeOfItsOwnRows(t *testing.T) {
	t.Parallel()
	r := open(t)
	both := spec.Spec{Policies: map[string]spec.Policy{"checker": {}, "writer": {Match: []spec.PolicyMatch{{Agent: "writer"}}}}}
	r.run("pair", both, []string{"a", "b"})
	next := both
	next.Model.Version = "pair@1"
	r.run("next", next, []string{"c"})
	for policy, tokens := range map[string]int{"writer": 2, "checker": 1, model.DefaultPolicy: 3} {
		p, _ := r.of("next", policy, 1)
		require.Equal(t, 3*tokens, p.Tokens, policy)
		require.Len(t, p.Parts, 2)
		require.Equal(t, policy, p.Parts[1].Policy)
	}
}

func TestAWalkSaysWhatIsGone(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	r.run("first", spec.Spec{}, []string{"a"})
	r.run("second", from("first@1"), []string{"b"})
	_, err := r.walker().Of(ctx, model.VersionID{Run: "none", Policy: model.DefaultPolicy}, nil)
	require.ErrorIs(t, err, record.ErrNotFound)
	stop := errors.New("stop")
	_, err = r.walker().Of(ctx, model.VersionID{Run: "second", Policy: model.DefaultPolicy, Number: 1}, func(provenance.Step) error { return stop })
	require.ErrorIs(t, err, stop)

	v, err := r.store.Version(ctx, model.VersionID{Run: "second", Policy: model.DefaultPolicy, Number: 1})
	require.NoError(t, err)
	require.NoError(t, r.blobs.Remove(ctx, v.Batch))
	_, err = r.walker().Of(ctx, v.VersionID, nil)
	require.ErrorContains(t, err, "read the batch of step 1", "a batch that was lost is a fault")
	require.NoError(t, r.store.FinishRun(ctx, "first", record.Completed, nil))
	run, err := r.store.Run(ctx, "first")
	require.NoError(t, err)
	stone := record.Forgotten{Run: "first", What: record.ForgottenRun, By: "me"}
	_, _, err = r.store.BeginForgetting(ctx, run, stone)
	require.NoError(t, err)
	require.NoError(t, r.store.RemoveRows(ctx, "first"))
	require.NoError(t, r.store.EndForgetting(ctx, stone))
	p, _ := r.of("second", model.DefaultPolicy, 0)
	require.Contains(t, p.Parts[1].Gone, "forgotten on ")
	require.Zero(t, p.Steps)
}
