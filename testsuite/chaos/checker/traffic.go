package checker

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// TrafficEvidence is everything about a run that learns from conversations with its own
// versions.
type TrafficEvidence struct {
	Records   TrafficRecords
	Completed bool                 // as Temporal says
	Batches   map[int]SegmentBatch // by step; one that was removed is absent
	Requests  []ServedRequest      // of the clients
	Feedback  []GivenFeedback      // of the clients
	// Forgotten is nil unless a user was forgotten.
	Forgotten *ForgottenUser
	// Leftovers are the places with a text that must not be on record anywhere.
	Leftovers []string
	// Generations are of any run, and Hangs those of gateways and samplers.
	Generations []Generation
	Hangs       []Hang
}

// ServedRequest is a request to a served version and what came of it, by the client's own
// account.
type ServedRequest struct {
	Client string // the name of its key
	// Dialog numbers the client's conversations, and Turn the requests of one.
	Dialog, Turn int
	// Text is what the user says. No other request says the same.
	Text string
	// Planted is said after it and must not be on record anywhere at the end, because a
	// redactor takes it out or its user is forgotten. It may be empty.
	Planted string
	// Redacted says that the redactor changed a text of the request.
	Redacted bool
	// User is the name of the user, or empty. It must be on record nowhere.
	User string
	// Consents says that the reply has to be recorded. Otherwise it must not be.
	Consents bool
	// Reply is what came whole; its ID is empty if nothing did.
	Reply ServedReply
	// Again are the replies to the same request, sent again after the reply had come.
	Again []ServedReply
}

// ServedReply is a reply as a client got it, and the version that its header names.
type ServedReply struct {
	ID, Content string
	Version     int
}

// GivenFeedback is feedback and how it was answered, by the client's own account.
type GivenFeedback struct {
	Client string // the name of its key, or empty for a key that nobody has
	ID     string
	// Reply is the id of a reply. If it is empty, the feedback is about the whole conversation
	// Dialog of the client, which calls it Conversation.
	Reply        string
	Conversation string
	Dialog       int
	Reward       float64
	// User is who says so, or empty, and Comment is said with it.
	User, Comment string
	// Want is the status of the only right refusal, or 0 if the feedback is to be accepted.
	Want int
	// Statuses are all answers of gateways, but for those that say to try again. Feedback is
	// sent until it has one, so without any it may be on record or not.
	Statuses []int
	// Answered is when the first answer came.
	Answered time.Time
}

// accepted reports whether a gateway has said that the feedback is on record.
func (g GivenFeedback) accepted() bool {
	return slices.Contains(g.Statuses, http.StatusCreated) || slices.Contains(g.Statuses, http.StatusOK)
}

// row is the id under which the feedback is on record.
func (g GivenFeedback) row() string { return g.Client + "/" + g.ID }

// TrafficFindings count what a run with served versions has on record.
type TrafficFindings struct {
	Requests int `json:"requests"`
	// Replies came whole to a client that consents. Each has to be on record once.
	Replies int `json:"replies"`
	// Unreceived replies are on record and came to no client whole.
	Unreceived int `json:"unreceived"`
	// Unrecorded replies came to clients that do not consent.
	Unrecorded int `json:"unrecorded"`
	// Lost and Doubled count replies and accepted feedback that are not on record, and what is
	// on record more than once. Both have to be 0.
	Lost    int `json:"lost"`
	Doubled int `json:"doubled"`
	// SentAgain counts requests that were sent again after their reply had come.
	SentAgain int `json:"sent_again"`
	Accepted  int `json:"feedback_accepted"`
	// Known counts answers that the feedback was on record before.
	Known    int `json:"feedback_known"`
	Refused  int `json:"feedback_refused"`
	Used     int `json:"feedback_used"`
	Segments int `json:"segments"`
	// Redacted replies are on record without tokens, and Forgotten requests were those of a
	// user who was forgotten.
	Redacted  int `json:"redacted"`
	Forgotten int `json:"forgotten"`
	// InExperiments counts conversations that took part in experiments. The others count how
	// these have ended.
	InExperiments int `json:"in_experiments"`
	Promoted      int `json:"experiments_promoted"`
	Withdrawn     int `json:"experiments_withdrawn"`
	Undecided     int `json:"experiments_undecided"`
}

