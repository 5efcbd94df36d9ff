package search

import (
	"fmt"
	"slices"
)

// phase is what GEPA waits for.
type phase string

const (
	phaseSeed     phase = "seed"     // the seed's validation
	phaseParent   phase = "parent"   // the parent's scores on the minibatch
	phaseReflect  phase = "reflect"  // a new text
	phaseChild    phase = "child"    // the candidate's scores on the minibatch
	phaseMerged   phase = "merged"   // a merged candidate's scores on tasks that its parents have
	phaseValidate phase = "validate" // an accepted candidate's validation
)

// GEPA improves prompts by reflection and keeps a Pareto archive. Each proposal
//
//  1. chooses a parent among the candidates that no other dominates, each as often as it is
//     the best on a validation task,
//  2. evaluates it on a minibatch, and proposes nothing if it is perfect there,
//  3. asks the reflector for a new text of one prompt, in turn, given those attempts,
//  4. evaluates the result on the same minibatch, and drops it unless its sum is higher,
//  5. measures it on the whole validation split, and adds it to the archive.
//
// After an addition, a proposal may instead combine two candidates that have a common
// ancestor. See merge.go.
//
// It decides as the package gepa 0.1.4 does with one proposal at a time, reflection on one
// prompt, the "instance" front and full validations. It differs on purpose where the
// package has no answer or a wrong one: scores may be missing (the package counts failures
// as 0), a text that is unchanged is refused before rollouts are spent on it, no proposal
// begins whose validation the budget does not cover, and a search ends when everything is
// solved or nothing helps. As in the package, the archive may have two candidates with the
// same texts: merges often make one again.
type GEPA struct {
	state
	Options GEPASettings `json:"options"`
	Archive archive      `json:"archive"`
	Epochs  epochs       `json:"epochs"`
	Merging merging      `json:"merging"`
	// Proposal counts the proposals. It is -1 before the first.
	Proposal int `json:"proposal"`
	// Idle is the number of proposals since the best mean rose.
	Idle int  `json:"idle"`
	Work work `json:"work"`

	fronts fronts
}

// work is the proposal under way.
type work struct {
	Phase phase `json:"phase"`
	// Parents are numbers: one, or two of a merge.
	Parents []int `json:"parents,omitempty"`
	// Prompt is the index of the prompt that is changed.
	Prompt int `json:"prompt"`
	// Results are the parent's on the minibatch, without those that have no score.
	Results []Result `json:"results,omitempty"`
	// Tasks are the validation tasks on which a merged candidate is tried.
	Tasks []int `json:"tasks,omitempty"`
	// Candidate is the proposed one, and Child its scores where it was tried.
	Candidate *Candidate `json:"candidate,omitempty"`
	Child     []*float64 `json:"child,omitempty"`
	// Measured is the candidate's validation.
	Measured *measurement `json:"measured,omitempty"`
}

// NewGEPA returns the search that starts with the validation of the seed. An error names
// the setting that is wrong. It wraps ErrBudget if the budget does not cover one candidate.
func NewGEPA(s Settings, options GEPASettings) (*GEPA, error) {
	if err := s.complete(); err != nil {
		return nil, err
	}
	if err := options.complete(s); err != nil {
		return nil, err
	}
	g := &GEPA{state: newState(AlgorithmGEPA, s), Options: options, Proposal: -1}
	seed := NewCandidate(s.Prompts)
	g.Work = work{Phase: phaseSeed, Candidate: &seed, Measured: newMeasurement("seed", seed, g.Whole)}
	g.measure(g.Work.Measured)
	return g, nil
}

// Answer is part of Search.
func (g *GEPA) Answer(a Answer) ([]Decision, error) {
	if _, err := g.take(a); err != nil {
		return nil, err
	}
	switch g.Work.Phase {
	case phaseParent:
		return g.parentEvaluated(a.Results), nil
	case phaseReflect:
		return g.reflected(a), nil
	case phaseChild:
		return g.childEvaluated(a.Results), nil
	case phaseMerged:
		return g.mergedEvaluated(a.Results), nil
	default:
		return g.validated(a.Results), nil
	}
}

// begin starts the next proposal, or ends the search.
func (g *GEPA) begin() {
	if g.ended() {
		return
	}
	g.Proposal++
	if !g.beginMerge() {
		g.beginReflection()
	}
}

// Stopped is part of Search.
func (g *GEPA) Stopped() Done {
	if len(g.Archive) == 0 {
		return Done{Reason: EndStopped, Winner: NewCandidate(g.Settings.Prompts)}
	}
	best := g.Archive[g.Archive.best()]
	return Done{Reason: EndStopped, Winner: best.Candidate, Score: &best.Mean, SeedScore: &g.Archive[0].Mean, Excluded: g.excluded()}
}

func (g *GEPA) ended() bool {
	best, done := g.Archive[g.Archive.best()], g.Stopped()
	switch purpose, short := g.short(g.Options.proposal(g.Settings)); {
	case g.perfect(best.Scores):
		done.Reason = EndSolved
	case g.Settings.Patience > 0 && g.Idle >= g.Settings.Patience:
		done.Reason = EndNoProgress
	case short:
		done.Reason, done.Purpose = EndBudget, purpose
	default:
		return false
	}
	g.End, g.Work = &done, work{}
	return true
}

func (g *GEPA) beginReflection() {
	tickets := g.fronts.tickets(g.Archive)
	parent := tickets[g.Chance.below(len(tickets))]
	tasks := g.Epochs.batch(&g.Chance, g.Settings.Train, g.Options.Minibatch, g.Proposal)
	g.Work = work{Phase: phaseParent, Parents: []int{parent}}
	g.request(g.minibatch(g.id("parent"), g.Archive[parent].Candidate, SplitTrain, tasks))
}

