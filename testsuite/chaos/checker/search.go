package checker

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SearchEvidence is everything about one run that searches for prompts.
type SearchEvidence struct {
	Records SearchRecords
	History History
	// Earlier are the replies that searches before it recorded. Equal questions get them.
	Earlier []Reflection
	// Questions are what the reflector was asked, and Samples what the task model was, by
	// their own accounts, in any run.
	Questions []Question
	Samples   []Sample
	// GatewayHangs are those of gateways, and WorkerHangs those of the workers that ask the
	// reflector. WorkerFaults is how often such a worker was killed or suspended.
	GatewayHangs, WorkerHangs []Hang
	WorkerFaults              int
}

// Question is a question to the reflector that it replied to.
type Question struct {
	Run    string
	Digest string // of all that it was told, but for its model's name
	Asked  time.Time
	// Model is what it called itself in the reply, which it does only once, and Text its
	// reply.
	Model, Text string
}

// Sample is a request to the task model. Within a run, the seed names the call.
type Sample struct {
	Run   string
	Seed  uint64 // without its lowest bit, as servers get it
	Asked time.Time
}

// The kinds of rollouts that a search pays for.
const (
	minibatch  = "minibatch"
	validation = "validation"
)

// CheckSearch checks a run that searches for prompts. DifferSearch compares it with another.
func CheckSearch(e SearchEvidence) Findings {
	f := Findings{Run: e.Records.Run, Attempts: len(e.Records.Attempts), Reflections: len(e.Records.Reflections)}
	f.Completed = e.Records.Status == "completed" && e.History.Completed
	if !f.Completed {
		f.wrong("the run is %q in the store, and completed in its history: %v", e.Records.Status, e.History.Completed)
	}
	checkAnswers(&f, e)
	checkRollouts(&f, e)
	checkBudget(&f, e)
	checkReplies(&f, e)
	checkQuestions(&f, e)
	checkPromptVersions(&f, e)
	checkTaskModel(&f, e)
	return f
}

// checkAnswers looks for requests with no answer or more than one. The numbers of answers
// and of the requests for evaluations follow each other.
func checkAnswers(f *Findings, e SearchEvidence) {
	answered := map[string]bool{}
	for i, a := range e.Records.Answers {
		if a.Number != i {
			f.wrong("answer %d stands in the place of answer %d", a.Number, i)
		}
		if answered[a.Request] {
			f.wrong("request %s has two answers", a.Request)
		}
		answered[a.Request] = true
		if asks := len(a.Results) == 0; asks != (a.Reflection != "") {
			f.wrong("the answer to request %s has %d results and the reply %q; it must have one of both", a.Request, len(a.Results), a.Reflection)
		}
	}
	if len(answered) == 0 {
		f.wrong("no request has an answer")
	}
	for _, a := range e.Records.Attempts {
		if (a.Kind == minibatch || a.Kind == validation) && a.Step >= len(e.Records.Answers) {
			f.wrong("request %d was evaluated, and only %d have answers", a.Step, len(e.Records.Answers))
			return
		}
	}
}

// checkRollouts compares the results in answers with the attempts on record.
func checkRollouts(f *Findings, e SearchEvidence) {
	attempts := map[RolloutAddress][]SearchAttempt{}
	served := map[string]string{} // digests of prompts, by request
	for _, a := range e.Records.Attempts {
		attempts[a.RolloutAddress] = append(attempts[a.RolloutAddress], a)
		request := fmt.Sprintf("%s-%d", a.Kind, a.Step)
		if before, ok := served[request]; ok && before != a.Prompts && (a.Kind == minibatch || a.Kind == validation) {
			f.wrong("the attempts of %s were served two candidates, %s and %s", request, before, a.Prompts)
		}
		served[request] = a.Prompts
	}
	for address, all := range attempts {
		whole := 0
		for _, a := range all {
			if a.Outcome == "completed" {
				whole++
			}
			if a.Outcome == "completed" && a.Reward == nil {
				f.wrong("attempt %d of %v is complete and has no reward", a.Number, address)
			}
		}
		if whole != 1 {
			f.wrong("%d attempts of %v are complete", whole, address)
		}
	}
	counted := map[RolloutAddress]string{}
	for _, a := range e.Records.Answers {
		checkResults(f, e.Records.Run, a, attempts, counted)
	}
	for address := range attempts {
		if _, ok := counted[address]; !ok && (address.Kind == minibatch || address.Kind == validation) {
			f.wrong("%v was attempted, and no answer counts it", address)
		}
	}
}

