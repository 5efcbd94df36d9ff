package checker

import (
	"slices"
	"time"
)

// experimentPlants are for runs that compare versions in use, redact texts and forget a user.
func experimentPlants() []trafficPlant {
	return slices.Concat(assignmentPlants(), comparisonPlants(), redactionPlants(), forgottenPlants())
}

// conversationIn returns the first conversation that takes part in an experiment and has a user,
// or the first that takes part in none.
func (e *TrafficEvidence) conversationIn(experiment bool) *TrafficConversation {
	return &e.Records.Conversations[slices.IndexFunc(e.Records.Conversations, func(c TrafficConversation) bool {
		return (c.Experiment > 0) == experiment && (!experiment || c.Person != "")
	})]
}

// looked returns the first experiment that had something to count.
func (e *TrafficEvidence) looked() *ExperimentRow {
	return &e.Records.Experiments[slices.IndexFunc(e.Records.Experiments, func(x ExperimentRow) bool {
		return !x.Until.IsZero() && x.Candidate.Conversations > 0 && x.Against.Conversations > 0
	})]
}

func assignmentPlants() []trafficPlant {
	return []trafficPlant{
		{"a user has both versions of an experiment", func(e *TrafficEvidence) {
			other := *e.conversationIn(true)
			other.Number, other.Candidate = 1<<20, !other.Candidate
			e.Records.Conversations = append(e.Records.Conversations, other)
		}, "has both versions of the experiment"},
		{"a conversation has the other version of an experiment", func(e *TrafficEvidence) { e.conversationIn(true).Version = 77 }, "its part in the experiment is version"},
		{"a version answers that nobody promoted", func(e *TrafficEvidence) { e.conversationIn(false).Version = 77 }, "version 77, which nobody promoted"},
		{"a conversation takes part in no experiment on record", func(e *TrafficEvidence) { e.conversationIn(true).Experiment = 77 }, "an experiment with version 77, which is not on record"},
		{"a conversation changes its version", func(e *TrafficEvidence) {
			dialogs := map[int]bool{}
			for i, r := range e.Requests {
				if r.Consents && r.Reply.ID != "" && dialogs[r.Dialog] {
					e.Requests[i].Reply.Version += 7
					return
				}
				dialogs[r.Dialog] = dialogs[r.Dialog] || r.Consents && r.Reply.ID != ""
			}
			panic("no conversation has two replies")
		}, "the conversation before it by version"},
	}
}

func comparisonPlants() []trafficPlant {
	return []trafficPlant{
		{"an experiment counts too much", func(e *TrafficEvidence) { e.looked().Candidate.Conversations += 1000 }, "(of the candidate: true), on record are"},
		{"an experiment counts too little", func(e *TrafficEvidence) { e.looked().Against.Conversations = 0 }, "counts 0 judged conversations (of the candidate: false)"},
		{"an experiment has not ended", func(e *TrafficEvidence) { e.Records.Experiments[0].Status = "running" }, "after the end of the run"},
		{"two experiments go on at once", func(e *TrafficEvidence) {
			e.Records.Experiments[1].Begun = e.Records.Experiments[0].Ended.Add(-time.Millisecond)
		}, "had ended"},
		{"a version is decided on otherwise than its experiment ended", func(e *TrafficEvidence) {
			x := &e.Records.Experiments[0]
			x.Status = map[string]string{experimentPromoted: experimentEnded, experimentWithdrawn: experimentEnded, experimentEnded: experimentWithdrawn}[x.Status]
		}, "its experiment is"},
		{"a version that was refused is compared in use", func(e *TrafficEvidence) {
			id := e.Records.Experiments[0].ID
			e.Records.Promotions = slices.DeleteFunc(e.Records.Promotions, func(p Promotion) bool { return p.Version == id })
			e.Records.Decisions = slices.DeleteFunc(e.Records.Decisions, func(d Decision) bool { return d.Candidate == id })
			e.Records.Decisions = append(e.Records.Decisions, Decision{Candidate: id, Verdict: verdictRefused})
		}, "is refused, its experiment is"},
		{"the version that users like less is preferred", func(e *TrafficEvidence) {
			for i, r := range e.Records.Feedback {
				if r.Reward != nil {
					less := -*r.Reward
					e.Records.Feedback[i].Reward = &less
				}
			}
		}, "say otherwise"},
	}
}

