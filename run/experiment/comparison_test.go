package experiment_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/run/experiment"
)

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// golden is what testdata/golden.py computed.
type golden struct {
	Cases []struct {
		Name             string            `json:"name"`
		Share            float64           `json:"share"`
		Level            float64           `json:"level"`
		MaxConversations int               `json:"max_conversations"`
		Outcomes         []outcome         `json:"outcomes"`
		Result           experiment.Result `json:"result"`
	} `json:"cases"`
	Places []place `json:"places"`
}

type outcome experiment.Outcome

func (o *outcome) UnmarshalJSON(text []byte) error {
	var candidate int
	err := json.Unmarshal(text, &[]any{&o.Unit, &candidate, &o.Value})
	o.Candidate = candidate == 1
	return err
}

// place is the share above which a unit gets the candidate.
type place struct {
	run       string
	candidate int
	unit      string
	place     float64
}

func (p *place) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&p.run, &p.candidate, &p.unit, &p.place})
}

func readGolden(t *testing.T) golden {
	t.Helper()
	text, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	var g golden
	require.NoError(t, json.Unmarshal(text, &g))
	return g
}

func settings() experiment.Settings {
	return experiment.Settings{Share: 0.5, Level: 0.05, MinConversations: 100, MaxConversations: 2000}
}

// judged returns n conversations of each of some units, all with one value.
func judged(name string, units, n int, candidate bool, value float64) (all []experiment.Outcome) {
	for i := range units {
		for range n {
			all = append(all, experiment.Outcome{Unit: fmt.Sprint(name, i), Candidate: candidate, Value: value, At: noon})
		}
	}
	return all
}

func compare(t *testing.T, s experiment.Settings, outcomes ...[]experiment.Outcome) experiment.Result {
	t.Helper()
	r, err := experiment.Compare(s, slices.Concat(outcomes...))
	require.NoError(t, err)
	return r
}

func near() cmp.Option { return cmpopts.EquateApprox(1e-12, 1e-12) }

func TestResultsAreThoseOfAnotherProgram(t *testing.T) {
	t.Parallel()
	cases := readGolden(t).Cases
	require.Len(t, cases, 4)
	decisions := map[experiment.Decision]int{}
	for _, c := range cases {
		var outcomes []experiment.Outcome
		for _, o := range c.Outcomes {
			outcomes = append(outcomes, experiment.Outcome(o))
		}
		s := experiment.Settings{Share: c.Share, Level: c.Level, MinConversations: 1, MaxConversations: c.MaxConversations}
		got := compare(t, s, outcomes)
		decisions[got.Decision]++
		want := c.Result
		want.Level, want.Decision = c.Level, got.Decision
		require.Empty(t, cmp.Diff(want, got, near()), c.Name)
	}
	require.Equal(t, map[experiment.Decision]int{experiment.Better: 1, experiment.Undecided: 3}, decisions)
}

func TestAnotherOrderChangesOnlyRounding(t *testing.T) {
	t.Parallel()
	var outcomes []experiment.Outcome
	for _, o := range readGolden(t).Cases[2].Outcomes {
		outcomes = append(outcomes, experiment.Outcome(o))
	}
	want := compare(t, settings(), outcomes)
	r := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		r.Shuffle(len(outcomes), func(i, j int) { outcomes[i], outcomes[j] = outcomes[j], outcomes[i] })
		require.Empty(t, cmp.Diff(want, compare(t, settings(), outcomes), near()))
	}
	require.Equal(t, compare(t, settings(), outcomes), compare(t, settings(), outcomes), "the same order gives the same bits")
}