// CheckTraffic checks a run that learns from conversations.
func CheckTraffic(e TrafficEvidence) Findings {
	f := Findings{Run: e.Records.Run, Completed: e.Records.Status == "stopped" && e.Completed, Traffic: &TrafficFindings{Requests: len(e.Requests)}}
	if !f.Completed {
		f.wrong("the run is %q in the store, and completed in its history: %v", e.Records.Status, e.Completed)
	}
	checkServedCalls(&f, e)
	checkServedReplies(&f, e)
	checkOpenings(&f, e)
	checkGivenFeedback(&f, e)
	checkUses(&f, e)
	checkSegments(&f, e)
	checkDecisions(&f, e)
	checkExperiments(&f, e)
	checkRedacted(&f, e)
	checkForgotten(&f, e)
	checkSampling(&f, Evidence{Records: Records{Run: e.Records.Run, Calls: e.sampled()}, Generations: e.Generations, Hangs: e.Hangs})
	f.CallsRecorded = len(e.Records.Calls)
	return f
}

// sampled returns the calls of the run, as checkSampling compares them. Redacted calls have the
// tokens that the sampler's log has of their seeds.
func (e TrafficEvidence) sampled() []Call {
	all := slices.Clone(e.Records.Rollouts)
	for _, c := range e.Records.Calls {
		call := c.Call
		if c.redacted() {
			if at := slices.IndexFunc(e.Generations, func(g Generation) bool { return g.Run == e.Records.Run && g.Seed == c.Seed }); at >= 0 {
				call.Tokens = e.Generations[at].Tokens
			}
		}
		all = append(all, call)
	}
	return all
}

// doubled adds a sentence about what is on record more than once, and lost about what is not.
func (f *Findings) doubled(format string, args ...any) {
	f.Traffic.Doubled++
	f.wrong(format, args...)
}

func (f *Findings) lost(format string, args ...any) {
	f.Traffic.Lost++
	f.wrong(format, args...)
}

// checkServedCalls checks the calls among themselves: no request has two replies on record,
// the calls of a conversation are numbered without a gap, and each is of its version.
func checkServedCalls(f *Findings, e TrafficEvidence) {
	ids, keys, next := map[string]bool{}, map[string]string{}, map[int]int{}
	weights := map[int]string{}
	for _, v := range e.Records.Versions {
		weights[v.Number] = strings.TrimPrefix(v.Weights, "sha256:")
	}
	for _, c := range e.Records.Calls {
		if ids[c.ID] {
			f.doubled("reply %s is on record twice", c.ID)
		}
		ids[c.ID] = true
		// A request of which texts were rewritten is sampled again if it is sent again.
		if other, ok := keys[c.Key]; ok && other != c.ID && !c.redacted() {
			f.doubled("one request has the replies %s and %s on record", other, c.ID)
		}
		keys[c.Key] = c.ID
		if c.Seq != next[c.Task] {
			f.wrong("reply %s has the number %d in conversation %d instead of %d", c.ID, c.Seq, c.Task, next[c.Task])
		}
		next[c.Task] = c.Seq + 1
		if strings.TrimPrefix(c.Weights, "sha256:") != weights[c.Version] {
			f.wrong("reply %s was sampled with %s, which is not version %d", c.ID, c.Weights, c.Version)
		}
		of, ok := e.Records.conversation(c.Task)
		switch {
		case !ok:
			f.wrong("reply %s belongs to conversation %d, which is not on record", c.ID, c.Task)
		case of.Version != c.Version:
			f.wrong("reply %s is of version %d, its conversation %d of version %d", c.ID, c.Version, c.Task, of.Version)
		}
	}
}

