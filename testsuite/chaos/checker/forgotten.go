package checker

import "slices"

// ForgottenUser is a user who was forgotten while the run went on. Nothing of the user may be on
// record.
type ForgottenUser struct {
	Name string
	// Conversations are the numbers of the user's conversations, as the store had them before.
	Conversations []int
}

// forgets reports whether a user was forgotten.
func (e TrafficEvidence) forgets(user string) bool {
	return e.Forgotten != nil && user != "" && user == e.Forgotten.Name
}

// ofForgotten reports whether feedback went with a forgotten user: given by the user, or about a
// conversation of the user.
func (e TrafficEvidence) ofForgotten(g GivenFeedback) bool {
	return e.forgets(g.User) || slices.ContainsFunc(e.Requests, func(r ServedRequest) bool {
		return e.forgets(r.User) && (g.Reply != "" && r.Reply.ID == g.Reply || g.Reply == "" && g.Conversation != "" && r.Dialog == g.Dialog)
	})
}

// forgottenConversations returns how many conversations a forgotten user had or judged.
func (e TrafficEvidence) forgottenConversations() int {
	dialogs := map[int]bool{}
	if e.Forgotten == nil {
		return 0
	}
	for _, r := range e.Requests {
		if e.forgets(r.User) {
			dialogs[r.Dialog] = true
		}
	}
	for _, g := range e.Feedback {
		if !e.forgets(g.User) {
			continue
		}
		if at := slices.IndexFunc(e.Requests, func(r ServedRequest) bool { return r.Reply.ID == g.Reply && g.Reply != "" }); at >= 0 {
			dialogs[e.Requests[at].Dialog] = true
		}
	}
	return len(dialogs)
}

// learnedFromForgotten returns the steps that learned from a forgotten user, as their segments
// say, whose batches must be gone.
func (e TrafficEvidence) learnedFromForgotten() map[int]bool {
	steps := map[int]bool{}
	if e.Forgotten == nil {
		return steps
	}
	gone := map[string]bool{}
	for _, g := range e.Feedback {
		if g.Want == 0 && e.ofForgotten(g) {
			gone[g.row()] = true
		}
	}
	for _, s := range e.Records.Segments {
		if slices.ContainsFunc(s.Conversations, func(n int) bool { return slices.Contains(e.Forgotten.Conversations, n) }) ||
			slices.ContainsFunc(s.Feedback, func(id string) bool { return gone[id] }) {
			steps[s.Step] = true
		}
	}
	return steps
}

// checkForgotten checks that nothing of a forgotten user is left: no conversation, no reply, no
// feedback, and no batch of a step that learned from the user.
func checkForgotten(f *Findings, e TrafficEvidence) {
	for _, place := range e.Leftovers {
		f.wrong("a text that must not be on record is in %s", place)
	}
	if e.Forgotten == nil {
		return
	}
	if len(e.Forgotten.Conversations) == 0 {
		f.wrong("the user who was forgotten had no conversation")
	}
	for _, n := range e.Forgotten.Conversations {
		if _, ok := e.Records.conversation(n); ok {
			f.wrong("conversation %d of the forgotten user is on record", n)
		}
		if slices.ContainsFunc(e.Records.Calls, func(c ServedCall) bool { return c.Task == n }) {
			f.wrong("calls of conversation %d of the forgotten user are on record", n)
		}
	}
	for _, r := range e.Requests {
		if !e.forgets(r.User) {
			continue
		}
		f.Traffic.Forgotten++
		if slices.ContainsFunc(e.Records.Calls, func(c ServedCall) bool { return c.ID == r.Reply.ID }) {
			f.wrong("reply %s to the forgotten user is on record", r.Reply.ID)
		}
	}
	for _, g := range e.Feedback {
		if g.Want == 0 && e.ofForgotten(g) && slices.ContainsFunc(e.Records.Feedback, func(r FeedbackRow) bool { return r.ID == g.row() }) {
			f.wrong("feedback %s of the forgotten user, or on a reply to the user, is on record", g.row())
		}
	}
	for step := range e.learnedFromForgotten() {
		if _, ok := e.Batches[step]; ok {
			f.wrong("the batch of segment %d, which learned from the forgotten user, is there", step)
		}
	}
}

// checkRedacted checks that a call has tokens if, and only if, nothing was taken out of its
// texts.
func checkRedacted(f *Findings, e TrafficEvidence) {
	redacted := map[string]bool{}
	for _, r := range e.Requests {
		if r.Redacted {
			for _, reply := range append([]ServedReply{r.Reply}, r.Again...) {
				redacted[reply.ID] = true
			}
		}
	}
	received := map[string]bool{}
	for _, r := range e.Requests {
		received[r.Reply.ID] = true
	}
	marked := map[int]bool{}
	for _, c := range e.Records.Calls {
		if c.redacted() {
			f.Traffic.Redacted++
			marked[c.Task] = true
		}
		switch {
		case redacted[c.ID] && !c.redacted():
			f.wrong("reply %s has tokens on record, and texts of it were rewritten", c.ID)
		case received[c.ID] && !redacted[c.ID] && c.redacted():
			f.wrong("reply %s has no tokens on record, and no text of it was rewritten", c.ID)
		case c.redacted() && c.Prompted > 0:
			f.wrong("reply %s has the tokens of its prompt on record, and texts of it were rewritten", c.ID)
		}
	}
	for _, c := range e.Records.Conversations {
		if c.Redacted != marked[c.Number] {
			f.wrong("conversation %d is marked as redacted: %v, and has redacted calls: %v", c.Number, c.Redacted, marked[c.Number])
		}
	}
	for step, batch := range e.Batches {
		for n := range batch.Sampled {
			if e.redactedBefore(step, n) {
				f.wrong("the batch of segment %d has a conversation of which texts were rewritten, %d", step, n)
			}
		}
	}
}

// redactedBefore reports whether a conversation had a redacted call when a segment was chosen.
func (e TrafficEvidence) redactedBefore(step, conversation int) bool {
	for _, s := range e.Records.Segments {
		if i := slices.Index(s.Conversations, conversation); s.Step == step && i >= 0 && i < len(s.Calls) {
			return e.Records.redactedWithin(conversation, s.Calls[i])
		}
	}
	return false
}

// redactedWithin reports whether one of the first calls of a conversation is redacted.
func (r TrafficRecords) redactedWithin(conversation, calls int) bool {
	return slices.ContainsFunc(r.Calls, func(c ServedCall) bool { return c.Task == conversation && c.Seq < calls && c.redacted() })
}
