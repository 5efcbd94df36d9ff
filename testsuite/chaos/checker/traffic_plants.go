package checker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// trafficPlant is something wrong that is put into sound evidence, and what the checker says
// of it.
type trafficPlant struct {
	name  string
	spoil func(*TrafficEvidence)
	want  string // a part of a sentence
}

// UnnoticedTraffic puts each thing that can be wrong with a run that learns from
// conversations into a copy of the evidence about one, and returns what the checker does not
// notice. The run must be sound, have two segments, and have had every kind of request and
// of feedback. If a user was forgotten, it must also have promoted or withdrawn a version by an
// experiment, have had redacted replies, and have learned from others than the user.
func UnnoticedTraffic(e TrafficEvidence) ([]string, error) {
	if f := CheckTraffic(e); len(e.Records.Segments) < 2 || f.Traffic.Replies == 0 || f.Traffic.Unrecorded == 0 || f.Traffic.SentAgain == 0 || f.Traffic.Accepted == 0 || f.Traffic.Refused == 0 {
		return []string{fmt.Sprintf("the run is too small to test the checker with: %+v", *f.Traffic)}, nil
	}
	plants := trafficPlants()
	if e.Forgotten != nil {
		plants = append(plants, experimentPlants()...)
	}
	var out []string
	for _, p := range plants {
		spoiled, err := e.clone()
		if err != nil {
			return nil, err
		}
		if err := p.plant(&spoiled); err != nil {
			out = append(out, err.Error())
			continue
		}
		f := CheckTraffic(spoiled)
		if said := strings.Join(slices.Concat(f.Wrong, f.Repeated), "\n"); !strings.Contains(said, p.want) {
			out = append(out, fmt.Sprintf("%s: the checker says nothing of %q", p.name, p.want))
		}
	}
	return out, nil
}

// plant spoils the evidence. It returns an error if the evidence has nothing of the kind that
// the plant spoils, for which spoil looks by index.
func (p trafficPlant) plant(e *TrafficEvidence) (err error) {
	defer func() {
		if failure := recover(); failure != nil {
			err = fmt.Errorf("%s: the run is too small to test the checker with: %v", p.name, failure)
		}
	}()
	p.spoil(e)
	return nil
}

// clone returns evidence that can be changed without changing e.
func (e TrafficEvidence) clone() (out TrafficEvidence, err error) {
	data, err := json.Marshal(e)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	for i, s := range e.Records.Segments {
		out.Records.Segments[i].At = s.At // JSON leaves it out
	}
	return out, err
}

// request returns the first request of a kind that has a reply, of those that are on record
// whole if they consent.
func (e *TrafficEvidence) request(consents bool) *ServedRequest {
	return &e.Requests[slices.IndexFunc(e.Requests, func(r ServedRequest) bool { return r.Consents == consents && e.whole(r) })]
}

// whole reports whether a request has a reply, and nothing of it was redacted or forgotten.
func (e *TrafficEvidence) whole(r ServedRequest) bool {
	return r.Reply.ID != "" && !r.Redacted && !e.forgets(r.User)
}

// kept returns the first segment whose batch is there.
func (e *TrafficEvidence) kept() *Segment {
	return &e.Records.Segments[slices.IndexFunc(e.Records.Segments, func(s Segment) bool { return e.Batches[s.Step].Sampled != nil })]
}

// call returns the call of the first request that has to be on record.
func (e *TrafficEvidence) call() *ServedCall {
	id := e.request(true).Reply.ID
	return &e.Records.Calls[slices.IndexFunc(e.Records.Calls, func(c ServedCall) bool { return c.ID == id })]
}

// given returns the first accepted feedback, and the first that was refused.
func (e *TrafficEvidence) given() (accepted, refused *GivenFeedback) {
	yes := slices.IndexFunc(e.Feedback, func(g GivenFeedback) bool { return g.Want == 0 && g.accepted() && !e.ofForgotten(g) })
	no := slices.IndexFunc(e.Feedback, func(g GivenFeedback) bool {
		return g.Want != 0 && g.Want != http.StatusConflict && len(g.Statuses) > 0
	})
	return &e.Feedback[yes], &e.Feedback[no]
}

// row returns the row of the first accepted feedback.
func (e *TrafficEvidence) row() *FeedbackRow {
	accepted, _ := e.given()
	id := accepted.row()
	return &e.Records.Feedback[slices.IndexFunc(e.Records.Feedback, func(r FeedbackRow) bool { return r.ID == id })]
}