// rewritten returns the first reply on record to a request of which a text was rewritten.
func (e *TrafficEvidence) rewritten() *ServedCall {
	return &e.Records.Calls[slices.IndexFunc(e.Records.Calls, func(c ServedCall) bool {
		return slices.ContainsFunc(e.Requests, func(r ServedRequest) bool { return r.Redacted && r.Reply.ID == c.ID })
	})]
}

func redactionPlants() []trafficPlant {
	return []trafficPlant{
		{"a redacted reply has tokens", func(e *TrafficEvidence) { e.rewritten().Tokens = []int32{1} }, "and texts of it were rewritten"},
		{"a redacted reply has the tokens of its prompt", func(e *TrafficEvidence) { e.rewritten().Prompted = 1 }, "has the tokens of its prompt on record"},
		{"a reply has no tokens", func(e *TrafficEvidence) { e.call().Tokens = nil }, "and no text of it was rewritten"},
		{"a conversation is not marked as redacted", func(e *TrafficEvidence) {
			n := e.rewritten().Task
			for i, c := range e.Records.Conversations {
				if c.Number == n {
					e.Records.Conversations[i].Redacted = false
				}
			}
		}, "is marked as redacted: false"},
		{"a redacted conversation is trained on", func(e *TrafficEvidence) {
			s, n := e.kept(), e.rewritten().Task
			if at := slices.Index(s.Conversations, n); at >= 0 {
				s.Calls[at] = 1 << 20
			} else {
				s.Conversations, s.Calls = append(s.Conversations, n), append(s.Calls, 1<<20)
			}
			e.Batches[s.Step].Sampled[n] = []int32{1}
		}, "of which texts were rewritten"},
		{"a text is on record that had to be taken out", func(e *TrafficEvidence) {
			r := e.Requests[slices.IndexFunc(e.Requests, func(r ServedRequest) bool { return r.Redacted && r.Planted != "" && r.Consents })]
			e.opening().Request = r.Text + " " + r.Planted
		}, "which had to be taken out"},
		{"a text is left somewhere", func(e *TrafficEvidence) { e.Leftovers = []string{"table calls"} }, "that must not be on record is in table calls"},
	}
}

func forgottenPlants() []trafficPlant {
	said := func(e *TrafficEvidence) ServedRequest {
		return e.Requests[slices.IndexFunc(e.Requests, func(r ServedRequest) bool { return e.forgets(r.User) && r.Reply.ID != "" })]
	}
	return []trafficPlant{
		{"a forgotten conversation is on record", func(e *TrafficEvidence) {
			e.Records.Conversations = append(e.Records.Conversations, TrafficConversation{Number: e.Forgotten.Conversations[0]})
		}, "of the forgotten user is on record"},
		{"a call of a forgotten conversation is on record", func(e *TrafficEvidence) {
			c := *e.call()
			c.Task = e.Forgotten.Conversations[0]
			e.Records.Calls = append(e.Records.Calls, c)
		}, "calls of conversation"},
		{"a reply to a forgotten user is on record", func(e *TrafficEvidence) { e.call().ID = said(e).Reply.ID }, "to the forgotten user is on record"},
		{"a conversation of a forgotten user is on record under another number", func(e *TrafficEvidence) { e.opening().Request = said(e).Text }, "and its user was forgotten"},
		{"feedback of a forgotten user is on record", func(e *TrafficEvidence) {
			row := *e.row()
			at := slices.IndexFunc(e.Feedback, func(g GivenFeedback) bool { return g.Want == 0 && e.ofForgotten(g) })
			row.ID = e.Feedback[at].row()
			e.Records.Feedback = append(e.Records.Feedback, row)
		}, "or on a reply to the user, is on record"},
		{"a batch that learned from a forgotten user is there", func(e *TrafficEvidence) {
			for step := range e.learnedFromForgotten() {
				e.Batches[step] = SegmentBatch{}
			}
		}, "which learned from the forgotten user, is there"},
		{"nobody was forgotten", func(e *TrafficEvidence) { e.Forgotten.Conversations = nil }, "had no conversation"},
	}
}
