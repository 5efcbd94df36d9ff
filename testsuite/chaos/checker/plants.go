package checker

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// plant is something wrong that is put into sound evidence, and what the checker says of
// it.
type plant struct {
	name  string
	spoil func(*SearchEvidence)
	want  string // a part of a sentence
}

// Unnoticed puts each thing that can be wrong with a search into a copy of the evidence
// about one, and returns what the checker does not notice. The search must be sound, have a
// winner that was promoted, and be equal to the baseline.
func Unnoticed(baseline, e SearchEvidence) ([]string, error) {
	if n := len(e.Records.Versions); n != 2 || len(e.Records.Decisions) == 0 {
		return []string{fmt.Sprintf("the search has no winner to test the checker with: it has %d versions", n)}, nil
	}
	var out []string
	for _, p := range plants() {
		spoiled, err := e.clone()
		if err != nil {
			return nil, err
		}
		p.spoil(&spoiled)
		f := CheckSearch(spoiled)
		said := strings.Join(slices.Concat(f.Wrong, f.Repeated, DifferSearch(baseline, spoiled)), "\n")
		if !strings.Contains(said, p.want) {
			out = append(out, fmt.Sprintf("%s: the checker says nothing of %q", p.name, p.want))
		}
	}
	return out, nil
}

// clone returns evidence that can be changed without changing e.
func (e SearchEvidence) clone() (SearchEvidence, error) {
	data, err := json.Marshal(e.Records)
	if err != nil {
		return e, err
	}
	e.Records = SearchRecords{}
	e.Questions, e.Samples = slices.Clone(e.Questions), slices.Clone(e.Samples)
	return e, json.Unmarshal(data, &e.Records)
}

// measured and reflected return the place of the first answer with results, and of the last
// one that was read from a reply.
func (e *SearchEvidence) measured() int {
	return slices.IndexFunc(e.Records.Answers, func(a SearchAnswer) bool { return len(a.Results) > 0 })
}

func (e *SearchEvidence) reflected() (first, last int) {
	first = -1
	for i, a := range e.Records.Answers {
		if a.Reflection != "" {
			if last = i; first < 0 {
				first = i
			}
		}
	}
	return first, last
}

func plants() []plant {
	return slices.Concat(answerPlants(), replyPlants(), recordPlants())
}

func answerPlants() []plant {
	return []plant{
		{"an answer is lost", func(e *SearchEvidence) { e.Records.Answers = slices.Delete(e.Records.Answers, 1, 2) }, "stands in the place of answer 1"},
		{"the last answer is lost", func(e *SearchEvidence) { e.Records.Answers = e.Records.Answers[:len(e.Records.Answers)-1] }, "answer to "},
		{"a request has two answers", func(e *SearchEvidence) {
			again := e.Records.Answers[0]
			again.Number = len(e.Records.Answers)
			e.Records.Answers = append(e.Records.Answers, again)
		}, "has two answers"},
		{"a rollout counts twice", func(e *SearchEvidence) {
			r := e.Records.Answers[e.measured()].Results
			r[1].Attempts = r[0].Attempts
		}, "counts for request"},
		{"another reward counts", func(e *SearchEvidence) {
			reward := 17.0
			e.Records.Answers[e.measured()].Results[0].Attempts[0].Reward = &reward
		}, "with the reward 17"},
		{"a reward is missing", func(e *SearchEvidence) { e.Records.Answers[e.measured()].Results[0].Attempts[0].Reward = nil }, "without a reward"},
		{"a score is missing", func(e *SearchEvidence) { e.Records.Answers[e.measured()].Results[0].Score = nil }, "is not the mean of its"},
		{"an attempt that counts is not on record", func(e *SearchEvidence) {
			e.Records.Attempts = slices.DeleteFunc(e.Records.Attempts, func(a SearchAttempt) bool { return a.Step == 0 && a.Task == 0 && a.Kind == validation })
		}, "which is not on record"},
		{"an attempt that counts failed", func(e *SearchEvidence) {
			for i := range e.Records.Attempts {
				e.Records.Attempts[i].Outcome = "infra_fault"
			}
		}, `it is on record as "infra_fault"`},
		{"a rollout is complete twice", func(e *SearchEvidence) {
			again := e.Records.Attempts[slices.IndexFunc(e.Records.Attempts, func(a SearchAttempt) bool { return a.Outcome == "completed" })]
			again.Number += 50
			e.Records.Attempts = append(e.Records.Attempts, again)
		}, "2 attempts of"},
		{"a rollout counts nowhere", func(e *SearchEvidence) {
			more := e.Records.Attempts[0]
			more.RolloutAddress = RolloutAddress{minibatch, 1, 99, 0}
			e.Records.Attempts = append(e.Records.Attempts, more)
		}, "was attempted, and no answer counts it"},
		{"a request is evaluated and not answered", func(e *SearchEvidence) {
			more := e.Records.Attempts[0]
			more.RolloutAddress = RolloutAddress{minibatch, 9999, 0, 0}
			e.Records.Attempts = append(e.Records.Attempts, more)
		}, "request 9999 was evaluated"},
	}
}