// checkServedReplies compares the clients' replies with the record.
func checkServedReplies(f *Findings, e TrafficEvidence) {
	calls := map[string]ServedCall{}
	for _, c := range e.Records.Calls {
		calls[c.ID] = c
	}
	received := map[string]bool{}
	conversations, dialogs := map[int]int{}, map[int]int{} // by dialog, and the other way round
	for _, r := range e.Requests {
		for _, again := range r.Again {
			f.Traffic.SentAgain++
			received[again.ID] = true
			if r.Consents && !r.Redacted && again != r.Reply {
				f.wrong("request %q was answered with %s, and with %s when it was sent again", r.Text, r.Reply.ID, again.ID)
			}
		}
		c, ok := calls[r.Reply.ID]
		switch {
		case r.Reply.ID == "":
			continue
		case !r.Consents:
			f.Traffic.Unrecorded++
			if ok {
				f.wrong("reply %s is on record without consent", r.Reply.ID)
			}
			continue
		case e.forgets(r.User):
			continue // checkForgotten looks for it
		}
		f.Traffic.Replies++
		received[r.Reply.ID] = true
		if !ok {
			f.lost("reply %s to %q came to client %s and is not on record", r.Reply.ID, r.Text, r.Client)
			continue
		}
		if id, content, err := c.reply(); err != nil || id != r.Reply.ID || content != r.Reply.Content {
			f.wrong("reply %s said %q, on record it is %q (%v)", r.Reply.ID, r.Reply.Content, content, err)
		}
		if of, _ := e.Records.conversation(c.Task); of.Client != r.Client {
			f.wrong("reply %s came to client %s, on record to %q", r.Reply.ID, r.Client, of.Client)
		}
		if n, ok := conversations[r.Dialog]; ok && n != c.Task {
			f.wrong("one conversation of client %s is on record as the conversations %d and %d", r.Client, n, c.Task)
		}
		if n, ok := dialogs[c.Task]; ok && n != r.Dialog {
			f.wrong("conversation %d on record has requests of two conversations, the last one %q", c.Task, r.Text)
		}
		conversations[r.Dialog], dialogs[c.Task] = c.Task, r.Dialog
	}
	for id := range calls {
		if !received[id] {
			f.Traffic.Unreceived++
		}
	}
}

// checkOpenings looks for texts and names in the first requests on record that must not be
// there. They are the requests that the store keeps whole.
func checkOpenings(f *Findings, e TrafficEvidence) {
	for _, c := range e.Records.Calls {
		if c.Seq != 0 {
			continue
		}
		at := slices.IndexFunc(e.Requests, func(r ServedRequest) bool { return strings.Contains(c.Request, r.Text) })
		switch {
		case at < 0:
			f.wrong("conversation %d begins with a request that no client sent: %.200s", c.Task, c.Request)
		case !e.Requests[at].Consents:
			f.wrong("conversation %d is on record without consent: it begins with %q", c.Task, e.Requests[at].Text)
		case e.forgets(e.Requests[at].User):
			f.wrong("conversation %d is on record, and its user was forgotten: it begins with %q", c.Task, e.Requests[at].Text)
		case e.Requests[at].Planted != "" && strings.Contains(c.Request, e.Requests[at].Planted):
			f.wrong("conversation %d begins with %q on record, which had to be taken out", c.Task, e.Requests[at].Planted)
		case e.Requests[at].User != "" && strings.Contains(c.Request, e.Requests[at].User):
			f.wrong("conversation %d has the name of its user on record", c.Task)
		}
	}
}

