package search

import (
	"cmp"
	"fmt"
	"slices"
)

// Numbers of texts that ask for a critique and for an edit. Which one is used is drawn.
const (
	critiqueVariants = 3
	editVariants     = 2
)

// APO improves prompts by critiques, the "textual gradients", and keeps a beam. Each round
//
//  1. chooses parents from the beam, each of which makes several proposals,
//  2. evaluates the parent of each proposal on a batch of train tasks of its own, asks the
//     reflector what is wrong with a prompt, given those attempts, and then for a text that
//     follows the critique,
//  3. compares the beam and the proposals on one batch of validation tasks, and keeps the
//     best as the new beam,
//  4. measures the first of the beam on the whole validation split. The winner is the
//     candidate with the highest such measurement.
//
// It decides as agentlightning 0.3.0 does, which has one prompt; of several, each proposal
// takes the next. It differs on purpose: proposals of a round don't wait for each other;
// scores may be missing (there a failed rollout counts 0, and an unfinished one leaves the
// mean); a critique that failed makes no candidate (there, a copy of its parent); equal
// candidates are compared once; a leader that was measured before is not measured again,
// because the higher of two measurements of the same texts is luck; a round has only as many
// proposals as the budget covers.
type APO struct {
	state
	Options APOSettings `json:"options"`
	// TrainTasks and ValidationTasks are the sources of batches.
	TrainTasks      stream `json:"train_tasks"`
	ValidationTasks stream `json:"validation_tasks"`
	// Round counts the rounds. It is -1 before the first.
	Round int `json:"round"`
	// Beam is ordered by score, best first.
	Beam []member `json:"beam"`
	// Best is the best that was measured on the whole validation split.
	Best       member     `json:"best"`
	BestScores []*float64 `json:"best_scores"`
	SeedScore  *float64   `json:"seed_score"`
	// Measured are the ids of the candidates that were measured on the whole split.
	Measured []string `json:"measured"`
	// Idle is the number of rounds since the best changed.
	Idle int `json:"idle"`
	// Proposals is the number of proposals so far.
	Proposals int `json:"proposals"`
	// Under way is one of: the proposals of a round, their comparison, or the measurement
	// of the seed or of a leader.
	Branches []branch       `json:"branches,omitempty"`
	Compared []*measurement `json:"compared,omitempty"`
	Leader   *measurement   `json:"leader,omitempty"`
}

// member is a candidate with its last score.
type member struct {
	Candidate Candidate `json:"candidate"`
	Score     *float64  `json:"score"`
	// Proposal is the number of the proposal that made the candidate, or -1.
	Proposal int `json:"proposal"`
}

// branch is one proposal of a round. Everything that is left to chance is drawn when the
// round begins.
type branch struct {
	Proposal int       `json:"proposal"`
	Parent   Candidate `json:"parent"`
	// Prompt is the index of the prompt that is changed.
	Prompt int `json:"prompt"`
	// Order is the order in which the reflector sees the attempts.
	Order           []int      `json:"order"`
	CritiqueVariant int        `json:"critique_variant"`
	EditVariant     int        `json:"edit_variant"`
	Candidate       *Candidate `json:"candidate,omitempty"`
}

// NewAPO returns the search that starts with the validation of the seed. An error names
// the setting that is wrong. It wraps ErrBudget if the budget does not cover one candidate.
func NewAPO(s Settings, options APOSettings) (*APO, error) {
	if err := s.complete(); err != nil {
		return nil, err
	}
	if err := options.complete(s); err != nil {
		return nil, err
	}
	a := &APO{state: newState(AlgorithmAPO, s), Options: options, Round: -1}
	a.Leader = newMeasurement("seed", NewCandidate(s.Prompts), a.Whole)
	a.measure(a.Leader)
	return a, nil
}