func TestNothingIsDecidedWhileAVersionHasTooFewUnits(t *testing.T) {
	t.Parallel()
	unknown := experiment.Result{Low: -1, High: 1, Level: 0.05, Decision: experiment.Undecided}
	require.Equal(t, unknown, compare(t, settings()))

	want := unknown
	want.Candidate = experiment.Arm{Units: 300, Conversations: 300, Mean: 1, EffectiveUnits: 300}
	want.Until = noon
	require.Equal(t, want, compare(t, settings(), judged("a", 300, 1, true, 1)), "the control has none")
	want.Candidate, want.Control = experiment.Arm{}, want.Candidate
	require.Equal(t, want, compare(t, settings(), judged("a", 300, 1, false, 1)), "the candidate has none")

	want.Candidate = experiment.Arm{Units: 1, Conversations: 500, EffectiveUnits: 1}
	want.Difference = -1
	require.Equal(t, want, compare(t, settings(), judged("a", 300, 1, false, 1), judged("b", 1, 500, true, 0)), "one user has all conversations")

	few := compare(t, settings(), judged("a", 19, 20, true, 1), judged("b", 300, 1, false, 0))
	require.Equal(t, []float64{-1, 1, 1}, []float64{few.Low, few.High, few.Difference})
	require.Equal(t, experiment.Undecided, few.Decision)
	require.Equal(t, experiment.Better, compare(t, settings(), judged("a", 20, 20, true, 1), judged("b", 300, 1, false, 0)).Decision)

	// One user with most of the conversations leaves few effective units, however many there are.
	heavy := compare(t, settings(), judged("a", 100, 1, true, 1), judged("c", 1, 100, true, 1), judged("b", 300, 1, false, 0))
	require.Empty(t, cmp.Diff(200.0*200/10100, heavy.Candidate.EffectiveUnits, near()))
	require.Equal(t, experiment.Undecided, heavy.Decision)
}

func TestEqualValuesGiveAnIntervalAroundNoDifference(t *testing.T) {
	t.Parallel()
	for _, value := range []float64{0, 0.5, 1} {
		r := compare(t, settings(), judged("a", 300, 1, true, value), judged("b", 300, 1, false, value))
		require.Zero(t, r.Difference)
		require.InDelta(t, 0, r.StdError, 1e-15)
		require.InDelta(t, -r.High, r.Low, 1e-12)
		require.Greater(t, r.High, 0.01, "values without variance are no certainty")
		require.Equal(t, experiment.Undecided, r.Decision)
	}
}

// The conversations of one user are no independent observations.
func TestMoreConversationsOfTheSameUsersAddNoCertainty(t *testing.T) {
	t.Parallel()
	split := func(n int, name string, candidate bool) []experiment.Outcome {
		return slices.Concat(judged(name+"+", 40, n, candidate, 1), judged(name+"-", 40, n, candidate, 0))
	}
	once := compare(t, settings(), split(1, "a", true), split(1, "b", false))
	often := compare(t, settings(), split(10, "a", true), split(10, "b", false))
	require.InEpsilon(t, once.StdError, often.StdError, 1e-9)
	unrelated := compare(t, settings(), judged("a+", 400, 1, true, 1), judged("a-", 400, 1, true, 0), judged("b+", 400, 1, false, 1), judged("b-", 400, 1, false, 0))
	require.InEpsilon(t, once.StdError, unrelated.StdError*math.Sqrt(10), 0.02)
}

// A user with both versions is left out of both at once, so what is common cancels.
func TestAUserWithBothVersionsIsOneUnit(t *testing.T) {
	t.Parallel()
	habits := func(candidate bool) []experiment.Outcome {
		return slices.Concat(judged("kind", 100, 2, candidate, 1), judged("strict", 100, 2, candidate, 0))
	}
	r := compare(t, settings(), habits(true), habits(false))
	require.Equal(t, 200, r.Candidate.Units)
	require.Equal(t, 200, r.Control.Units)
	require.InDelta(t, 0, r.StdError, 1e-15)
}

