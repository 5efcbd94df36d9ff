package search

import (
	"cmp"
	"math"
	"slices"
)

// mergeTasks is the number of validation tasks on which a merged candidate is tried, and
// the number that its parents must share.
const mergeTasks = 5

// mergeTries is how often a pair is drawn, and how often that is repeated.
const mergeTries = 10

// merging combines two candidates that are not dominated, such that neither descends from
// the other, and an ancestor of both is no better than either. A prompt that one of them
// changed since that ancestor comes from that one; one that both changed, from the better
// one. At least one prompt has to be of the first kind.
//
// The result is tried on five validation tasks: up to two on which the first is better, two
// on which the second is, and others. It is measured on all if it is no worse there than
// the better of the two. A merge is due after each addition to the archive, and is tried
// right after one; a candidate that is tried and rejected leaves it due. When as many merges
// were accepted as the settings allow, no further one becomes due. Those that are due
// already still happen, as in the package, so there may be a few more.
type merging struct {
	Due      int `json:"due"`
	Accepted int `json:"accepted"`
	// Found says that the proposal before added a candidate by reflection.
	Found bool `json:"found"`
	// Triples are the parents and ancestors that were combined.
	Triples [][3]int `json:"triples,omitempty"`
	// Origins are the parents, and for each prompt the one that it comes from.
	Origins [][]int `json:"origins,omitempty"`
}

// schedule notes that reflection added a candidate.
func (m *merging) schedule(options GEPASettings) {
	if options.Merge {
		m.Found = true
		if m.Accepted < options.Merges {
			m.Due++
		}
	}
}

func (m *merging) accepted() {
	m.Due--
	m.Accepted++
}

// beginMerge starts a proposal that merges, if one is due and there is one.
func (g *GEPA) beginMerge() bool {
	m := &g.Merging
	due := m.Found && m.Due > 0 && len(g.Whole) >= mergeTasks
	m.Found = false
	if !due {
		return false
	}
	c, i, j, ok := g.merge()
	if !ok {
		return false
	}
	places := g.trialTasks(i, j)
	g.Work = work{Phase: phaseMerged, Parents: []int{i, j}, Candidate: &c}
	for _, place := range places {
		g.Work.Tasks = append(g.Work.Tasks, g.Whole[place])
	}
	return g.request(g.minibatch(g.id("merge"), c, SplitValidation, g.Work.Tasks))
}

// merge draws pairs until one makes a new candidate.
func (g *GEPA) merge() (c Candidate, i, j int, ok bool) {
	among := slices.Compact(g.fronts.tickets(g.Archive))
	if len(among) < 2 || len(g.Archive) < 3 {
		return c, 0, 0, false
	}
	for range mergeTries {
		i, j, ancestor, ok := g.pair(among)
		if !ok {
			continue
		}
		prompts, origin := g.combine(i, j, ancestor)
		origin = append([]int{i, j}, origin...)
		if slices.ContainsFunc(g.Merging.Origins, func(old []int) bool { return slices.Equal(old, origin) }) {
			continue
		}
		g.Merging.Origins = append(g.Merging.Origins, origin)
		g.Merging.Triples = append(g.Merging.Triples, [3]int{i, j, ancestor})
		return NewCandidate(prompts, g.Archive[i].Candidate, g.Archive[j].Candidate), i, j, true
	}
	return c, 0, 0, false
}

// pair draws two candidates that can be merged, i < j, and an ancestor of both, the better
// the likelier.
func (g *GEPA) pair(among []int) (i, j, ancestor int, ok bool) {
	a := g.Archive
	for range mergeTries {
		two := g.Chance.sample(among, 2)
		i, j = min(two[0], two[1]), max(two[0], two[1])
		ofI, ofJ := a.ancestors(i), a.ancestors(j)
		if slices.Contains(ofI, j) || slices.Contains(ofJ, i) {
			continue
		}
		var common []int
		var weights []float64
		for _, ancestor := range ofI {
			if slices.Contains(ofJ, ancestor) && g.mergeable(i, j, ancestor) {
				common, weights = append(common, ancestor), append(weights, a[ancestor].Mean)
			}
		}
		if len(common) > 0 {
			return i, j, g.Chance.weighted(common, weights), true
		}
	}
	return 0, 0, 0, false
}

func (g *GEPA) mergeable(i, j, ancestor int) bool {
	a := g.Archive
	if slices.Contains(g.Merging.Triples, [3]int{i, j, ancestor}) || a[ancestor].Mean > min(a[i].Mean, a[j].Mean) {
		return false
	}
	for k, old := range a[ancestor].Candidate.Prompts {
		one, other := a[i].Candidate.Prompts[k], a[j].Candidate.Prompts[k]
		if one != other && (one == old || other == old) {
			return true
		}
	}
	return false
}

// combine returns the merged prompts, and the candidate that each comes from.
func (g *GEPA) combine(i, j, ancestor int) (prompts []Prompt, origin []int) {
	a := g.Archive
	for k, old := range a[ancestor].Candidate.Prompts {
		one, other := a[i].Candidate.Prompts[k], a[j].Candidate.Prompts[k]
		from := i
		switch {
		case one == old && other != old:
			from = j
		case one != old && other != old: // both changed it, perhaps alike
			from = g.better(i, j)
		}
		prompts = append(prompts, a[from].Candidate.Prompts[k])
		origin = append(origin, from)
	}
	return prompts, origin
}

// better returns the candidate with the higher mean, or one at random.
func (g *GEPA) better(i, j int) int {
	switch cmp.Compare(g.Archive[i].Mean, g.Archive[j].Mean) {
	case 1:
		return i
	case -1:
		return j
	}
	return []int{i, j}[g.Chance.below(2)]
}

// trialTasks draws the places of the validation tasks on which a merged candidate is tried.
func (g *GEPA) trialTasks(i, j int) []int {
	var first, second, equal []int
	for place := range g.Whole {
		switch one, other := *g.Archive[i].Scores[place], *g.Archive[j].Scores[place]; {
		case one > other:
			first = append(first, place)
		case other > one:
			second = append(second, place)
		default:
			equal = append(equal, place)
		}
	}
	share := int(math.Ceil(mergeTasks / 3.0))
	var chosen []int
	for _, from := range [][]int{first, second, equal} {
		if n := min(len(from), share, mergeTasks-len(chosen)); n > 0 {
			chosen = append(chosen, g.Chance.sample(from, n)...)
		}
	}
	if n := mergeTasks - len(chosen); n > 0 {
		unused := slices.DeleteFunc(numbers(len(g.Whole)), func(place int) bool { return slices.Contains(chosen, place) })
		chosen = append(chosen, g.Chance.sample(unused, n)...)
	}
	return chosen
}

// parentSums returns what each parent has on the tasks of a merge.
func (g *GEPA) parentSums(w work) []*float64 {
	var sums []*float64
	for _, parent := range w.Parents {
		var have []*float64
		for _, task := range w.Tasks {
			have = append(have, g.Archive[parent].Scores[slices.Index(g.Whole, task)])
		}
		total := sum(have)
		sums = append(sums, &total)
	}
	return sums
}

// mergedEvaluated compares the merged candidate with its parents. It need not be better,
// because it costs no reflection.
func (g *GEPA) mergedEvaluated(results []Result) []Decision {
	w := &g.Work
	w.Child = scores(results)
	sums := g.parentSums(*w)
	switch {
	case slices.Contains(w.Child, nil):
		return g.conclude(g.comparison(Unmeasured))
	case sum(w.Child) < max(*sums[0], *sums[1]):
		return g.conclude(g.comparison(Rejected))
	}
	return g.beginValidation()
}