// checkGivenFeedback compares the feedback that clients gave with the record.
func checkGivenFeedback(f *Findings, e TrafficEvidence) {
	rows := map[string]FeedbackRow{}
	for _, r := range e.Records.Feedback {
		if _, ok := rows[r.ID]; ok {
			f.doubled("feedback %s is on record twice", r.ID)
		}
		rows[r.ID] = r
	}
	owners := e.owners()
	given := map[string]bool{}
	for _, g := range e.Feedback {
		row, ok := rows[g.row()]
		forgotten := g.Want == 0 && e.ofForgotten(g)
		if g.Want == 0 && !forgotten {
			given[g.row()] = true
		}
		created := 0
		for _, s := range g.Statuses {
			switch {
			case g.Want != 0 && s == g.Want:
				f.Traffic.Refused++
			case g.Want != 0:
				f.wrong("feedback %s on %s by %q got status %d instead of %d", g.ID, g.about(), g.Client, s, g.Want)
			case s == http.StatusCreated:
				created++
			case s == http.StatusOK:
				f.Traffic.Known++
			default:
				f.wrong("feedback %s on %s by %q got status %d", g.ID, g.about(), g.Client, s)
			}
		}
		switch {
		case created > 1:
			f.doubled("feedback %s was recorded %d times", g.row(), created)
		case forgotten: // checkForgotten looks for it
		case g.Want == 0 && g.accepted() && !ok:
			f.lost("feedback %s was accepted and is not on record", g.row())
		case g.Want == 0 && ok && (row.Reply != g.Reply || row.Reward == nil || *row.Reward != g.Reward || row.Client != g.Client || row.Conversation != owners[g.about()]):
			f.wrong("feedback %s says %v of %s, on record it is %s", g.row(), g.Reward, g.about(), row)
		case g.Want != 0 && g.Want != http.StatusConflict && ok:
			f.wrong("feedback %s was refused and is on record", g.row())
		}
		if g.Want == 0 && g.accepted() {
			f.Traffic.Accepted++
		}
	}
	for _, r := range e.Records.Feedback {
		if !given[r.ID] {
			f.wrong("feedback %s is on record, and no client gave it", r.ID)
		}
	}
}

// about names what the feedback is about.
func (g GivenFeedback) about() string {
	if g.Reply == "" {
		return fmt.Sprint(g.Dialog)
	}
	return g.Reply
}

// owners returns the numbers of conversations, by the ids of their replies, and by the
// clients' numbers.
func (e TrafficEvidence) owners() map[string]int {
	out := map[string]int{}
	for _, c := range e.Records.Calls {
		out[c.ID] = c.Task
	}
	for _, r := range e.Requests {
		if n, ok := out[r.Reply.ID]; ok {
			out[fmt.Sprint(r.Dialog)] = n
		}
	}
	return out
}

// checkUses checks that no feedback is used by two segments, and that the marks on the
// feedback are those of the segments.
func checkUses(f *Findings, e TrafficEvidence) {
	steps, forgotten := map[string]int{}, map[string]bool{}
	for _, g := range e.Feedback {
		forgotten[g.row()] = forgotten[g.row()] || g.Want == 0 && e.ofForgotten(g)
	}
	for _, s := range e.Records.Segments {
		for _, id := range s.Feedback {
			if other, ok := steps[id]; ok {
				f.doubled("feedback %s is used by the segments %d and %d", id, other, s.Step)
			}
			steps[id] = s.Step
			f.Traffic.Used++
		}
	}
	for _, r := range e.Records.Feedback {
		if r.Step != steps[r.ID] {
			f.wrong("feedback %s is marked as used by segment %d, segment %d lists it", r.ID, r.Step, steps[r.ID])
		}
		delete(steps, r.ID)
	}
	for id, step := range steps {
		if forgotten[id] {
			continue
		}
		f.wrong("segment %d uses feedback %s, which is not on record", step, id)
	}
}

