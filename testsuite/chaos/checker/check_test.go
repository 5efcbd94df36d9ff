package checker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/tasks/stream"
	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
)

// Two steps of two tasks with two samples, of a split of five.
const (
	steps, perStep, samples, split = 2, 2, 2, 5
	runSeed                        = 7
)

func second(n int) time.Time { return time.Unix(1_800_000_000+int64(n), 0) }

func digest(of string, n int) string {
	return "sha256:" + strings.Repeat(fmt.Sprintf("%s%d", of, n), 32)
}

// sound returns the evidence of a run in which nothing went wrong. Each rollout made one
// call in its first attempt.
func sound() checker.Evidence {
	e := checker.Evidence{
		Records: checker.Records{
			Run: "chaos", Status: "completed", Seed: runSeed, Steps: steps, TasksPer: perStep, Samples: samples, TrainTasks: split,
			Batches: map[int]string{}, Versions: []checker.Version{{Number: 0, Weights: digest("a", 0)}},
		},
		History: checker.History{Completed: true, Batches: map[int]string{}, Updates: map[int]string{}},
		Trained: map[int][]checker.Trained{},
	}
	for step := 1; step <= steps; step++ {
		batch := digest("b", step)
		e.Records.Batches[step], e.History.Batches[step], e.History.Updates[step] = batch, batch, batch
		e.Records.Versions = append(e.Records.Versions, checker.Version{Number: step, Weights: digest("a", step), Batch: batch})
		for task := (step - 1) * perStep; task < step*perStep; task++ {
			index, _ := stream.At(runSeed, split, task)
			e.History.Issued = append(e.History.Issued, checker.Issued{
				Kind: "train", Step: step, Task: task, Index: index, Version: step - 1, Samples: samples, Attempts: []int{1, 1},
			})
			for sample := range samples {
				addRollout(&e, checker.RolloutAddress{Kind: "train", Step: step, Task: task, Sample: sample})
			}
		}
	}
	e.History.Weights = digest("a", steps)
	return e
}

// addRollout adds a rollout with one call, recorded a second after it was requested, and
// trains on it.
func addRollout(e *checker.Evidence, p checker.RolloutAddress) {
	n := len(e.Records.Calls)
	c := checker.Call{Policy: "main",
		RolloutAddress: p, Attempt: 1, Version: p.Step - 1, Weights: strings.TrimPrefix(digest("a", p.Step-1), "sha256:"),
		Seed: uint64(100 + n), Tokens: []int32{1, int32(n)}, Recorded: second(10*n + 1),
	}
	e.Records.Calls = append(e.Records.Calls, c)
	e.Records.Attempts = append(e.Records.Attempts, checker.Attempt{RolloutAddress: p, Number: 1, Outcome: "completed"})
	e.Generations = append(e.Generations, checker.Generation{
		ID: fmt.Sprint(n), Run: e.Records.Run, Version: c.Version, Seed: c.Seed, Tokens: c.Tokens, Weights: c.Weights, Started: second(10 * n),
	})
	e.Trained[p.Step] = append(e.Trained[p.Step], checker.Trained{RolloutAddress: p, Attempt: 1})
}

// again returns another generation for call n, started at the given time.
func again(e checker.Evidence, n int, at time.Time) checker.Generation {
	g := e.Generations[n]
	g.ID, g.Started = g.ID+"-again", at
	return g
}

func TestASoundRunHasNothingWrong(t *testing.T) {
	t.Parallel()
	require.Equal(t, checker.Findings{
		Run: "chaos", Completed: true, Prompts: steps * perStep * samples, Attempts: 8, CallsRecorded: 8,
	}, checker.Check(sound()))
}

