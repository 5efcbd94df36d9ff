package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

const (
	// conversationsPerPage is how many recorded conversations a list has.
	conversationsPerPage = 50
	// maxLabels is how many labels are shown of a conversation or of a piece of feedback.
	maxLabels = 6
	// judgmentsPerReply is how much feedback is shown of one reply, the newest.
	judgmentsPerReply = 8
	// shownHash is how many digits of a user's hash are shown, as by the command.
	shownHash = 12
	// maxLearned is how many steps are read that learned from a conversation, the newest.
	maxLearned = 16
)

// conversationsBody is the list of the recorded conversations of a run.
type conversationsBody struct {
	Run, Path string
	Rows      []conversationRow
	// What the reader asks for, as it was asked.
	Version, Label, User string
	Policy               string
	Policies             []string // that can be asked for, of a run with several
	Feedback             bool
	Narrows              bool
	Problem              string
	// Older and Newest are the queries of the next conversations, and of the first ones
	// again.
	Older, Newest string
	Recording     string // what is recorded from now on
	Changed       bool   // the value is not that of the spec
	Experiments   string // paths of other pages
	Segments      string
	Learns        bool   // the run learns from conversations
	Reply         string // path at which a reply is found by its id
}

// conversationRow is a conversation in the list.
type conversationRow struct {
	record.ConversationSummary
	Path        string
	Name        string
	VersionPath string
	VersionText string
	By          *link // the conversations of its user
	Labels      []link
	MoreLabels  int
	Part        *link // of an experiment
}

// conversationsPath returns the path of the recorded conversations of a run, those that
// values select.
func conversationsPath(run string, values url.Values) string {
	path := runPath(run) + "/conversations"
	if len(values) > 0 {
		path += "?" + values.Encode()
	}
	return path
}

// experimentsPath and segmentsPath return the paths of the experiments and of the segments of a
// policy.
func experimentsPath(run, policy string) string {
	return runPath(run) + "/experiments" + policyQuery(policy)
}

func segmentsPath(run, policy string) string { return runPath(run) + "/segments" + policyQuery(policy) }

// policyQuery returns the query that asks for a policy, which is empty for the only one, or for all
// of them together.
func policyQuery(policy string) string {
	if policy == model.DefaultPolicy {
		return ""
	}
	return "?" + url.Values{"policy": {policy}}.Encode()
}

// askedPolicy returns the policy that a request asks for: one of the run, or else the only one or
// all of them together.
func askedPolicy(r *http.Request, run record.Run) string {
	if name := r.URL.Query().Get("policy"); slices.Contains(specOf(run).PolicyNames(), name) {
		return name
	}
	return model.DefaultPolicy
}

// shownPolicy names one of several policies; it is empty for the only one, or for all of them
// together.
func shownPolicy(policy string) string {
	if policy == model.DefaultPolicy {
		return ""
	}
	return format.FirstLine(policy)
}

// policyLinks lead from a page to the same of the other policies of a run; there are none if the
// run has one policy.
func policyLinks(run record.Run, here string, path func(run, policy string) string) (out []link) {
	names := specOf(run).PolicyNames()
	if len(names) == 0 {
		return nil
	}
	out = []link{{Text: "all policies together", Path: path(run.Name, model.DefaultPolicy), Here: here == model.DefaultPolicy}}
	for _, name := range names {
		out = append(out, link{Text: "policy " + format.FirstLine(name), Path: path(run.Name, name), Here: here == name})
	}
	return out
}

// replyAtPath returns the path that leads to a recorded reply.
func replyAtPath(run, id string) string {
	return runPath(run) + "/reply?" + url.Values{"id": {id}}.Encode()
}