func trafficPlants() []trafficPlant {
	return slices.Concat(replyTrafficPlants(), feedbackPlants(), segmentPlants())
}

func replyTrafficPlants() []trafficPlant {
	return []trafficPlant{
		{"a reply is lost", func(e *TrafficEvidence) {
			id := e.request(true).Reply.ID
			e.Records.Calls = slices.DeleteFunc(e.Records.Calls, func(c ServedCall) bool { return c.ID == id })
		}, "and is not on record"},
		{"a reply is on record twice", func(e *TrafficEvidence) { e.Records.Calls = append(e.Records.Calls, *e.call()) }, "is on record twice"},
		{"a request has two replies", func(e *TrafficEvidence) {
			again := *e.call()
			again.ID, again.Seq = "another", again.Seq+1
			e.Records.Calls = append(e.Records.Calls, again)
		}, "and another on record"},
		{"a reply has another text", func(e *TrafficEvidence) { e.request(true).Reply.Content += "!" }, "on record it is"},
		{"a call has another number", func(e *TrafficEvidence) { e.call().Seq += 7 }, "has the number"},
		{"a call is of other weights", func(e *TrafficEvidence) { e.call().Weights = "sha256:00" }, "which is not version"},
		{"a call is of another version", func(e *TrafficEvidence) { e.call().Version++ }, "its conversation"},
		{"a conversation is gone", func(e *TrafficEvidence) {
			n := e.call().Task
			e.Records.Conversations = slices.DeleteFunc(e.Records.Conversations, func(c TrafficConversation) bool { return c.Number == n })
		}, "which is not on record"},
		{"a conversation is another client's", func(e *TrafficEvidence) {
			for i := range e.Records.Conversations {
				e.Records.Conversations[i].Client = "nobody"
			}
		}, `on record to "nobody"`},
		{"a conversation is split", func(e *TrafficEvidence) {
			r := *e.request(true)
			other := slices.IndexFunc(e.Requests, func(o ServedRequest) bool { return o.Consents && e.whole(o) && o.Dialog != r.Dialog })
			e.Requests[other].Dialog = r.Dialog
		}, "one conversation of client"},
		{"two conversations are one", func(e *TrafficEvidence) {
			c := *e.call()
			other := slices.IndexFunc(e.Records.Calls, func(o ServedCall) bool {
				return o.Task != c.Task && slices.ContainsFunc(e.Requests, func(r ServedRequest) bool { return r.Reply.ID == o.ID && e.whole(r) })
			})
			e.Records.Calls[other].Task = c.Task
		}, "has requests of two conversations"},
		{"a reply is on record without consent", func(e *TrafficEvidence) {
			c := *e.call()
			c.ID, c.Key, c.Seq = e.request(false).Reply.ID, "another", c.Seq+1
			e.Records.Calls = append(e.Records.Calls, c)
		}, "is on record without consent"},
		{"what came to nobody is on record without consent", func(e *TrafficEvidence) { e.opening().Request = e.request(false).Text }, "is on record without consent: it begins with"},
		{"nobody asked", func(e *TrafficEvidence) { e.opening().Request = "?" }, "that no client sent"},
		{"a name is on record", func(e *TrafficEvidence) {
			at := slices.IndexFunc(e.Requests, func(r ServedRequest) bool { return r.User != "" && r.Consents && !e.forgets(r.User) })
			c := e.opening()
			c.Request = e.Requests[at].Text + e.Requests[at].User
		}, "has the name of its user on record"},
		{"a request that is sent again gets another reply", func(e *TrafficEvidence) {
			at := slices.IndexFunc(e.Requests, func(r ServedRequest) bool { return r.Consents && len(r.Again) > 0 && e.whole(r) })
			e.Requests[at].Again[0].ID = "another"
		}, "and with another when it was sent again"},
		{"nobody sampled a reply", func(e *TrafficEvidence) { e.call().Seed++ }, "and nobody sampled it"},
		{"the run has not ended", func(e *TrafficEvidence) { e.Completed = false }, "completed in its history: false"},
	}
}

// opening returns the first call of a conversation.
func (e *TrafficEvidence) opening() *ServedCall {
	return &e.Records.Calls[slices.IndexFunc(e.Records.Calls, func(c ServedCall) bool { return c.Seq == 0 })]
}