func TestEveryViolationIsFound(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		spoil func(e *checker.Evidence)
		want  checker.Findings // of the counts, those that differ
		wrong string
	}{
		{"not completed in the store", func(e *checker.Evidence) { e.Records.Status = "running" }, checker.Findings{}, `the run is "running"`},
		{"not completed in the history", func(e *checker.Evidence) { e.History.Completed = false }, checker.Findings{}, "completed in its history: false"},
		{"a prompt never issued", func(e *checker.Evidence) {
			e.History.Issued = e.History.Issued[1:]
			e.Trained[1] = e.Trained[1][2:]
		}, checker.Findings{PromptsSkipped: 2}, "task 0 of the stream was not issued in step 1"},
		{"a prompt issued for another step's place", func(e *checker.Evidence) {
			e.History.Issued[1].Task = 3
			e.History.Issued[1].Index, _ = stream.At(runSeed, split, 3)
			for i := range 2 {
				e.Trained[1][2+i].Task = 3
			}
		}, checker.Findings{PromptsSkipped: 2, PromptsDuplicated: 2}, "issued in step 1, which is not its own"},
		{"a prompt issued twice", func(e *checker.Evidence) { e.History.Issued = append(e.History.Issued, e.History.Issued[0]) },
			checker.Findings{PromptsDuplicated: 2}, "train-1/0 was issued twice"},
		{"another task than the seed's", func(e *checker.Evidence) { e.History.Issued[0].Index = (e.History.Issued[0].Index + 1) % split },
			checker.Findings{}, "the seed says"},
		{"a group too small", func(e *checker.Evidence) {
			e.History.Issued[0].Samples, e.History.Issued[0].Attempts = 1, []int{1}
			e.Trained[1] = e.Trained[1][:1:1]
		}, checker.Findings{PromptsSkipped: 2}, "has 1 samples, the spec says 2"},
		{"a child that never returned", func(e *checker.Evidence) {
			e.History.Issued[0].Attempts = nil
			e.Trained[1] = e.Trained[1][2:]
		}, checker.Findings{PromptsSkipped: 2}, "did not return"},
		{"a sample left out of the batch", func(e *checker.Evidence) { e.Trained[2] = e.Trained[2][1:] },
			checker.Findings{PromptsSkipped: 1}, "train-2/2/0 is not in the batch of step 2"},
		{"a sample trained twice in a step", func(e *checker.Evidence) { e.Trained[2] = append(e.Trained[2], e.Trained[2][0]) },
			checker.Findings{PromptsDuplicated: 1}, "train-2/2/0/1 is in the batch of step 2 a second time"},
		{"a sample trained again in another step", func(e *checker.Evidence) { e.Trained[2] = append(e.Trained[2], e.Trained[1][0]) },
			checker.Findings{PromptsDuplicated: 1}, "train-1/0/0/1 is in the batch of step 2 and does not belong there"},
		{"a batch too many", func(e *checker.Evidence) { e.Trained[3] = e.Trained[2] }, checker.Findings{PromptsDuplicated: 4}, "there is a batch of step 3"},
		{"an attempt that does not count", func(e *checker.Evidence) { e.History.Issued[0].Attempts[1] = 2 }, checker.Findings{}, "attempt 2 counts"},
		{"an attempt lost to a fault", func(e *checker.Evidence) { e.Records.Attempts[0].Outcome = "infra_fault" },
			checker.Findings{}, `trained on with the outcome "infra_fault"`},
		{"an attempt never sealed", func(e *checker.Evidence) { e.Records.Attempts[0].Outcome = "" }, checker.Findings{}, `trained on with the outcome ""`},
		{"set aside without a reserve", func(e *checker.Evidence) {
			e.History.Issued[0].Quarantine = "can't be graded"
			e.Records.Quarantined = []checker.Quarantine{{Kind: "train", Step: 1, Task: 0}}
			e.Trained[1] = e.Trained[1][2:]
		}, checker.Findings{PromptsSkipped: 2}, "1 less than it should"},
		{"set aside without a record", func(e *checker.Evidence) {
			replaceFirst(e)
			e.Records.Quarantined = nil
		}, checker.Findings{PromptsReserve: 2}, "the store does not say so"},
		{"left out although something can be learned", func(e *checker.Evidence) { flatten(e, 0, 1) },
			checker.Findings{PromptsSkipped: 2, PromptsReserve: 2}, "step 1 has 3 groups to train on, 1 more than it should"},
		{"left out although the spec allows none", func(e *checker.Evidence) {
			flatten(e, 1, 1)
			e.Records.FlatLimit = 0
		}, checker.Findings{PromptsSkipped: 2, PromptsReserve: 2}, "train-1/0/0 is not in the batch of step 1"},
		{"more left out than the spec allows", func(e *checker.Evidence) {
			flatten(e, 1, 1)
			e.History.Issued[1].Rewards = []float64{0, 0}
			e.Trained[1] = e.Trained[1][2:]
		}, checker.Findings{PromptsSkipped: 2, PromptsReserve: 2}, "step 1 left out 2 groups whose rewards are all equal, and may 1"},
		{"a critic too few", func(e *checker.Evidence) {
			criticize(e)
			e.Records.Critics = e.Records.Critics[:2]
		}, checker.Findings{}, "there are 2 critics after 2 steps"},
		{"a critic that learned from another batch", func(e *checker.Evidence) {
			criticize(e)
			e.History.CriticUpdates[2] = digest("d", 1)
		}, checker.Findings{}, "critic 2 was trained on"},
		{"a critic too few of a policy", func(e *checker.Evidence) {
			pair(e)
			e.Records.PolicyCritics["writer"] = e.Records.PolicyCritics["writer"][:2]
		}, checker.Findings{}, "there are 2 critics of policy writer after 2 steps"},
		{"a critic of a policy that learned from another batch", func(e *checker.Evidence) {
			pair(e)
			e.Records.PolicyCritics["writer"][2].Batch = digest("d", 1)
		}, checker.Findings{}, "critic 2 of policy writer was trained on"},
		{"a critic of a policy that has none in the spec", func(e *checker.Evidence) {
			pair(e)
			e.Records.PolicyCritics["checker"] = e.Records.PolicyCritics["writer"]
		}, checker.Findings{}, "there are critics of 2 policies, the spec has 1"},
		{"no critic of a policy at all", func(e *checker.Evidence) {
			pair(e)
			e.Records.PolicyCritics = nil
		}, checker.Findings{}, "there are critics of 0 policies, the spec has 1"},
		{"a version too few of a policy", func(e *checker.Evidence) {
			pair(e)
			e.Records.Policies["checker"] = e.Records.Policies["checker"][:2]
		}, checker.Findings{}, "there are 2 versions of policy checker after 2 steps"},
		{"a judgment that nobody gave", func(e *checker.Evidence) {
			judge(e)
			e.Records.Judgments[0].Scores = []float64{3, 3}
		}, checker.Findings{}, "judgment of first is on record, and no judge gave it"},
		{"a recorded judgment asked for again", func(e *checker.Evidence) {
			judge(e)
			e.Answers = append(e.Answers, checker.Answer{Question: "first", Asked: second(2)})
		}, checker.Findings{JudgedAgain: 1}, "and asked for again at"},
		{"credit assigned twice", func(e *checker.Evidence) { e.History.Repeated = []string{"AssignCredit of step 1"} }, checker.Findings{}, "asked for more than once"},
		{"a version too few", func(e *checker.Evidence) { e.Records.Versions = e.Records.Versions[:2] }, checker.Findings{}, "there are 2 versions after 2 steps"},
		{"trained on another batch", func(e *checker.Evidence) { e.Records.Versions[2].Batch = digest("c", 1) }, checker.Findings{}, "version 2 was trained on"},
		{"another update than the history's", func(e *checker.Evidence) { e.History.Updates[2] = digest("c", 1) }, checker.Findings{}, "version 2 was trained on"},
		{"other weights than returned", func(e *checker.Evidence) { e.History.Weights = digest("c", 1) }, checker.Findings{}, "the run returned the weights"},
		{"sampled with other weights", func(e *checker.Evidence) { e.Records.Calls[0].Weights = "other" }, checker.Findings{}, "sampled with other"},
		{"sampled from another version", func(e *checker.Evidence) {
			for i := range 2 {
				c := &e.Records.Calls[4+i]
				c.Version, c.Weights = 0, e.Records.Calls[0].Weights
				e.Generations[4+i].Version, e.Generations[4+i].Weights = 0, c.Weights
			}
		}, checker.Findings{}, "sampled from version 0 instead of 1"},
		{"a recorded call sampled again", func(e *checker.Evidence) {
			e.Generations = append(e.Generations, again(*e, 3, second(32)))
		}, checker.Findings{RecordedCallsSampledAgain: 1}, "call 0 of chaos train-1/1/1 was recorded by attempt 1"},
		{"sampled twice with different tokens", func(e *checker.Evidence) {
			g := again(*e, 3, second(30))
			g.Tokens = []int32{9}
			e.Generations = append(e.Generations, g)
		}, checker.Findings{SampledUnrecorded: 1}, "sampled twice with different results"},
		{"recorded and never sampled", func(e *checker.Evidence) { e.Generations = e.Generations[1:] }, checker.Findings{}, "nobody sampled it"},
		{"recorded with other tokens than sampled", func(e *checker.Evidence) { e.Records.Calls[0].Tokens = []int32{3} }, checker.Findings{}, "nobody sampled it"},
		{"replayed with other tokens", func(e *checker.Evidence) {
			c := e.Records.Calls[0]
			c.Attempt, c.ReplayedFrom, c.Tokens, c.Recorded = 2, 1, []int32{5}, second(50)
			e.Records.Calls = append(e.Records.Calls, c)
		}, checker.Findings{CallsReplayed: 1}, "is not what attempt 1 recorded"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := sound()
			test.spoil(&e)
			f := checker.Check(e)
			require.Contains(t, strings.Join(append(f.Wrong, f.Repeated...), "\n"), test.wrong)
			require.False(t, f.Sound())
			require.Equal(t, counts(test.want), counts(f))
		})
	}
}