// Answer is part of Search.
func (a *APO) Answer(answer Answer) ([]Decision, error) {
	r, err := a.take(answer)
	if err != nil {
		return nil, err
	}
	switch {
	case a.Leader != nil:
		a.Leader.add(answer.Results)
		if a.measure(a.Leader) {
			return nil, nil
		}
		return a.leaderMeasured(), nil
	case len(a.Compared) > 0:
		i := slices.IndexFunc(a.Compared, func(m *measurement) bool { return m.owns(r.ID) })
		a.Compared[i].add(answer.Results)
		return a.compared(), nil
	default:
		i := slices.IndexFunc(a.Branches, func(b branch) bool { return a.id(b, string(r.Kind)) == r.ID })
		decisions := a.advance(&a.Branches[i], r, answer)
		return append(decisions, a.branched()...), nil
	}
}

// begin starts the next round, or ends the search.
func (a *APO) begin() {
	n, short := a.affordable()
	switch {
	case a.perfect(a.BestScores):
		a.end(EndSolved, "")
	case a.Settings.Patience > 0 && a.Idle >= a.Settings.Patience:
		a.end(EndNoProgress, "")
	case a.Round+1 == a.Options.Rounds:
		a.end(EndRounds, "")
	case n == 0:
		a.end(EndBudget, short)
	default:
		a.Round++
		a.beginRound(n)
	}
}

// Stopped is part of Search.
func (a *APO) Stopped() Done {
	if a.SeedScore == nil {
		return Done{Reason: EndStopped, Winner: NewCandidate(a.Settings.Prompts)}
	}
	return Done{Reason: EndStopped, Winner: a.Best.Candidate, Score: a.Best.Score, SeedScore: a.SeedScore, Excluded: a.excluded()}
}

func (a *APO) end(reason Reason, purpose Purpose) {
	a.End = &Done{
		Reason: reason, Purpose: purpose, Winner: a.Best.Candidate,
		Score: a.Best.Score, SeedScore: a.SeedScore, Excluded: a.excluded(),
	}
}

// affordable returns how many proposals a round may have such that the budget covers all
// that follows from them, and which part of the budget covers none.
func (a *APO) affordable() (n int, short Purpose) {
	batch := min(a.Options.ValidationBatch, a.Settings.Validation) * a.Settings.ValidationSamples
	fixed := len(a.Whole)*a.Settings.ValidationSamples + len(a.Beam)*batch
	n = a.Options.Beam * a.Options.Branch
	for _, p := range purposes() {
		covered := 0
		switch left := a.left(p); p {
		case PurposeMinibatch:
			covered = left / (min(a.Options.GradientBatch, a.Settings.Train) * a.Settings.Samples)
		case PurposeValidation:
			covered = max(0, left-fixed) / batch
		case PurposeReflections:
			covered = left / 2
		}
		if covered <= 0 && short == "" {
			short = p
		}
		n = max(0, min(n, covered))
	}
	return n, short
}

// beginRound starts n proposals. If these are not all, the parents share them evenly.
func (a *APO) beginRound(n int) {
	width, size := a.Options.Beam, a.Options.GradientBatch
	a.Branches = nil
	for p, place := range a.parents() {
		for b := range a.Options.Branch {
			if b*width+p >= n {
				break
			}
			tasks := a.TrainTasks.batch(&a.Chance, a.Settings.Train, size)
			one := branch{Proposal: a.Proposals, Parent: a.Beam[place].Candidate, Prompt: a.Proposals % len(a.Settings.Prompts)}
			one.CritiqueVariant = a.Chance.below(critiqueVariants)
			if one.Order = numbers(len(tasks)); len(tasks) == size {
				one.Order = a.Chance.sample(one.Order, size)
			}
			one.EditVariant = a.Chance.below(editVariants)
			a.Proposals++
			a.Branches = append(a.Branches, one)
			a.request(a.minibatch(a.id(one, string(Evaluate)), one.Parent, SplitTrain, tasks))
		}
	}
}

// parents returns the places in the beam of a round's parents.
func (a *APO) parents() []int {
	width := a.Options.Beam
	if len(a.Beam) >= width {
		return a.Chance.sample(numbers(len(a.Beam)), width)
	}
	places := numbers(width)
	for i := range places {
		places[i] %= len(a.Beam)
	}
	return places
}