func replyPlants() []plant {
	return []plant{
		{"another text was read", func(e *SearchEvidence) {
			first, _ := e.reflected()
			e.Records.Answers[first].Text = "nobody wrote this"
		}, "is not in its reply"},
		{"a reply is lost", func(e *SearchEvidence) { e.Records.Reflections = e.Records.Reflections[1:] }, "which this run did not record"},
		{"a reply is read twice", func(e *SearchEvidence) {
			first, last := e.reflected()
			e.Records.Answers[last].Reflection = e.Records.Answers[first].Reflection
		}, "were answered from the same reply"},
		{"nobody gave a reply", func(e *SearchEvidence) { e.Records.Reflections[0].Model = "other" }, "no reflector gave it"},
		{"a reply was paid for and not recorded", func(e *SearchEvidence) {
			e.Questions = append(e.Questions, Question{Run: e.Records.Run, Digest: "another", Model: "another"})
		}, "and no reply is on record"},
		{"a recorded reply is asked for again", func(e *SearchEvidence) {
			e.askAgain(e.Records.Reflections[0].At.Add(time.Hour))
		}, "and asked for again at"},
		{"more replies are lost than workers", func(e *SearchEvidence) {
			for range e.WorkerFaults + 1 {
				e.askAgain(time.Unix(0, 0))
			}
		}, "replies were lost, and workers that ask had"},
	}
}

// askAgain adds a question like that of the first reply on record.
func (e *SearchEvidence) askAgain(at time.Time) {
	i := slices.IndexFunc(e.Questions, func(q Question) bool { return q.Model == e.Records.Reflections[0].Model && q.Run == e.Records.Run })
	again := e.Questions[i]
	again.Model, again.Asked = fmt.Sprintf("again-%d", len(e.Questions)), at
	e.Questions = append(e.Questions, again)
}

func recordPlants() []plant {
	return []plant{
		{"a request has two candidates", func(e *SearchEvidence) { e.Records.Attempts[len(e.Records.Attempts)-1].Prompts = "other" }, "were served two candidates"},
		{"there is another candidate", func(e *SearchEvidence) {
			for i, a := range e.Records.Attempts {
				if a.Kind == validation && a.Step == 0 {
					e.Records.Attempts[i].Prompts = "other"
				}
			}
		}, "candidate of validation-0"},
		{"there is another winner", func(e *SearchEvidence) { e.Records.Versions[1].Prompts = "other" }, "version 1 of the prompts has other"},
		{"a version comes from another", func(e *SearchEvidence) { e.Records.Versions[1].Parent = -1 }, "version 1 of the prompts comes from -1"},
		{"the winner is no version", func(e *SearchEvidence) { e.Records.Versions = e.Records.Versions[:1] }, "there are 1 versions of the prompts"},
		{"the pointer is elsewhere", func(e *SearchEvidence) { e.Records.Promoted += 7 }, "the pointer is at version"},
		{"the winner was not tested", func(e *SearchEvidence) { e.Records.Decisions = nil }, "nothing was decided about version 1"},
		{"the winner was tested twice", func(e *SearchEvidence) { e.Records.Decisions = append(e.Records.Decisions, e.Records.Decisions...) }, "was decided on 2 times"},
		{"the test found something else", func(e *SearchEvidence) { e.Records.Decisions[len(e.Records.Decisions)-1].Evidence += " " }, "decision on version"},
		{"an evaluation has another mean", func(e *SearchEvidence) { e.Records.Evaluations[0].Mean += 0.1 }, "evaluation "},
		{"more was spent than the budget", func(e *SearchEvidence) { e.Records.Budget.Reflections = 0 }, "and its budget is"},
		{"the run says that it spent less", func(e *SearchEvidence) { e.History.Search.Search.Spent.Minibatch-- }, "the run says that it spent"},
		{"the run did not complete", func(e *SearchEvidence) { e.Records.Status = "running" }, `the run is "running"`},
		{"a recorded call is asked for again", func(e *SearchEvidence) {
			c := e.Records.Calls[0]
			e.Samples = append(e.Samples, Sample{Run: e.Records.Run, Seed: c.Seed >> 1, Asked: c.Recorded.Add(time.Hour)})
		}, "the task model asked again"},
		{"nobody sampled a call", func(e *SearchEvidence) { e.Samples = nil }, "the task model was not asked"},
	}
}
