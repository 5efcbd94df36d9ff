package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

// What pages read of conversations, segments and experiments: parts whose size does not grow
// with their run.

const (
	labelsOfConversations = `SELECT DISTINCT f.conversation, f.labels FROM feedback f WHERE f.run = $1 AND f.conversation IN (%s) AND f.labels <> '[]' ORDER BY f.conversation, f.labels LIMIT $2`
	// The rows of latest have no texts, which may be long.
	latestOfReplies = ` WHERE latest.place <= $3 AND f.run = $1 AND f.id = latest.id ORDER BY f.at, f.id`
	withLatest      = `WITH latest (id, place) AS (SELECT e.id, ROW_NUMBER() OVER (PARTITION BY e.call_id ORDER BY e.at DESC, e.id DESC)
FROM feedback e WHERE e.run = $1 AND e.conversation = $2 AND e.call_id IN (%s)) `
	feedbackByReply    = `SELECT f.call_id, COUNT(*) FROM feedback f WHERE f.run = $1 AND f.conversation = $2 AND f.call_id IN (%s) GROUP BY f.call_id`
	segmentsBefore     = selectSegments + ` AND (step < $3 OR $3 = 0) ORDER BY step DESC LIMIT $4`
	experimentsBefore  = selectExperiments + ` AND (candidate < $3 OR $3 = 0) ORDER BY candidate DESC LIMIT $4`
	maxLabelsPerReader = 4096
)

// places returns the places of n arguments of a query, from one number on.
func places(from, n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("$%d", from+i)
	}
	return strings.Join(out, ", ")
}

// FeedbackLabels returns the labels that conversations of a run were given, by number: each
// once, in order. Of very many different lists of labels it reads only the first.
func (s *Store) FeedbackLabels(ctx context.Context, run string, conversations []int) (map[int][]string, error) {
	if len(conversations) == 0 {
		return nil, nil
	}
	args := []any{run, maxLabelsPerReader}
	for _, n := range conversations {
		args = append(args, n)
	}
	type row struct {
		number int
		labels []string
	}
	rows, err := database.List(ctx, s.db.Read(), func(scan database.Scan) (r row, err error) {
		err = scan(&r.number, inJSON{&r.labels})
		return r, err
	}, fmt.Sprintf(labelsOfConversations, places(3, len(conversations))), args...)
	if err != nil {
		return nil, fmt.Errorf("list labels of conversations of run %s: %w", run, err)
	}
	out := map[int][]string{}
	for _, r := range rows {
		out[r.number] = append(out[r.number], r.labels...)
	}
	for number, labels := range out {
		slices.Sort(labels)
		out[number] = slices.Compact(labels)
	}
	return out, nil
}

// LatestFeedback returns the newest feedback on replies of a conversation, at most so many of
// each reply, in the order in which it came; the empty id stands for the whole conversation.
// counts has how much feedback each reply has.
func (s *Store) LatestFeedback(ctx context.Context, run string, conversation int, replies []string, most int) (all []record.Feedback, counts map[string]int, err error) {
	if len(replies) == 0 {
		return nil, nil, nil
	}
	ids := make([]any, len(replies))
	for i, id := range replies {
		ids[i] = id
	}
	type count struct {
		reply string
		n     int
	}
	found, err := database.List(ctx, s.db.Read(), func(scan database.Scan) (c count, err error) {
		err = scan(&c.reply, &c.n)
		return c, err
	}, fmt.Sprintf(feedbackByReply, places(3, len(ids))), append([]any{run, conversation}, ids...)...)
	if err == nil {
		query := fmt.Sprintf(withLatest, places(4, len(ids))) + feedbacks.From("latest") + latestOfReplies
		all, err = database.List(ctx, s.db.Read(), readFeedback, query, append([]any{run, conversation, most}, ids...)...)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list the latest feedback of conversation %d of run %s: %w", conversation, run, err)
	}
	counts = map[string]int{}
	for _, c := range found {
		counts[c.reply] = c.n
	}
	return all, counts, nil
}

// SegmentsBefore returns the segments of the steps before one, the newest first, at most so
// many. Before step 0 are all.
func (s *Store) SegmentsBefore(ctx context.Context, run, policy string, step, most int) ([]record.Segment, error) {
	all, err := database.List(ctx, s.db.Read(), readSegment, segmentsBefore, run, policy, step, most)
	if err != nil {
		return nil, fmt.Errorf("list segments of run %s before step %d: %w", run, step, err)
	}
	return all, nil
}

// ExperimentsBefore returns the experiments of a policy whose candidates have lower numbers
// than one, the highest first, at most so many. Before 0 are all.
func (s *Store) ExperimentsBefore(ctx context.Context, run, policy string, candidate, most int) ([]record.Experiment, error) {
	all, err := database.List(ctx, s.db.Read(), readExperiment, experimentsBefore, run, policy, candidate, most)
	if err != nil {
		return nil, fmt.Errorf("list experiments of %s/%s before version %d: %w", run, policy, candidate, err)
	}
	return all, nil
}
