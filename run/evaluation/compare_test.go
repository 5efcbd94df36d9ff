package evaluation_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/golden"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

// set returns an evaluation with these rewards by task and sample.
func set(run string, rewards ...[]float64) evaluation.Set {
	s := evaluation.Set{Spec: spec.Spec{Grader: spec.Grader{Type: spec.GraderExact}}.WithDefaults(), Rewards: rewards}
	s.Run, s.Kind, s.Policy = run, record.Test, "main"
	s.Mean, s.StdError = evaluation.MeanOf(slices.Concat(rewards...))
	for i := range rewards {
		s.Tasks = append(s.Tasks, tasks.Task{ID: fmt.Sprintf("t%d", i)})
	}
	return s
}

func TestAComparisonIsPairedByTask(t *testing.T) {
	t.Parallel()
	a := set("a", []float64{0, 0}, []float64{1, 0}, []float64{1, 1}, []float64{0, 0}, []float64{0, 1})
	b := set("b", []float64{1, 1}, []float64{1, 1}, []float64{1, 1}, []float64{1, 0}, []float64{1, 0})
	c, err := evaluation.Compare(a, b, "")
	require.NoError(t, err)
	require.Equal(t, []int{3, 0, 2}, []int{c.Wins, c.Losses, c.Ties})
	require.InDelta(t, 2.0/5, c.Difference.Mean, 1e-12) // (1 + ½ + 0 + ½ + 0) / 5
	require.InDelta(t, 2*1.0/8, c.PValue, 1e-12)        // all of three differences have one sign, in either direction
	require.Equal(t, evaluation.TaskChange{ID: "t0", A: 0, B: 1, Difference: 1}, c.ByTask[0])
	require.Equal(t, "t1", c.ByTask[1].ID, "equal changes keep the order of the tasks")
	require.LessOrEqual(t, c.Difference.Low, c.Difference.Mean)
	require.GreaterOrEqual(t, c.Difference.High, c.Difference.Mean)
	require.InDelta(t, 0.4, c.A.Mean, 1e-12)
	require.Less(t, c.A.Low, c.A.Mean)
	require.Greater(t, c.A.High, c.A.Mean)

	back, err := evaluation.Compare(b, a, "")
	require.NoError(t, err)
	require.InDelta(t, -c.Difference.Mean, back.Difference.Mean, 1e-12)
	require.InDelta(t, c.PValue, back.PValue, 1e-12)
	require.Equal(t, []int{0, 3}, []int{back.Wins, back.Losses})

	same, err := evaluation.Compare(a, a, "")
	require.NoError(t, err)
	require.InDelta(t, 1, same.PValue, 0)
	require.Equal(t, 5, same.Ties)

	var text bytes.Buffer
	require.NoError(t, c.WriteText(&text))
	require.Regexp(t, `better on 3 .* 0, .* 2`, text.String())
	golden.Compare(t, "compare", text.String())
}

// In four tasks of two databases, the differences of a database agree: two observations, not four.
func TestTasksOfOneClusterAreOneObservation(t *testing.T) {
	t.Parallel()
	a := set("a", []float64{0}, []float64{0}, []float64{0}, []float64{1})
	b := set("b", []float64{1}, []float64{1}, []float64{1}, []float64{1})
	for i, name := range []string{"cars", "cars", "cars", "pets"} {
		a.Tasks[i].Metadata = map[string]any{"db_id": name}
		b.Tasks[i].Metadata = a.Tasks[i].Metadata
	}
	apart, err := evaluation.Compare(a, b, "")
	require.NoError(t, err)
	require.InDelta(t, 2.0/8, apart.PValue, 1e-12) // three of one sign
	require.Equal(t, 4, apart.Clusters)

	c, err := evaluation.Compare(a, b, "db_id")
	require.NoError(t, err)
	require.Equal(t, 2, c.Clusters)
	require.InDelta(t, 0.75, c.Difference.Mean, 1e-12, "the mean over tasks stays")
	require.InDelta(t, 1, c.PValue, 1e-12)      // one cluster that changed, in either direction
	require.InDelta(t, 0.75, c.StdError, 1e-12) // sums of 3 and 0, halved: 1.5 and 0 around 0.75
	require.InDelta(t, 0, c.Difference.Low, 1e-12, "a draw of pets alone")
	require.InDelta(t, 1, c.Difference.High, 1e-12, "a draw of cars alone")

	var text bytes.Buffer
	require.NoError(t, c.WriteText(&text))
	require.Regexp(t, `4 .* 1 .* 2 clusters by db_id: \+0\.750`, text.String())
	golden.Compare(t, "compare_clusters", text.String())

	_, err = evaluation.Compare(a, b, "db")
	require.ErrorContains(t, err, `"db"`)
	refused := map[string]string{"a key that tasks lack": err.Error()}
	b.Tasks[3].Metadata, a.Tasks[3].Metadata = b.Tasks[0].Metadata, b.Tasks[0].Metadata
	_, err = evaluation.Compare(a, b, "db_id")
	require.ErrorContains(t, err, `"db_id"`)
	refused["a key of one value"] = err.Error()
	golden.Table(t, "refused_clusters", refused)
}