func TestADecisionIsWhatTheIntervalExcludes(t *testing.T) {
	t.Parallel()
	of := func(name string, candidate bool, good, bad int) []experiment.Outcome {
		return slices.Concat(judged(name+"+", good, 1, candidate, 1), judged(name+"-", bad, 1, candidate, 0))
	}
	better := compare(t, settings(), of("a", true, 450, 150), of("b", false, 350, 250))
	require.Equal(t, experiment.Better, better.Decision)
	require.Positive(t, better.Low)
	worse := compare(t, settings(), of("a", true, 350, 250), of("b", false, 450, 150))
	require.Equal(t, experiment.Worse, worse.Decision)
	require.InDelta(t, -better.Low, worse.High, 1e-12)

	same := of("b", false, 400, 200)
	require.Equal(t, experiment.Undecided, compare(t, settings(), of("a", true, 400, 200), same).Decision)
	s := settings()
	s.Margin = 0.2
	within := compare(t, s, of("a", true, 400, 200), same)
	require.Equal(t, experiment.NoDifference, within.Decision)
	require.Less(t, within.High, 0.2)
	s.Margin = within.High
	require.Equal(t, experiment.Undecided, compare(t, s, of("a", true, 400, 200), same).Decision, "the interval reaches the margin")
	s.Margin = 0.9
	require.Equal(t, experiment.Better, compare(t, s, of("a", true, 450, 150), of("b", false, 350, 250)).Decision, "a difference within the margin is still one")
}

func TestTheIntervalIsWithinWhatADifferenceCanBe(t *testing.T) {
	t.Parallel()
	r := compare(t, settings(), judged("a", 25, 1, true, 1), judged("b", 25, 1, false, 0))
	require.Equal(t, 1.0, r.High)
	require.Greater(t, r.Low, -1.0)
}

func TestWhatCannotBeComparedIsRefused(t *testing.T) {
	t.Parallel()
	good := judged("a", 300, 1, true, 1)
	for want, o := range map[string]experiment.Outcome{
		"compare outcome 300: value: NaN: want 0 to 1":  {Unit: "u", Value: math.NaN()},
		"compare outcome 300: value: +Inf: want 0 to 1": {Unit: "u", Value: math.Inf(1)},
		"compare outcome 300: value: 1.5: want 0 to 1":  {Unit: "u", Value: 1.5},
		"compare outcome 300: value: -0.1: want 0 to 1": {Unit: "u", Value: -0.1},
		"compare outcome 300: unit: missing":            {Value: 1},
	} {
		_, err := experiment.Compare(settings(), slices.Concat(good, []experiment.Outcome{o}))
		require.ErrorContains(t, err, want)
	}
	c, err := experiment.NewComparison(settings())
	require.NoError(t, err)
	require.Error(t, c.Add(experiment.Outcome{Unit: "u", Value: 2, At: noon}))
	require.Equal(t, compare(t, settings()), c.Result(), "an outcome that is refused changes nothing")
}

func TestAResultSaysWhenItsLatestFeedbackCame(t *testing.T) {
	t.Parallel()
	outcomes := judged("a", 3, 1, true, 1)
	outcomes[1].At = noon.Add(time.Hour)
	require.Equal(t, noon.Add(time.Hour), compare(t, settings(), outcomes).Until)
}

func TestAResultIsTheSameReadFromJSON(t *testing.T) {
	t.Parallel()
	for _, want := range []experiment.Result{
		compare(t, settings()),
		compare(t, settings(), judged("a", 25, 1, true, 1), judged("b", 25, 1, false, 0)),
	} {
		text, err := json.Marshal(want)
		require.NoError(t, err)
		var got experiment.Result
		require.NoError(t, json.Unmarshal(text, &got))
		require.Empty(t, cmp.Diff(want, got))
	}
}

func Example() {
	s := experiment.Settings{Share: 0.5, Level: 0.05, MinConversations: 200, MaxConversations: 2000}
	r, err := experiment.Compare(s, slices.Concat(
		judged("content with the candidate", 30, 5, true, 1), judged("sometimes content with it", 30, 5, true, 0.6),
		judged("content with the control", 30, 5, false, 0.8), judged("sometimes content with that", 30, 5, false, 0.4),
	))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("standard error %.4f\n", r.StdError)
	fmt.Println(experiment.Decide(s, r))
	// Output:
	// standard error 0.0371
	// promote users judge the candidate better: a difference of +0.200 (+0.076 to +0.324 at level 0.05) between 300 conversations of 60 units with it and 300 of 60 without
}