func (g *GEPA) id(name string) string { return fmt.Sprintf("p%d.%s", g.Proposal, name) }

// parentEvaluated takes the parent's scores. Tasks without one leave the minibatch.
func (g *GEPA) parentEvaluated(results []Result) []Decision {
	w := &g.Work
	parent := &g.Archive[w.Parents[0]]
	w.Results = scored(results)
	switch {
	case len(w.Results) == 0:
		return g.conclude(Decision{Verdict: Unmeasured, Tasks: tasks(results), Before: scores(results)})
	case *g.Options.SkipPerfect && g.perfect(scores(w.Results)):
		return g.conclude(Decision{Verdict: Perfect, Tasks: tasks(w.Results), Before: scores(w.Results)})
	}
	w.Prompt = parent.NextPrompt
	parent.NextPrompt = (parent.NextPrompt + 1) % len(g.Settings.Prompts)
	w.Phase = phaseReflect
	g.request(Request{
		ID: g.id("reflect"), Kind: Reflect, Candidate: parent.Candidate,
		Prompt: g.Settings.Prompts[w.Prompt].Name, Shown: w.Results,
	})
	return nil
}

func (g *GEPA) reflected(a Answer) []Decision {
	w := &g.Work
	c, why := g.proposed(a, g.Archive[w.Parents[0]].Candidate, w.Prompt)
	if why != "" {
		return g.conclude(Decision{Verdict: Refused, Refusal: why})
	}
	w.Candidate, w.Phase = &c, phaseChild
	if !g.request(g.minibatch(g.id("child"), c, SplitTrain, tasks(w.Results))) {
		return g.conclude(Decision{Verdict: Unmeasured}) // retries have used up the budget
	}
	return nil
}

// childEvaluated compares the candidate with its parent. A candidate that misses a score
// which its parent has is not compared, so it can't gain by failing to finish.
func (g *GEPA) childEvaluated(results []Result) []Decision {
	w := &g.Work
	w.Child = scores(results)
	d := Decision{Tasks: tasks(results), Before: scores(w.Results), After: w.Child}
	switch {
	case slices.Contains(w.Child, nil):
		d.Verdict = Unmeasured
	case sum(w.Child) <= sum(d.Before):
		d.Verdict = Rejected
	default:
		return g.beginValidation()
	}
	return g.conclude(d)
}

func (g *GEPA) beginValidation() []Decision {
	w := &g.Work
	w.Phase = phaseValidate
	w.Measured = newMeasurement(g.id("validate"), *w.Candidate, g.Whole)
	if !g.measure(w.Measured) {
		return g.conclude(g.comparison(Unmeasured)) // retries have used up the budget
	}
	return nil
}

func (g *GEPA) validated(results []Result) []Decision {
	w := &g.Work
	w.Measured.add(results)
	switch {
	case g.measure(w.Measured):
		return nil // it asks for missing scores once more
	case w.Phase == phaseSeed:
		return g.seeded()
	case !w.Measured.whole():
		return g.conclude(g.comparison(Unmeasured))
	}
	d := g.comparison(Accepted)
	before := g.Archive[g.Archive.best()].Mean
	e := entry{Candidate: *w.Candidate, Parents: w.Parents, Scores: w.Measured.Scores, Mean: mean(w.Measured.Scores)}
	for _, parent := range w.Parents {
		e.NextPrompt = max(e.NextPrompt, g.Archive[parent].NextPrompt)
	}
	g.Archive = append(g.Archive, e)
	d.Score, d.Best = &e.Mean, e.Mean > before
	if len(w.Parents) == 2 {
		g.Merging.accepted()
	} else {
		g.Merging.schedule(g.Options)
	}
	return g.conclude(d)
}

// seeded makes the archive.
func (g *GEPA) seeded() []Decision {
	m := g.Work.Measured
	d := Decision{Proposal: -1, Verdict: Unmeasured, Candidate: &m.Candidate}
	if !g.seedMeasured(m) {
		g.End, g.Work = &Done{Reason: EndUnmeasured, Winner: m.Candidate, Excluded: g.excluded()}, work{}
		return []Decision{d}
	}
	e := entry{Candidate: m.Candidate, Scores: m.Scores, Mean: mean(m.Scores)}
	g.Archive = archive{e}
	d.Verdict, d.Score, d.Best = Measured, &e.Mean, true
	g.begin()
	return []Decision{d}
}

// comparison returns a decision about a candidate that was compared with its parents.
func (g *GEPA) comparison(v Verdict) Decision {
	w := g.Work
	d := Decision{Verdict: v, After: w.Child, Tasks: tasks(w.Results), Before: scores(w.Results)}
	if len(w.Parents) == 2 {
		d.Tasks, d.Before = w.Tasks, g.parentSums(w)
	}
	return d
}

// conclude ends the proposal with a decision, and begins the next.
func (g *GEPA) conclude(d Decision) []Decision {
	w := g.Work
	d.Proposal, d.Candidate, d.Merge = g.Proposal, w.Candidate, len(w.Parents) == 2
	for _, parent := range w.Parents {
		d.Parents = append(d.Parents, g.Archive[parent].Candidate.ID)
	}
	if !d.Merge && (w.Candidate != nil || d.Refusal != "") {
		d.Prompt = g.Settings.Prompts[w.Prompt].Name
	}
	if g.Idle++; d.Best {
		g.Idle = 0
	}
	g.begin()
	return []Decision{d}
}