func TestWhatCannotBeComparedIsRefusedByName(t *testing.T) {
	t.Parallel()
	a := set("a", []float64{0}, []float64{1})
	messages := map[string]string{}
	refused := func(b evaluation.Set, why string) {
		t.Helper()
		_, err := evaluation.Compare(a, b, "")
		require.ErrorIs(t, err, evaluation.ErrIncomparable)
		for _, want := range []string{"a@0", "b@0", why} {
			require.ErrorContains(t, err, want)
		}
		messages[why] = err.Error()
	}
	refused(set("b", []float64{0}), "2 tasks against 1")
	refused(set("b", []float64{0, 1}, []float64{1, 1}), "1 sample")
	other := set("b", []float64{0}, []float64{1})
	other.Tasks[1].Input = "another question"
	refused(other, "t1")
	other = set("b", []float64{0}, []float64{1})
	other.Tasks[0].ID = "t9"
	refused(other, "t0 against t9")
	other = set("b", []float64{0}, []float64{1})
	other.Spec.Grader.Type = spec.GraderNumeric
	refused(other, `{"type":"exact"`)
	golden.Table(t, "refused", messages)
}

// spiders returns the evaluation of a data set in Spider's layout that lies in its own
// folder, with a database of so many bytes.
func spiders(t *testing.T, run string, database int) evaluation.Set {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "database", "shop"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "database", "shop", "shop.sqlite"), make([]byte, database), 0o600))
	file := filepath.Join(folder, "dev.json")
	require.NoError(t, os.WriteFile(file, []byte(`[{"db_id": "shop", "question": "How many?", "query": "SELECT count(*) FROM t"}]`), 0o600))
	list, err := tasks.Open("spider:" + file)
	require.NoError(t, err)
	s := set(run, []float64{1})
	s.Tasks = list
	s.Spec.Grader = spec.Grader{Type: spec.GraderCommand, Command: []string{"python3", filepath.Join(folder, "grade.py")}, Directory: folder}
	return s
}

func TestTheSameDataAtTwoPathsIsTheSame(t *testing.T) {
	t.Parallel()
	a, b := spiders(t, "a", 100), spiders(t, "b", 100)
	c, err := evaluation.Compare(a, b, "")
	require.NoError(t, err)
	require.Equal(t, 1, c.Ties)
	require.Equal(t, []string{"grader: its program lies at two paths"}, c.Remarks)
	_, err = evaluation.Compare(a, spiders(t, "b", 101), "")
	require.ErrorIs(t, err, evaluation.ErrIncomparable)
	require.ErrorContains(t, err, "metadata.database")
	b.Spec.Grader.Command[1] = filepath.Join(b.Spec.Grader.Directory, "other.py")
	_, err = evaluation.Compare(a, b, "")
	require.ErrorContains(t, err, "other graders")
}

func TestWhatElseDiffersIsRemarked(t *testing.T) {
	t.Parallel()
	a, b := set("a", []float64{0}), set("b", []float64{1})
	cold := 0.5
	b.Spec.Sampling.Temperature, b.Spec.Agent.Func = &cold, "another"
	c, err := evaluation.Compare(a, b, "")
	require.NoError(t, err)
	require.Equal(t, []string{"sampling.temperature: 1 against 0.5", "agent: the two ran in different ways"}, c.Remarks)
}

// scores are the rewards of one evaluation.
type scores []record.Score

func (s scores) Scores(context.Context, string, string, record.Kind, int) ([]record.Score, error) {
	return s, nil
}