// counts returns the counts that show a violation.
func counts(f checker.Findings) [7]int {
	return [7]int{f.PromptsSkipped, f.PromptsDuplicated, f.PromptsReserve, f.CallsReplayed, f.RecordedCallsSampledAgain, f.SampledUnrecorded, f.JudgedAgain}
}

// replaceFirst sets the first prompt aside and lets a reserve take its place.
func replaceFirst(e *checker.Evidence) {
	first := &e.History.Issued[0]
	first.Quarantine = "can't be graded"
	e.Records.Quarantined = []checker.Quarantine{{Kind: "train", Step: 1, Task: 0}}
	e.History.Issued = append(e.History.Issued, checker.Issued{
		Kind: "reserve", Step: 1, Task: 0, Index: stream.Reserve(runSeed, split, 1, 0), Samples: samples, Attempts: []int{1, 1},
	})
	e.Trained[1] = e.Trained[1][2:]
	for sample := range samples {
		addRollout(e, checker.RolloutAddress{Kind: "reserve", Step: 1, Task: 0, Sample: sample})
	}
}

// flatten replaces the first prompt by a reserve because of its rewards.
func flatten(e *checker.Evidence, rewards ...float64) {
	replaceFirst(e)
	e.Records.FlatLimit, e.Records.Quarantined = 1, nil
	e.History.Issued[0].Quarantine, e.History.Issued[0].Rewards = "", rewards
}