func (a *APO) id(b branch, name string) string {
	return fmt.Sprintf("r%d.p%04d.%s", a.Round, b.Proposal, name)
}

// advance takes a proposal one request further.
func (a *APO) advance(b *branch, r Request, answer Answer) []Decision {
	switch r.Kind {
	case Evaluate:
		shown := make([]Result, 0, len(b.Order))
		for _, place := range b.Order {
			shown = append(shown, answer.Results[place])
		}
		if shown = scored(shown); len(shown) == 0 {
			return []Decision{a.decision(*b, Decision{Verdict: Unmeasured, Tasks: r.Tasks, Before: scores(answer.Results)})}
		}
		a.request(a.reflection(*b, Request{Kind: Critique, Variant: b.CritiqueVariant, Shown: shown}))
	case Critique:
		critique, why := a.text(answer)
		if why != "" {
			return []Decision{a.decision(*b, Decision{Verdict: Refused, Refusal: why})}
		}
		a.request(a.reflection(*b, Request{Kind: Edit, Variant: b.EditVariant, Critique: critique}))
	default:
		c, why := a.proposed(answer, b.Parent, b.Prompt)
		if why != "" {
			return []Decision{a.decision(*b, Decision{Verdict: Refused, Refusal: why})}
		}
		b.Candidate = &c
	}
	return nil
}

func (a *APO) reflection(b branch, r Request) Request {
	r.ID, r.Candidate, r.Prompt = a.id(b, string(r.Kind)), b.Parent, a.Settings.Prompts[b.Prompt].Name
	return r
}

func (a *APO) decision(b branch, d Decision) Decision {
	d.Proposal, d.Candidate, d.Prompt, d.Parents = b.Proposal, b.Candidate, a.Settings.Prompts[b.Prompt].Name, []string{b.Parent.ID}
	return d
}

// branched begins the comparison when all proposals of the round have ended.
func (a *APO) branched() []Decision {
	if len(a.Open) > 0 {
		return nil
	}
	tasks := a.validationBatch()
	for _, m := range a.Beam {
		a.Compared = append(a.Compared, newMeasurement(a.compareID(m.Candidate), m.Candidate, tasks))
	}
	var decisions []Decision
	for i, b := range a.Branches {
		switch {
		case b.Candidate == nil:
			continue // it has its decision
		case slices.ContainsFunc(a.Compared, func(m *measurement) bool { return m.Candidate.ID == b.Candidate.ID }):
			a.refused(RefusedKnown)
			decisions = append(decisions, a.decision(b, Decision{Verdict: Refused, Refusal: RefusedKnown}))
			a.Branches[i].Candidate = nil
		default:
			a.Compared = append(a.Compared, newMeasurement(a.compareID(*b.Candidate), *b.Candidate, tasks))
		}
	}
	return append(decisions, a.compared()...)
}

func (a *APO) compareID(c Candidate) string { return fmt.Sprintf("r%d.compare.%s", a.Round, c.ID) }

// validationBatch draws validation tasks until some of them count.
func (a *APO) validationBatch() []int {
	for {
		batch := a.ValidationTasks.batch(&a.Chance, a.Settings.Validation, a.Options.ValidationBatch)
		if batch = slices.DeleteFunc(batch, func(task int) bool { return !slices.Contains(a.Whole, task) }); len(batch) > 0 {
			return batch
		}
	}
}

// compared asks for scores that are missing, when nothing else is open. If there is nothing
// to ask for, it makes the new beam.
func (a *APO) compared() []Decision {
	if len(a.Open) > 0 {
		return nil
	}
	for _, m := range a.Compared {
		a.measure(m)
	}
	if len(a.Open) > 0 {
		return nil
	}
	decisions := a.selectBeam()
	a.Branches, a.Compared = nil, nil
	return append(decisions, a.beginLeader()...)
}