// checkResults checks the results of one answer, and notes their rollouts in counted.
func checkResults(f *Findings, run string, a SearchAnswer, attempts map[RolloutAddress][]SearchAttempt, counted map[RolloutAddress]string) {
	for _, result := range a.Results {
		sum := 0.0
		for _, one := range result.Attempts {
			address, number, err := parseTrace(run, one.Trace)
			if err != nil {
				f.wrong("the answer to request %s: %v", a.Request, err)
				continue
			}
			if other, ok := counted[address]; ok {
				f.wrong("%v counts for request %s and for %s", address, other, a.Request)
			}
			counted[address] = a.Request
			f.spend(address.Kind)
			i := slices.IndexFunc(attempts[address], func(a SearchAttempt) bool { return a.Number == number })
			switch {
			case i < 0:
				f.wrong("request %s counts attempt %d of %v, which is not on record", a.Request, number, address)
			case one.Reward == nil:
				f.wrong("request %s counts attempt %d of %v without a reward", a.Request, number, address)
			case attempts[address][i].Outcome != "completed" || attempts[address][i].Reward == nil || *attempts[address][i].Reward != *one.Reward:
				f.wrong("request %s counts attempt %d of %v with the reward %v, and it is on record as %q", a.Request, number, address, *one.Reward, attempts[address][i].Outcome)
			}
			if one.Reward != nil {
				sum += *one.Reward
			}
		}
		if n := float64(len(result.Attempts)); n == 0 || result.Score == nil || math.Abs(*result.Score-sum/n) > 1e-12 {
			f.wrong("the score of task %d in request %s is not the mean of its %d attempts", result.Task, a.Request, len(result.Attempts))
		}
	}
}

// spend counts a rollout.
func (f *Findings) spend(kind string) {
	switch kind {
	case minibatch:
		f.Spent.Minibatch++
	case validation:
		f.Spent.Validation++
	default:
		f.wrong("a rollout of kind %s counts in a search", kind)
	}
}

// parseTrace reads the address of an attempt of a run.
func parseTrace(run, trace string) (RolloutAddress, int, error) {
	parts := strings.Split(trace, "/")
	if len(parts) != 5 || parts[0] != run {
		return RolloutAddress{}, 0, fmt.Errorf("%q is no attempt of run %s", trace, run)
	}
	kind, step, _ := strings.Cut(parts[1], "-")
	var n [4]int
	for i, text := range []string{step, parts[2], parts[3], parts[4]} {
		var err error
		if n[i], err = strconv.Atoi(text); err != nil {
			return RolloutAddress{}, 0, fmt.Errorf("%q is no attempt: %w", trace, err)
		}
	}
	return RolloutAddress{kind, n[0], n[1], n[2]}, n[3], nil
}

// checkBudget compares what was spent with the budget, and with what the workflow says.
func checkBudget(f *Findings, e SearchEvidence) {
	for _, a := range e.Records.Answers {
		if len(a.Results) == 0 {
			f.Spent.Reflections++
		}
		if a.Retries != 0 {
			f.wrong("the answer to request %s was paid for %d times more", a.Request, a.Retries)
		}
	}
	budget := e.Records.Budget
	if f.Spent.Minibatch > budget.Minibatch || f.Spent.Validation > budget.Validation || f.Spent.Reflections > budget.Reflections {
		f.wrong("the search spent %+v, and its budget is %+v", f.Spent, budget)
	}
	if said := e.History.Search.Search.Spent; said != f.Spent {
		f.wrong("the run says that it spent %+v, and %+v is on record", said, f.Spent)
	}
}

// checkReplies compares the recorded replies with the answers: each belongs to one.
func checkReplies(f *Findings, e SearchEvidence) {
	read := map[string]string{}
	for _, a := range e.Records.Answers {
		if a.Reflection == "" {
			continue
		}
		if other, ok := read[a.Reflection]; ok {
			f.wrong("requests %s and %s were answered from the same reply", other, a.Request)
		}
		read[a.Reflection] = a.Request
		known := slices.Concat(e.Records.Reflections, e.Earlier)
		i := slices.IndexFunc(known, func(r Reflection) bool { return r.Key == a.Reflection })
		switch {
		case i < 0:
			f.wrong("request %s was answered from reply %s, which this run did not record", a.Request, a.Reflection)
		case !strings.Contains(known[i].Text, a.Text):
			f.wrong("the answer to request %s is not in its reply", a.Request)
		case (a.Text == "") == (a.Refusal == ""):
			f.wrong("the answer to request %s has the text %q and the refusal %q", a.Request, a.Text, a.Refusal)
		}
	}
	for _, r := range e.Records.Reflections {
		if request, ok := read[r.Key]; !ok || request != r.Request {
			f.wrong("reply %s is on record for request %s, and was read for %q", r.Key, r.Request, request)
		}
	}
}