func TestRewardsAreCompleteAndWithoutGreedyOnes(t *testing.T) {
	t.Parallel()
	var e record.Evaluation
	e.Run, e.Kind, e.Tasks, e.Rollouts = "a", record.Test, 2, 4
	all := scores{{Task: 0, Sample: 0, Reward: 1}, {Task: 0, Sample: 1}, {Task: 0, Sample: 2, Reward: 9}, {Task: 1, Sample: 0}, {Task: 1, Sample: 1, Reward: 1}}
	rewards, err := evaluation.Rewards(t.Context(), all, e, spec.Spec{})
	require.NoError(t, err)
	require.Equal(t, [][]float64{{1, 0}, {0, 1}}, rewards)
	_, err = evaluation.Rewards(t.Context(), all[:4], e, spec.Spec{})
	require.ErrorIs(t, err, evaluation.ErrIncomplete)
	require.ErrorContains(t, err, "3 of 4 are on record")
}

func TestRewardsOfAPolicyThatIsPromotedAloneAreItsOwn(t *testing.T) {
	t.Parallel()
	of := spec.Spec{Promotion: spec.Promotion{Alone: true}, Policies: map[string]spec.Policy{"checker": {}, "frozen": {Frozen: true}, "writer": {}}}
	all := scores{{Task: 0, Reward: 1}, {Task: 1, Reward: 2}, {Task: 2, Reward: 3}, {Task: 3, Reward: 4}}
	e := record.Evaluation{Run: "a"}
	e.Kind, e.Version, e.Tasks, e.Rollouts = record.Gate, 4, 2, 2
	for policy, want := range map[string][][]float64{"checker": {{1}, {2}}, "writer": {{3}, {4}}, "main": {{1}, {2}}} {
		e.Policy = policy
		rewards, err := evaluation.Rewards(t.Context(), all, e, of)
		require.NoError(t, err)
		require.Equal(t, want, rewards, policy)
	}
	e.Policy = "writer"
	_, err := evaluation.Rewards(t.Context(), all[:3], e, of)
	require.ErrorContains(t, err, "evaluation of a:writer@4 on gate")
}

func TestAComparisonOfAPolicySaysIfTheOthersDiffer(t *testing.T) {
	t.Parallel()
	a, b := set("a", []float64{0}), set("a", []float64{1})
	for i, s := range []*evaluation.Set{&a, &b} {
		s.Spec.Policies = map[string]spec.Policy{"checker": {}, "writer": {}}
		s.Policy, s.Version, s.Versions = "writer", i+1, map[string]int{"checker": 3 * i, "writer": i + 1}
	}
	c, err := evaluation.Compare(a, b, "")
	require.NoError(t, err)
	require.Equal(t, []string{"version of checker: 0 against 3"}, c.Remarks)
	require.Equal(t, "writer", c.B.Policy)
	require.Contains(t, c.B.String(), "a:writer@2 on test")
}

// evaluated is a store with evaluations of one run.
type evaluated struct {
	evaluation.Store
	all []record.Evaluation
}

func (e evaluated) Evaluations(context.Context, string) ([]record.Evaluation, error) {
	return e.all, nil
}

func TestAnEvaluationOfAPolicyIsFoundByItsName(t *testing.T) {
	t.Parallel()
	var s evaluated
	for policy, version := range map[string]int{"main": 0, "checker": 4, "writer": 4} {
		e := record.Evaluation{Run: "a", Policy: policy}
		e.Kind, e.Version = record.Gate, version
		s.all = append(s.all, e)
	}
	for reference, want := range map[string]string{"a:writer@4": "writer", "a:checker": "checker", "a@0": "main", "a": "main"} {
		e, err := evaluation.Find(t.Context(), s, reference, "")
		require.NoError(t, err, reference)
		require.Equal(t, want, e.Policy, reference)
	}
	_, err := evaluation.Find(t.Context(), s, "a@4", "")
	require.ErrorContains(t, err, "a:writer@4 on gate")
	_, err = evaluation.Find(t.Context(), s, "a:writer@3", "")
	require.ErrorIs(t, err, evaluation.ErrNoEvaluation)
	s.all = s.all[:0]
	_, err = evaluation.Find(t.Context(), s, "a:writer@4", "")
	require.ErrorContains(t, err, "leave :writer out")
}