// conversations lists the recorded conversations that a request asks for, the newest first.
func (s *Server) conversations(r *http.Request) (view, error) {
	ctx := r.Context()
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	values := r.URL.Query()
	b := conversationsBody{
		Run: run.Name, Path: conversationsPath(run.Name, nil), Reply: runPath(run.Name) + "/reply", Experiments: experimentsPath(run.Name, model.DefaultPolicy), Segments: segmentsPath(run.Name, model.DefaultPolicy),
		Version: format.FirstLine(values.Get("version")), Label: format.FirstLine(values.Get("label")), User: format.FirstLine(values.Get("user")), Feedback: values.Get("feedback") != "",
		Policies: specOf(run).PolicyNames(),
	}
	q := record.ConversationQuery{
		Run: run.Name, Label: values.Get("label"), User: strings.ToLower(strings.TrimSpace(values.Get("user"))), WithFeedback: b.Feedback,
		Before: number(r, "before"), Limit: conversationsPerPage + 1,
	}
	if policy := askedPolicy(r, run); policy != model.DefaultPolicy {
		b.Policy, q.Policy = policy, policy
	}
	b.Narrows = b.Version != "" || b.Policy != "" || q.Label != "" || q.User != "" || q.WithFeedback
	if b.Version != "" {
		version, err := strconv.Atoi(b.Version)
		if err != nil || version < 0 {
			b.Problem, b.Version = fmt.Sprintf("Version: %q is no number of a version.", b.Version), "" // a field for numbers takes no other
		}
		q.Version = &version
	}
	if b.Problem == "" {
		if err := s.listConversations(ctx, &b, q, values); err != nil {
			return view{}, err
		}
	}
	of := specOf(run)
	b.Learns = of.FromTraffic()
	if b.Recording, err = s.Records.TrafficSetting(ctx, run.Name); err != nil {
		return view{}, err
	}
	if b.Changed = b.Recording != ""; !b.Changed {
		if b.Recording = spec.RecordNone; of.Traffic != nil {
			b.Recording = of.Traffic.Record
		}
	}
	v := runView("conversations", run, "Conversations", link{Text: "Conversations"})
	if v.Follow = ""; !b.Narrows && q.Before == 0 { // clients go on after the end of a run
		v.Every = renewEvery
	}
	v.Body = b
	return v, nil
}

// listConversations adds the rows, and the queries of the rows before and after them.
func (s *Server) listConversations(ctx context.Context, b *conversationsBody, q record.ConversationQuery, asked url.Values) error {
	all, err := s.Records.Conversations(ctx, q)
	if err != nil {
		return err
	}
	if len(all) > conversationsPerPage {
		all = all[:conversationsPerPage]
		asked.Set("before", strconv.Itoa(all[len(all)-1].Number))
		b.Older = "?" + asked.Encode()
	}
	if q.Before > 0 {
		asked.Del("before")
		b.Newest = conversationsPath(q.Run, asked)
	}
	numbers := make([]int, len(all))
	for i, c := range all {
		numbers[i] = c.Number
	}
	labels, err := s.Records.FeedbackLabels(ctx, q.Run, numbers)
	if err != nil {
		return err
	}
	for _, c := range all {
		row := conversationRow{
			ConversationSummary: c, Path: attemptPath(c.Address()), Name: format.FirstLine(c.Name), VersionPath: versionPath(q.Run, c.Version),
			VersionText: answeredBy(c.Conversation), By: userLink(q.Run, c.User), Part: partOf(c.Conversation),
		}
		row.Labels, row.MoreLabels = labelLinks(q.Run, labels[c.Number])
		b.Rows = append(b.Rows, row)
	}
	return nil
}

// answeredBy names the version that answers a conversation.
func answeredBy(c record.Conversation) string {
	if c.Policy == model.DefaultPolicy {
		return strconv.Itoa(c.Version)
	}
	return format.FirstLine(c.Policy) + ":" + strconv.Itoa(c.Version)
}

// partOf says which part a conversation has in an experiment.
func partOf(c record.Conversation) *link {
	if c.Experiment == 0 {
		return nil
	}
	part := "control"
	if c.Candidate {
		part = "candidate"
	}
	return &link{Text: part, Path: fmt.Sprintf("%s#version-%d", experimentsPath(c.Run, c.Policy), c.Experiment)}
}