// checkQuestions compares the recorded replies with those that the reflector gave. A reply
// may get lost before it is recorded, with the worker that asked; the reflector is then
// asked again. A question whose reply is recorded must never be asked again.
func checkQuestions(f *Findings, e SearchEvidence) {
	given := map[string]Question{} // by the model's name
	asked := map[string][]Question{}
	for _, q := range e.Questions {
		if q.Run == e.Records.Run {
			given[q.Model] = q
			asked[q.Digest] = append(asked[q.Digest], q)
		}
	}
	stored := map[string]Reflection{} // by the question
	for _, r := range e.Records.Reflections {
		q, ok := given[r.Model]
		if !ok || q.Text != r.Text {
			f.wrong("reply %s is on record, and no reflector gave it", r.Key)
			continue
		}
		if other, ok := stored[q.Digest]; ok {
			f.wrong("replies %s and %s are to the same question", other.Key, r.Key)
		}
		stored[q.Digest] = r
	}
	for digest, all := range asked {
		r, ok := stored[digest]
		if !ok {
			f.wrong("the reflector was asked %d times at %s, and no reply is on record", len(all), all[0].Asked.UTC().Format(timeOfDay))
			continue
		}
		for _, q := range all {
			switch {
			case q.Model == r.Model:
			case earliestRequest(q.Asked, e.WorkerHangs).After(r.At):
				f.ReflectedAgain++
				f.wrong("reply %s was recorded at %s and asked for again at %s", r.Key, r.At.UTC().Format(timeOfDay), q.Asked.UTC().Format(timeOfDay))
			default:
				f.ReflectionsLost++
			}
		}
	}
	if f.ReflectionsLost > e.WorkerFaults {
		f.wrong("%d replies were lost, and workers that ask had %d faults", f.ReflectionsLost, e.WorkerFaults)
	}
}

// checkPromptVersions compares the versions of the prompts with the winner and the pointer.
func checkPromptVersions(f *Findings, e SearchEvidence) {
	r, end := e.Records, e.History.Search.SearchEnd
	if len(r.Versions) != end.Version+1 {
		f.wrong("there are %d versions of the prompts, and the winner is version %d", len(r.Versions), end.Version)
		return
	}
	for i, v := range r.Versions {
		if v.Number != i || v.Parent != i-1 {
			f.wrong("version %d of the prompts comes from %d and stands in the place of %d", v.Number, v.Parent, i)
		}
	}
	if got := r.Versions[end.Version].Prompts; got != end.Prompts {
		f.wrong("version %d of the prompts has %s, and the run returned %s", end.Version, got, end.Prompts)
	}
	moved, decided := -1, map[int]int{}
	for _, d := range r.Decisions {
		decided[d.Candidate]++
		if d.Verdict == "" {
			moved = max(moved, d.Candidate)
		}
	}
	for candidate, n := range decided {
		if n > 1 {
			f.wrong("version %d of the prompts was decided on %d times", candidate, n)
		}
	}
	if end.Version > 0 && decided[end.Version] == 0 {
		f.wrong("nothing was decided about version %d of the prompts", end.Version)
	}
	if r.Promoted != moved || r.Promoted != e.History.Search.Promoted {
		f.wrong("the pointer is at version %d of the prompts, its moves end at %d, and the run returned %d", r.Promoted, moved, e.History.Search.Promoted)
	}
}

// checkTaskModel compares the recorded calls with what the task model was asked.
func checkTaskModel(f *Findings, e SearchEvidence) {
	first := map[uint64]Call{} // on record
	for _, c := range e.Records.Calls {
		if c.ReplayedFrom == 0 {
			f.CallsRecorded++
		} else {
			f.CallsReplayed++
		}
		if earlier, ok := first[c.Seed>>1]; !ok || c.Recorded.Before(earlier.Recorded) {
			first[c.Seed>>1] = c
		}
	}
	asked := map[uint64][]Sample{}
	for _, s := range e.Samples {
		if s.Run == e.Records.Run {
			asked[s.Seed] = append(asked[s.Seed], s)
		}
	}
	for seed, all := range asked {
		call, recorded := first[seed]
		again := 0
		for _, s := range all {
			if recorded && earliestRequest(s.Asked, e.GatewayHangs).After(call.Recorded) {
				again++
				f.Repeated = append(f.Repeated, fmt.Sprintf("call %d of %s %v was recorded by attempt %d at %s and the task model asked again at %s",
					call.Seq, f.Run, call.RolloutAddress, call.Attempt, call.Recorded.UTC().Format(timeOfDay), s.Asked.UTC().Format(timeOfDay)))
			}
		}
		f.RecordedCallsSampledAgain += again
		f.SampledUnrecorded += len(all) - again
		if recorded && again < len(all) {
			f.SampledUnrecorded-- // one of them is the recorded call
		}
	}
	for seed, c := range first {
		if len(asked[seed]) == 0 {
			f.wrong("call %d of %v, attempt %d, is on record, and the task model was not asked", c.Seq, c.RolloutAddress, c.Attempt)
		}
	}
}