// selectBeam keeps the candidates with the highest means. A task that more than half of the
// candidates miss is at fault itself and counts for none. A candidate that misses another
// one leaves the round. If no candidate is left, the beam stays.
func (a *APO) selectBeam() []Decision {
	counts := a.countedPlaces()
	var beam []member
	for i, m := range a.Compared {
		var have []*float64
		for _, place := range counts {
			have = append(have, m.Scores[place])
		}
		if len(have) == 0 || slices.Contains(have, nil) {
			continue
		}
		score := mean(have)
		beam = append(beam, member{Candidate: m.Candidate, Score: &score, Proposal: a.proposalOf(i)})
	}
	slices.SortStableFunc(beam, func(x, y member) int { return cmp.Compare(*y.Score, *x.Score) })
	var decisions []Decision
	for _, b := range a.Branches {
		if b.Candidate == nil {
			continue
		}
		d := Decision{Verdict: Unmeasured}
		if place := slices.IndexFunc(beam, func(m member) bool { return m.Proposal == b.Proposal }); place >= 0 {
			d.Score, d.Verdict = beam[place].Score, Rejected
			if place < a.Options.Beam {
				d.Verdict = Accepted
			}
		}
		decisions = append(decisions, a.decision(b, d))
	}
	if len(beam) > 0 {
		a.Beam = beam[:min(len(beam), a.Options.Beam)]
	}
	return decisions
}

// countedPlaces returns the places in the batch of the tasks that count.
func (a *APO) countedPlaces() []int {
	var places []int
	for place := range a.Compared[0].Tasks {
		missing := 0
		for _, m := range a.Compared {
			if m.Scores[place] == nil {
				missing++
			}
		}
		if 2*missing <= len(a.Compared) {
			places = append(places, place)
		}
	}
	return places
}

// proposalOf returns the number of the proposal that made a compared candidate.
func (a *APO) proposalOf(i int) int {
	if i < len(a.Beam) {
		return a.Beam[i].Proposal
	}
	id := a.Compared[i].Candidate.ID
	return a.Branches[slices.IndexFunc(a.Branches, func(b branch) bool { return b.Candidate != nil && b.Candidate.ID == id })].Proposal
}

// beginLeader measures the first of the beam on the whole validation split, unless that is
// done. It begins the next round if there is nothing to measure.
func (a *APO) beginLeader() []Decision {
	leader := a.Beam[0].Candidate
	if !slices.Contains(a.Measured, leader.ID) {
		a.Leader = newMeasurement(fmt.Sprintf("r%d.leader", a.Round), leader, a.Whole)
		if a.measure(a.Leader) {
			return nil
		}
		a.Leader = nil // retries have used up the budget
	}
	a.Idle++
	a.begin()
	return nil
}

// leaderMeasured takes the measurement of the seed or of a leader.
func (a *APO) leaderMeasured() []Decision {
	m := a.Leader
	a.Leader = nil
	d := Decision{Proposal: -1, Verdict: Unmeasured, Candidate: &m.Candidate}
	if a.Round < 0 {
		a.Best = member{Candidate: m.Candidate, Proposal: -1}
		if !a.seedMeasured(m) {
			a.end(EndUnmeasured, "")
			return []Decision{d}
		}
		a.Beam = []member{a.Best}
	} else {
		d.Proposal, d.Parents = a.Beam[0].Proposal, m.Candidate.Parents
	}
	a.Idle++
	if m.whole() {
		a.Measured = append(a.Measured, m.Candidate.ID)
		score := mean(m.Scores)
		d.Verdict, d.Score = Measured, &score
		if d.Best = a.Best.Score == nil || score > *a.Best.Score; d.Best {
			a.Best = member{Candidate: m.Candidate, Score: &score, Proposal: d.Proposal}
			a.BestScores, a.Idle = m.Scores, 0
		}
		if a.Round < 0 {
			a.SeedScore = &score
		}
	}
	a.begin()
	return []Decision{d}
}