// userLink leads to the conversations of a user, who is named by a hash.
func userLink(run, user string) *link {
	if user == "" {
		return nil
	}
	return &link{Text: format.FirstLine(user[:min(len(user), shownHash)]), Path: conversationsPath(run, url.Values{"user": {user}})}
}

// labelLinks leads to the conversations with each of the labels, as many as there is room
// for.
func labelLinks(run string, labels []string) (out []link, more int) {
	for _, l := range labels[:min(len(labels), maxLabels)] {
		out = append(out, link{Text: format.FirstLine(l), Path: conversationsPath(run, url.Values{"label": {l}})})
	}
	return out, len(labels) - len(out)
}

// servedBlock is what an attempt has that is a recorded conversation.
type servedBlock struct {
	record.Conversation
	Called      string // what the client calls it
	Client      string // name of the API key
	PolicyName  string // "" in a run of one policy
	VersionText string
	VersionPath string
	By          *link
	Part        *link
	Around      []link
	Judgments   []judgmentBlock // of the whole conversation
	More        int             // that are not shown
}

// judgmentBlock is what somebody said of a reply, or of a conversation.
type judgmentBlock struct {
	ID         string
	Value      string // "", or the value in figures
	Way        string // the class of the value
	Thumb      string
	Labels     []link
	MoreLabels int
	Comment    format.Clipped
	Worse      *link // a reply than which the judged one is better
	By         *link
	Key        string
	At         time.Time
	Step       *link // that learned from it
	Redacted   bool
	// Corrected is the reply beside what it should have been. It is nil if nobody corrected
	// it.
	Corrected *textPair
	// Equal says that the correction is the reply, and NoRoom that the page has no room to
	// show it.
	Equal, NoRoom bool
}

// served adds to an attempt what it has as a conversation.
func (s *Server) served(ctx context.Context, at record.Address, b *attemptBody) error {
	c, err := s.Records.Conversation(ctx, at.Run, at.Task)
	if err != nil {
		return err
	}
	answered := url.Values{"version": {strconv.Itoa(c.Version)}}
	if c.Policy != model.DefaultPolicy {
		answered.Set("policy", c.Policy)
	}
	b.Served = &servedBlock{
		Conversation: c, Called: format.FirstLine(c.Name), Client: format.FirstLine(c.Key), PolicyName: shownPolicy(c.Policy), VersionText: answeredBy(c), VersionPath: versionPath(c.Run, c.Version),
		By: userLink(c.Run, c.User), Part: partOf(c),
		Around: []link{
			{Text: "All conversations", Path: conversationsPath(c.Run, nil)},
			{Text: "Those before", Path: conversationsPath(c.Run, url.Values{"before": {strconv.Itoa(c.Number)}})},
			{Text: "All with version " + answeredBy(c), Path: conversationsPath(c.Run, answered)},
		},
	}
	if c.Number == 0 { // none are before it
		b.Served.Around = append(b.Served.Around[:1], b.Served.Around[2:]...)
	}
	return nil
}

// judgments adds the feedback on the conversation and on the replies that are shown.
func (s *Server) judgments(ctx context.Context, b *attemptBody) error {
	ids := []string{""} // the whole conversation
	for _, call := range b.Calls {
		ids = append(ids, call.ID)
	}
	all, counts, err := s.Records.LatestFeedback(ctx, b.Address.Run, b.Address.Task, ids, judgmentsPerReply)
	if err != nil {
		return err
	}
	room := newJudgmentRoom()
	of := map[string][]judgmentBlock{}
	replies := map[string]string{}
	for _, call := range b.Calls {
		replies[call.ID] = call.said
	}
	for _, f := range all {
		of[f.CallID] = append(of[f.CallID], room.judgment(f, replies[f.CallID]))
	}
	b.Served.Judgments, b.Served.More = of[""], counts[""]-len(of[""])
	for i, call := range b.Calls {
		b.Calls[i].Judgments, b.Calls[i].MoreJudgments = of[call.ID], counts[call.ID]-len(of[call.ID])
	}
	return nil
}