// criticize adds a critic that was trained on every batch.
func criticize(e *checker.Evidence) {
	e.Records.HasCritic, e.History.CriticUpdates = true, map[int]string{}
	for i, v := range e.Records.Versions {
		e.Records.Critics = append(e.Records.Critics, checker.Version{Number: i, Weights: digest("c", i), Batch: v.Batch})
		e.History.CriticUpdates[i] = v.Batch
	}
}

// pair makes two policies of the run's, of which the writer has a critic. All calls are of the
// writer.
func pair(e *checker.Evidence) {
	r := &e.Records
	r.PolicyNames, r.CriticNames = []string{"checker", "writer"}, []string{"writer"}
	r.Policies = map[string][]checker.Version{"checker": slices.Clone(r.Versions), "writer": slices.Clone(r.Versions)}
	r.PolicyCritics, e.History.CriticUpdates = map[string][]checker.Version{}, map[int]string{}
	for i, v := range r.Versions {
		r.PolicyCritics["writer"] = append(r.PolicyCritics["writer"], checker.Version{Number: i, Weights: digest("c", i), Batch: v.Batch})
		e.History.CriticUpdates[i] = v.Batch
	}
	for i := range r.Calls {
		r.Calls[i].Policy = "writer"
	}
}

// judge adds two judgments, each recorded a second after the judge was asked. The judge's
// very first answer could not be used.
func judge(e *checker.Evidence) {
	e.Answers = append(e.Answers, checker.Answer{Question: "first", Asked: second(-1)})
	for i, question := range []string{"first", "second"} {
		scores := []float64{1, float64(i)}
		e.Answers = append(e.Answers, checker.Answer{Question: question, Asked: second(10 * i), Scores: scores})
		e.Records.Judgments = append(e.Records.Judgments, checker.Judgment{Key: "of " + question, Scores: scores, At: second(10*i + 1)})
	}
}

func TestAReserveTakesAQuarantinedPlace(t *testing.T) {
	t.Parallel()
	e := sound()
	replaceFirst(&e)
	f := checker.Check(e)
	require.Empty(t, f.Wrong)
	require.Equal(t, samples, f.PromptsReserve)
}

func TestAReserveTakesTheFlatOnesPlace(t *testing.T) {
	t.Parallel()
	e := sound()
	flatten(&e, 1, 1)
	f := checker.Check(e)
	require.Empty(t, f.Wrong)
	require.Equal(t, samples, f.PromptsReserve)
	require.Equal(t, samples, f.PromptsFlat)
}

func TestACriticHasALineageOfItsOwn(t *testing.T) {
	t.Parallel()
	e := sound()
	criticize(&e)
	require.Empty(t, checker.Check(e).Wrong)
}

func TestEachPolicyMayHaveACritic(t *testing.T) {
	t.Parallel()
	e := sound()
	pair(&e)
	require.Empty(t, checker.Check(e).Wrong)
}