// checkSegments checks the chain of segments, batches and versions.
func checkSegments(f *Findings, e TrafficEvidence) {
	r := e.Records
	removed := e.learnedFromForgotten()
	f.Traffic.Segments = len(r.Segments)
	if len(r.Versions) != len(r.Segments)+1 {
		f.wrong("there are %d versions after %d segments", len(r.Versions), len(r.Segments))
	}
	for i, v := range r.Versions {
		if v.Number != i {
			f.wrong("version %d stands in the place of version %d", v.Number, i)
		}
	}
	for i, s := range r.Segments {
		if s.Step != i+1 {
			f.wrong("segment %d stands in the place of segment %d", s.Step, i+1)
			continue
		}
		promoted := -1
		for _, p := range r.Promotions {
			if p.At.Before(s.At) {
				promoted = p.Version
			}
		}
		if s.Parent != promoted {
			f.wrong("segment %d is for version %d, and version %d was promoted when it was chosen", s.Step, s.Parent, promoted)
		}
		at := slices.IndexFunc(r.Versions, func(v TrafficVersion) bool { return v.Number == s.Step })
		if at < 0 {
			f.lost("version %d of segment %d is not on record", s.Step, s.Step)
			continue
		}
		v := r.Versions[at]
		if v.Parent != s.Parent || v.Parent >= v.Number {
			f.wrong("version %d was made from version %d, its segment says %d", v.Number, v.Parent, s.Parent)
		}
		if v.Batch == "" || v.Batch != r.Batches[s.Step] {
			f.wrong("version %d was trained on %q, the batch of its segment is %q", v.Number, v.Batch, r.Batches[s.Step])
		}
		if !removed[s.Step] {
			checkSegmentBatch(f, e, s)
		}
	}
}

// checkSegmentBatch checks that the batch of a segment has the replies that its feedback is
// about, each with the tokens on record, and no others.
func checkSegmentBatch(f *Findings, e TrafficEvidence, s Segment) {
	want, total := map[int][]int32{}, 0
	for i, n := range s.Conversations {
		if i >= len(s.Calls) {
			f.wrong("segment %d does not say how many calls conversation %d had", s.Step, n)
			return
		}
		for _, c := range e.Records.judged(s, n, s.Calls[i]) {
			want[n] = append(want[n], c.Tokens...)
			total++
		}
	}
	if total != s.Replies {
		f.wrong("segment %d says that it has %d replies, its feedback is about %d", s.Step, s.Replies, total)
	}
	got := e.Batches[s.Step].Sampled
	for n, tokens := range got {
		if !equal(tokens, want[n]) {
			f.wrong("the batch of segment %d has %d sampled tokens of conversation %d, those of its judged replies are %d, or others", s.Step, len(tokens), n, len(want[n]))
		}
	}
	for n := range want {
		if len(got[n]) == 0 {
			f.lost("the batch of segment %d lacks the replies of conversation %d", s.Step, n)
		}
	}
}

// judged returns the calls of a conversation that a segment learns from: those that its
// feedback is about, unless an earlier segment has learned from them. Feedback on the whole
// conversation, whose reply is empty, is about the calls that it had then. Nothing is learned
// from a conversation with a redacted call.
func (r TrafficRecords) judged(s Segment, conversation, calls int) []ServedCall {
	if r.redactedWithin(conversation, calls) {
		return nil
	}
	now, before := map[string]bool{}, map[string]bool{}
	for _, f := range r.Feedback {
		switch {
		case f.Conversation != conversation || f.Step == 0 || f.Step > s.Step:
		case f.Step == s.Step && slices.Contains(s.Feedback, f.ID):
			now[f.Reply] = true
		case f.Step < s.Step:
			before[f.Reply] = true
		}
	}
	learned := 0 // calls that earlier segments could learn from
	for _, earlier := range r.Segments {
		if i := slices.Index(earlier.Conversations, conversation); earlier.Step < s.Step && i >= 0 && i < len(earlier.Calls) {
			learned = max(learned, earlier.Calls[i])
		}
	}
	var out []ServedCall
	for _, c := range r.Calls {
		if c.Task != conversation || c.Seq >= calls || before[c.ID] || before[""] && c.Seq < learned {
			continue
		}
		if now[c.ID] || now[""] {
			out = append(out, c)
		}
	}
	return out
}

// String describes a row.
func (r FeedbackRow) String() string {
	reward := "nothing"
	if r.Reward != nil {
		reward = fmt.Sprint(*r.Reward)
	}
	return fmt.Sprintf("%s of reply %s by client %s in conversation %d", reward, r.Reply, r.Client, r.Conversation)
}