// bytesOfComments is the room for all comments of a page together.
const bytesOfComments = 64 << 10

// judgmentRoom is what is left of the room for comments, and for corrections.
type judgmentRoom struct{ comments, corrections textRoom }

func newJudgmentRoom() *judgmentRoom {
	return &judgmentRoom{textRoom{bytes: bytesOfComments}, textRoom{rowsOfTexts, piecesOfTexts, bytesOfTexts}}
}

// comment cuts a comment, so that there is room for others.
func (r *judgmentRoom) comment(text string) format.Clipped {
	c := format.Clip(text, min(r.comments.bytes, format.MaxOfResult))
	r.comments.bytes = max(0, r.comments.bytes-len(c.Text))
	return c
}

// correction compares a reply with what it should have said, in a quarter of the whole room
// at most.
func (r *judgmentRoom) correction(said, corrected string) textPair {
	part := textRoom{min(r.corrections.rows, rowsOfTexts/4), min(r.corrections.pieces, piecesOfTexts/4), min(r.corrections.bytes, bytesOfTexts/4)}
	before := part
	pair := part.pair("The reply, and what it should have said", said, corrected)
	r.corrections.rows -= before.rows - part.rows
	r.corrections.pieces -= before.pieces - part.pieces
	r.corrections.bytes -= before.bytes - part.bytes
	return pair
}

// judgment shows feedback on a reply that said something.
func (r *judgmentRoom) judgment(f record.Feedback, said string) judgmentBlock {
	b := judgmentBlock{ID: format.FirstLine(f.ID), Thumb: f.Thumb, Comment: r.comment(f.Comment), By: userLink(f.Run, f.User), Key: format.FirstLine(f.Key), At: f.At, Redacted: f.Redacted}
	if v, ok := f.Value(); ok {
		b.Value = format.Signed(&v)
		switch {
		case v > 0:
			b.Way = "up"
		case v < 0:
			b.Way = "down"
		}
	}
	b.Labels, b.MoreLabels = labelLinks(f.Run, f.Labels)
	if f.PreferredOver != "" {
		b.Worse = &link{Text: format.FirstLine(f.PreferredOver), Path: replyAtPath(f.Run, f.PreferredOver)}
	}
	if f.Step > 0 {
		b.Step = &link{Text: fmt.Sprintf("step %d", f.Step), Path: stepPath(f.Run, record.Train, f.Step)}
	}
	if f.CorrectedText == nil {
		return b
	}
	if b.Equal = *f.CorrectedText == said; b.Equal {
		return b
	}
	pair := r.correction(said, *f.CorrectedText)
	if b.NoRoom = len(pair.Rows) == 0; !b.NoRoom {
		b.Corrected = &pair
	}
	return b
}

// findReply leads to a recorded reply of a run by its id.
func (s *Server) findReply(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimSpace(r.URL.Query().Get("id"))
	name := r.PathValue("run")
	c, call, err := s.Records.ServedReply(r.Context(), id)
	switch {
	case err == nil && c.Run == name:
		http.Redirect(w, r, fmt.Sprintf("%s?call=%d#call-%d", attemptPath(c.Address()), call.Seq, call.Seq), http.StatusSeeOther)
	case err == nil, errors.Is(err, record.ErrNotFound):
		s.render(w, r, http.StatusNotFound, failed("Run "+format.FirstLine(name)+" has no recorded reply "+format.FirstLine(id),
			"It was not recorded, its conversation was removed, or it is one of another run.", link{Text: "Its conversations", Path: conversationsPath(name, nil)}))
	case r.Context().Err() != nil: // the client has left
	default:
		s.fail(w, r, http.StatusInternalServerError, err)
	}
}

// redirectServed leads from the addresses of steps and groups to the conversations, because a
// run may have very many.
func (s *Server) redirectServed(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("run")
	to := conversationsPath(name, nil)
	if n, err := strconv.Atoi(r.PathValue("task")); err == nil && n >= 0 {
		to = attemptPath(record.ConversationAddress(name, n))
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}