// DifferSearch lists how the outcome of a search differs from that of another with the same
// spec. Nothing may differ but times and the numbers of attempts.
func DifferSearch(a, b SearchEvidence) []string {
	var out []string
	compare := func(what string, of func(SearchEvidence) map[string]string) {
		one, other := of(a), of(b)
		for _, key := range sortedKeys(one, other) {
			if x, y := one[key], other[key]; x != y {
				out = append(out, fmt.Sprintf("%s %s: %s of %s, %s of %s", what, key, orNone(x), a.Records.Run, orNone(y), b.Records.Run))
			}
		}
	}
	compare("answer to", answersOf)
	compare("candidate of", candidatesOf)
	compare("reply to", repliesOf)
	compare("version", versionsOf)
	compare("decision on version", decisionsOf)
	compare("evaluation", evaluationsOf)
	compare("result:", resultOf)
	return out
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func sortedKeys(all ...map[string]string) []string {
	var keys []string
	for _, m := range all {
		for key := range m {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// number writes a number that may be missing.
func number(x *float64) string {
	if x == nil {
		return "none"
	}
	return strconv.FormatFloat(*x, 'g', -1, 64)
}

// answersOf returns the answers by request, without times, run and numbers of attempts.
func answersOf(e SearchEvidence) map[string]string {
	out := map[string]string{}
	for _, a := range e.Records.Answers {
		text := fmt.Sprintf("text %q refusal %q", a.Text, a.Refusal)
		for _, r := range a.Results {
			text += fmt.Sprintf("; task %d score %s", r.Task, number(r.Score))
			for _, one := range r.Attempts {
				rollout := strings.TrimPrefix(one.Trace, e.Records.Run+"/")
				rollout = rollout[:max(0, strings.LastIndexByte(rollout, '/'))]
				text += fmt.Sprintf(" %s %s", rollout, number(one.Reward))
			}
		}
		out[a.Request] = text
	}
	return out
}

// candidatesOf returns the digests of what attempts were served, by kind and number of the
// request.
func candidatesOf(e SearchEvidence) map[string]string {
	out := map[string]string{}
	for _, a := range e.Records.Attempts {
		out[fmt.Sprintf("%s-%d", a.Kind, a.Step)] = a.Prompts
	}
	return out
}

func repliesOf(e SearchEvidence) map[string]string {
	out := map[string]string{}
	for _, r := range e.Records.Reflections {
		out[r.Request] += fmt.Sprintf("%q", r.Text)
	}
	return out
}

func versionsOf(e SearchEvidence) map[string]string {
	out := map[string]string{}
	for _, v := range e.Records.Versions {
		out[strconv.Itoa(v.Number)] = fmt.Sprintf("from %d, %s, candidate %s", v.Parent, v.Prompts, v.Candidate)
	}
	return out
}

func decisionsOf(e SearchEvidence) map[string]string {
	out := map[string]string{}
	for _, d := range e.Records.Decisions {
		out[strconv.Itoa(d.Candidate)] += fmt.Sprintf("after %d, %q, %s, %s", d.Before, d.Verdict, d.Reason, d.Evidence)
	}
	return out
}

func evaluationsOf(e SearchEvidence) map[string]string {
	out := map[string]string{}
	for _, one := range e.Records.Evaluations {
		out[fmt.Sprintf("%s of version %d", one.Kind, one.Version)] += fmt.Sprintf("%d rollouts, mean %v;", one.Rollouts, one.Mean)
	}
	return out
}

func resultOf(e SearchEvidence) map[string]string {
	r := e.History.Search
	return map[string]string{
		"promoted": strconv.Itoa(r.Promoted), "spent": fmt.Sprintf("%+v", r.Search.Spent),
		"candidates": fmt.Sprintf("%d of %d proposals, %d refused", r.Search.Candidates, r.Search.Proposals, r.Search.Refused),
		"winner":     fmt.Sprintf("version %d, %s, score %s, seed %s", r.SearchEnd.Version, r.SearchEnd.Prompts, number(r.SearchEnd.Score), number(r.SearchEnd.SeedScore)),
		"end":        r.SearchEnd.Reason + " " + r.SearchEnd.Purpose,
	}
}