func feedbackPlants() []trafficPlant {
	return []trafficPlant{
		{"accepted feedback is lost", func(e *TrafficEvidence) {
			id := e.row().ID
			e.Records.Feedback = slices.DeleteFunc(e.Records.Feedback, func(r FeedbackRow) bool { return r.ID == id })
		}, "was accepted and is not on record"},
		{"feedback is on record twice", func(e *TrafficEvidence) { e.Records.Feedback = append(e.Records.Feedback, *e.row()) }, "is on record twice"},
		{"feedback says something else", func(e *TrafficEvidence) {
			reward := 0.75
			e.row().Reward = &reward
		}, "on record it is 0.75"},
		{"feedback is about another reply", func(e *TrafficEvidence) { e.row().Reply = "another" }, "of reply another by client"},
		{"refused feedback is on record", func(e *TrafficEvidence) {
			_, refused := e.given()
			row := *e.row()
			row.ID, row.Step = refused.row(), 0
			e.Records.Feedback = append(e.Records.Feedback, row)
		}, "was refused and is on record"},
		{"feedback is on record that nobody gave", func(e *TrafficEvidence) {
			row := *e.row()
			row.ID, row.Step = "ada/another", 0
			e.Records.Feedback = append(e.Records.Feedback, row)
		}, "and no client gave it"},
		{"forged feedback is accepted", func(e *TrafficEvidence) {
			_, refused := e.given()
			refused.Statuses = append(refused.Statuses, http.StatusCreated)
		}, "got status 201 instead of"},
		{"feedback is refused", func(e *TrafficEvidence) {
			accepted, _ := e.given()
			accepted.Statuses = append(accepted.Statuses, http.StatusNotFound)
		}, "got status 404"},
		{"feedback is recorded twice", func(e *TrafficEvidence) {
			accepted, _ := e.given()
			accepted.Statuses = []int{http.StatusCreated, http.StatusCreated}
		}, "was recorded 2 times"},
	}
}

func segmentPlants() []trafficPlant {
	first := func(e *TrafficEvidence) *Segment { return e.kept() }
	return []trafficPlant{
		{"feedback is used twice", func(e *TrafficEvidence) {
			e.Records.Segments[1].Feedback = append(e.Records.Segments[1].Feedback, e.Records.Segments[0].Feedback[0])
		}, "is used by the segments 1 and 2"},
		{"used feedback is not marked", func(e *TrafficEvidence) {
			for i := range e.Records.Feedback {
				e.Records.Feedback[i].Step = 0
			}
		}, "is marked as used by segment 0"},
		{"feedback that is not on record is used", func(e *TrafficEvidence) { first(e).Feedback = append(first(e).Feedback, "ada/another") }, "uses feedback ada/another"},
		{"a segment is missing", func(e *TrafficEvidence) { e.Records.Segments = e.Records.Segments[1:] }, "stands in the place of segment 1"},
		{"a segment has another parent", func(e *TrafficEvidence) { first(e).Parent = 9 }, "is for version 9"},
		{"a version is missing", func(e *TrafficEvidence) { e.Records.Versions = slices.Delete(e.Records.Versions, 1, 2) }, "version 1 of segment 1 is not on record"},
		{"a version has another parent", func(e *TrafficEvidence) { e.Records.Versions[1].Parent = 9 }, "version 1 was made from version 9"},
		{"a version has another batch", func(e *TrafficEvidence) { e.Records.Versions[1].Batch = "sha256:00" }, `was trained on "sha256:00"`},
		{"a segment has a reply more", func(e *TrafficEvidence) { first(e).Replies++ }, "its feedback is about"},
		{"a batch lacks a conversation", func(e *TrafficEvidence) {
			sampled := e.Batches[first(e).Step].Sampled
			for n := range sampled {
				delete(sampled, n)
				return
			}
		}, "lacks the replies of conversation"},
		{"a batch has other tokens", func(e *TrafficEvidence) {
			for _, tokens := range e.Batches[first(e).Step].Sampled {
				tokens[0]++
			}
		}, "or others"},
		{"a batch has a conversation that nobody judged", func(e *TrafficEvidence) { e.Batches[first(e).Step].Sampled[1<<20] = []int32{1} }, "of conversation 1048576"},
		{"a version is decided on twice", func(e *TrafficEvidence) {
			e.Records.Decisions = append(e.Records.Decisions, Decision{Candidate: 1, Verdict: "refused"})
		}, "version 1 was decided on 2 times"},
		{"a version is not decided on", func(e *TrafficEvidence) {
			e.Records.Decisions = slices.DeleteFunc(e.Records.Decisions, func(d Decision) bool { return d.Candidate == 1 })
			e.Records.Promotions = slices.DeleteFunc(e.Records.Promotions, func(p Promotion) bool { return p.Version == 1 })
		}, "version 1 was decided on 0 times"},
	}
}