func TestAJudgesAnswersMayGetLostOnTheirWay(t *testing.T) {
	t.Parallel()
	e := sound()
	judge(&e)
	e.Answers = append(e.Answers, checker.Answer{Question: "second", Asked: second(9), Scores: []float64{5, 5}})
	f := checker.Check(e)
	require.Empty(t, f.Wrong)
	require.Equal(t, 2, f.Judgments)
	require.Equal(t, 1, f.JudgmentsLost)

	e.Answers[3].Asked = second(12)
	require.Equal(t, 1, checker.Check(e).JudgedAgain)
	e.WorkerHangs = []checker.Hang{{From: second(8), Until: second(12)}}
	require.Zero(t, checker.Check(e).JudgedAgain, "the worker was frozen before it could ask")
}

func TestWhatIsSampledBeforeItsRecordIsCountedApart(t *testing.T) {
	t.Parallel()
	e := sound()
	lost := again(e, 0, second(0))
	never := again(e, 0, second(5))
	never.Seed = 1
	other := again(e, 0, second(99))
	other.Run = "calm"
	e.Generations = append(e.Generations, lost, never, other)
	f := checker.Check(e)
	require.Empty(t, f.Wrong)
	require.Equal(t, 2, f.SampledUnrecorded, "one was sampled twice before it was recorded, one was never recorded")
	require.Zero(t, f.RecordedCallsSampledAgain)
}

// A request that waited in a suspended process may have been made before the process was
// suspended.
func TestARequestThatLayInAFrozenSamplerIsNoRepetition(t *testing.T) {
	t.Parallel()
	e := sound()
	e.Generations = append(e.Generations, again(e, 0, second(9)))
	require.Equal(t, 1, checker.Check(e).RecordedCallsSampledAgain)
	e.Hangs = []checker.Hang{{From: second(-1), Until: second(9)}}
	f := checker.Check(e)
	require.Zero(t, f.RecordedCallsSampledAgain)
	require.Equal(t, 1, f.SampledUnrecorded)
	e.Hangs[0].Until = second(7)
	require.Equal(t, 1, checker.Check(e).RecordedCallsSampledAgain, "the sampler had long been awake")
}

func TestReplayedCallsAreCounted(t *testing.T) {
	t.Parallel()
	e := sound()
	c := e.Records.Calls[0]
	c.Attempt, c.ReplayedFrom, c.Recorded = 2, 1, second(50)
	e.Records.Calls = append(e.Records.Calls, c)
	e.Records.Attempts = append(e.Records.Attempts, checker.Attempt{RolloutAddress: c.RolloutAddress, Number: 2, Outcome: "completed"})
	e.Records.Attempts[0].Outcome = "infra_fault"
	e.History.Issued[0].Attempts[0], e.Trained[1][0].Attempt = 2, 2
	f := checker.Check(e)
	require.Empty(t, f.Wrong)
	require.Equal(t, 1, f.CallsReplayed)
	require.Equal(t, 8, f.CallsRecorded)
}

func TestDigestsAreCompared(t *testing.T) {
	t.Parallel()
	baseline, chaos := sound().Records, sound().Records
	require.Empty(t, checker.Differ(baseline, chaos))
	chaos.Versions[1].Weights = digest("c", 1)
	require.Len(t, checker.Differ(baseline, chaos), 1)
	chaos = sound().Records
	chaos.Versions = chaos.Versions[:2]
	require.Len(t, checker.Differ(baseline, chaos), 1)
	chaos = sound().Records
	chaos.Evaluations = []checker.Evaluation{{Kind: "gate", Mean: 0.5}}
	require.Len(t, checker.Differ(baseline, chaos), 1)
	criticized, other := sound(), sound()
	criticize(&criticized)
	criticize(&other)
	require.Empty(t, checker.Differ(criticized.Records, other.Records))
	require.Len(t, checker.Differ(baseline, other.Records), 1)
	other.Records.Critics[1].Weights = digest("d", 1)
	require.Len(t, checker.Differ(criticized.Records, other.Records), 1)
	paired, others := sound(), sound()
	pair(&paired)
	pair(&others)
	require.Empty(t, checker.Differ(paired.Records, others.Records))
	others.Records.PolicyCritics["writer"][1].Weights = digest("d", 1)
	require.Len(t, checker.Differ(paired.Records, others.Records), 1)
	others.Records.PolicyCritics["writer"] = others.Records.PolicyCritics["writer"][:1]
	require.Len(t, checker.Differ(paired.Records, others.Records), 1)
	chaos = sound().Records
	chaos.Promoted = 1
	require.Len(t, checker.Differ(baseline, chaos), 1)
}
