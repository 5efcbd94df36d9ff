package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

// feedbackRow is feedback as its table stores it.
type feedbackRow struct {
	record.Feedback
	labels string // JSON
}

var feedbacks = database.NewTable("feedback f",
	database.Col("run", func(r *feedbackRow) any { return &r.Run }),
	database.Col("id", func(r *feedbackRow) any { return &r.ID }),
	database.Col("conversation", func(r *feedbackRow) any { return &r.Conversation }),
	database.Col("call_id", func(r *feedbackRow) any { return &r.CallID }),
	database.Col("reward", func(r *feedbackRow) any { return &r.Reward }),
	database.Col("thumb", func(r *feedbackRow) any { return &r.Thumb }),
	database.Col("corrected", func(r *feedbackRow) any { return &r.CorrectedText }),
	database.Col("preferred", func(r *feedbackRow) any { return &r.PreferredOver }),
	database.Col("labels", func(r *feedbackRow) any { return &r.labels }),
	database.Col("person", func(r *feedbackRow) any { return &r.User }),
	database.Col("comment", func(r *feedbackRow) any { return &r.Comment }),
	database.Col("redacted", func(r *feedbackRow) any { return (*database.Flag)(&r.Redacted) }),
	database.Col("client", func(r *feedbackRow) any { return &r.Key }),
	database.Loose("at", func(r *feedbackRow) any { return at(&r.At) }),
	database.Loose("step", func(r *feedbackRow) any { return &r.Step }),
)

var (
	insertFeedback = feedbacks.Insert()
	selectFeedback = feedbacks.From()
)

const (
	feedbackAt = ` WHERE f.run = $1 AND f.id = $2`
	// unusedFeedback begins with the newest, so that what no segment can use, as long as nobody
	// says more, does not stand before it.
	unusedFeedback = ` JOIN conversations v ON v.run = f.run AND v.number = f.conversation
WHERE f.run = $1 AND f.step = 0 AND (v.last < $2 OR v.last > $3) AND (%s) ORDER BY f.at DESC, f.id DESC LIMIT $4`
	lockConversations = `SELECT v.number FROM conversations v WHERE v.run = $1
AND v.number IN (SELECT $2 UNION ALL SELECT c.task FROM calls c WHERE c.id = $3 AND c.kind = 'served' AND c.run = $1) ORDER BY v.number`
	openConversation = `SELECT COUNT(*) FROM attempts a WHERE a.run = $1 AND a.kind = 'served' AND a.step = 0 AND a.task = $2 AND a.outcome = ''`
	oppositeFeedback = `SELECT f.id FROM feedback f WHERE f.run = $1 AND f.person = $2 AND f.person <> '' AND f.call_id = $3 AND f.preferred = $4 LIMIT 1`
	feedbackSteps    = `SELECT DISTINCT f.step FROM feedback f WHERE f.run = $1 AND f.conversation = $2 AND f.step > 0 ORDER BY f.step`
	countFeedback    = `SELECT COUNT(*) FROM feedback f WHERE f.run = $1 AND f.conversation = $2`
	useFeedback      = `UPDATE feedback SET step = $3 WHERE run = $1 AND id = $2 AND step = 0`
	insertSegment    = `INSERT INTO segments (run, policy, step, segment, at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`
	selectSegments   = `SELECT segment FROM segments WHERE run = $1 AND policy = $2`
)

// PutFeedback records what somebody says of a reply or a conversation, and returns what is on
// record under the id. The same again changes nothing; something else under the id of a run
// is record.ErrConflict. A user who has said that B is better than A may not say that A is
// better than B: that is record.ErrContradiction. A conversation that was removed is
// record.ErrForgotten, one that never was record.ErrNotFound, and one with
// record.MaxFeedback is record.ErrTooMuchFeedback. An absent At is the present.
//
// The caller makes sure that the reply is one of the conversation.
func (s *Store) PutFeedback(ctx context.Context, f record.Feedback) (stored record.Feedback, created bool, err error) {
	wrap := func(err error) error { return fmt.Errorf("put feedback %s of run %s: %w", f.ID, f.Run, err) }
	if f.ID == "" || f.Step != 0 {
		return f, false, wrap(fmt.Errorf("it has no id, or a step"))
	}
	if f.Reward != nil {
		if err := checkFinite("reward", *f.Reward); err != nil {
			return f, false, wrap(err)
		}
	}
	f.At = orNow(f.At)
	r, err := newFeedbackRow(f)
	if err != nil {
		return f, false, wrap(err)
	}
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) (err error) {
		stored, created, err = putFeedback(t, &r)
		return err
	})
	if err != nil {
		return f, false, wrap(err)
	}
	return stored, created, nil
}

// newFeedbackRow makes the texts of feedback as they will be read back, so that the same
// feedback is found to be the same.
func newFeedbackRow(f record.Feedback) (feedbackRow, error) {
	labels := make([]string, len(f.Labels))
	for i, l := range f.Labels {
		labels[i] = database.ValidText(l)
	}
	for _, text := range []*string{&f.ID, &f.CallID, &f.Thumb, &f.PreferredOver, &f.User, &f.Comment, &f.Key} {
		*text = database.ValidText(*text)
	}
	if f.CorrectedText != nil {
		corrected := database.ValidText(*f.CorrectedText)
		f.CorrectedText = &corrected
	}
	encoded, err := encode("labels", labels)
	return feedbackRow{f, encoded}, err
}

func readFeedback(row database.Scan) (record.Feedback, error) {
	r, err := feedbacks.Read(row)
	if err == nil {
		err = inJSON{&r.Labels}.Scan(r.labels)
	}
	if len(r.Labels) == 0 {
		r.Labels = nil
	}
	return r.Feedback, err
}

func putFeedback(t database.Tx, r *feedbackRow) (stored record.Feedback, created bool, err error) {
	if err := refuseRemoved(t, r.Run); err != nil {
		return stored, false, err
	}
	// The lock keeps the conversation from being removed, and others from adding feedback to
	// it, until the commit.
	locked, err := database.List(t.Ctx, t, database.Scalar[int], lockConversations+t.ForUpdate, r.Run, r.Conversation, r.PreferredOver)
	if err != nil {
		return stored, false, err
	}
	// A removal takes the attempt first.
	open, err := database.One(t.Ctx, t, database.Scalar[int], openConversation, r.Run, r.Conversation)
	if err != nil {
		return stored, false, err
	}
	if open == 0 || !slices.Contains(locked, r.Conversation) {
		return stored, false, missingConversation(t.Ctx, t, r.Run, r.Conversation, sql.ErrNoRows)
	}
	find := func() (feedbackRow, error) {
		return database.One(t.Ctx, t, feedbacks.Read, selectFeedback+feedbackAt, r.Run, r.ID)
	}
	old, err := find()
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return stored, false, err
	}
	if errors.Is(err, sql.ErrNoRows) {
		if err := admitFeedback(t, r); err != nil {
			return stored, false, err
		}
		// Another process may have inserted it under another conversation, whose lock this
		// transaction does not have.
		if old, created, err = database.InsertOrFind(t, insertFeedback, feedbacks.Fields(r), find); err != nil {
			return stored, false, err
		}
	}
	if !feedbacks.Same(r, &old) {
		return stored, false, fmt.Errorf("%w: other feedback has this id", record.ErrConflict)
	}
	stored = old.Feedback
	stored.Labels = r.Labels
	return stored, created, nil
}

// admitFeedback returns an error if new feedback may not be added.
func admitFeedback(t database.Tx, r *feedbackRow) error {
	if r.PreferredOver != "" {
		id, err := database.One(t.Ctx, t, database.Scalar[string], oppositeFeedback, r.Run, r.User, r.PreferredOver, r.CallID)
		if err == nil {
			return fmt.Errorf("%w: by %s the other reply is better", record.ErrContradiction, id)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	n, err := database.One(t.Ctx, t, database.Scalar[int], countFeedback, r.Run, r.Conversation)
	if err == nil && n >= record.MaxFeedback {
		err = fmt.Errorf("%w: %d", record.ErrTooMuchFeedback, n)
	}
	return err
}

// Feedback returns the feedback of a conversation in the order in which it came. It is no
// error if there is none.
func (s *Store) Feedback(ctx context.Context, run string, conversation int) ([]record.Feedback, error) {
	all, err := database.List(ctx, s.db.Read(), readFeedback, selectFeedback+` WHERE f.run = $1 AND f.conversation = $2 ORDER BY f.at, f.id`, run, conversation)
	if err != nil {
		return nil, fmt.Errorf("list feedback of conversation %d of run %s: %w", conversation, run, err)
	}
	return all, nil
}

// FeedbackSteps returns the steps that have used feedback on a conversation, in order. It is no
// error if there are none.
func (s *Store) FeedbackSteps(ctx context.Context, run string, conversation int) ([]int, error) {
	all, err := database.List(ctx, s.db.Read(), database.Scalar[int], feedbackSteps, run, conversation)
	if err != nil {
		return nil, fmt.Errorf("list the steps that used feedback on conversation %d of run %s: %w", conversation, run, err)
	}
	return all, nil
}

// UnusedFeedback returns the feedback of a run that no segment has used, of conversations whose
// last call was recorded before one time, or after another that has not come yet: then a clock
// was wrong, and nobody can say when the conversation ended. It returns only feedback of one of
// the kinds, at most limit, the newest. It is ordered by conversation, time and id.
func (s *Store) UnusedFeedback(ctx context.Context, run string, kinds []record.FeedbackKind, before, after time.Time, limit int) ([]record.Feedback, error) {
	of := make([]string, len(kinds))
	for i, k := range kinds {
		of[i] = ofKind(k)
	}
	query := selectFeedback + fmt.Sprintf(unusedFeedback, strings.Join(of, " OR "))
	all, err := database.List(ctx, s.db.Read(), readFeedback, query, run, database.Nanos(before), database.Nanos(after), limit)
	if err != nil {
		return nil, fmt.Errorf("list unused feedback of run %s: %w", run, err)
	}
	slices.SortFunc(all, func(a, b record.Feedback) int {
		return cmp.Or(cmp.Compare(a.Conversation, b.Conversation), a.At.Compare(b.At), cmp.Compare(a.ID, b.ID))
	})
	return all, nil
}

// ofKind is true for feedback f of a kind.
func ofKind(k record.FeedbackKind) string {
	switch k {
	case record.FeedbackValue:
		return `f.reward IS NOT NULL OR f.thumb <> ''`
	case record.FeedbackThumb:
		return `f.thumb <> '' AND f.call_id <> ''`
	case record.FeedbackCorrection:
		return `f.corrected IS NOT NULL`
	case record.FeedbackPreference:
		return `f.preferred <> ''`
	}
	return `1 = 0`
}

// PutSegment records what a step learns from conversations, and that its feedback is used.
// If the step has a segment, that one is returned, and nothing changes. Feedback that another
// step has used is record.ErrConflict, and feedback that is not on record, for example since
// its user was forgotten, is record.ErrNotFound; nothing is recorded then. While a user is being
// removed from the run, it is record.ErrForgotten.
func (s *Store) PutSegment(ctx context.Context, segment record.Segment) (stored record.Segment, created bool, err error) {
	segment.At = orNow(segment.At)
	text, err := encode("segment", segment)
	if err == nil && (segment.Step < 1 || len(segment.Feedback) == 0) {
		err = fmt.Errorf("step %d with feedback %v: want a step from 1 on, and some feedback", segment.Step, segment.Feedback)
	}
	if err == nil {
		err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
			if err := refuseRemoved(t, segment.Run); err != nil {
				return err
			}
			if err := refuseWhileForgetting(t, segment.Run); err != nil {
				return err
			}
			stored, created, err = database.InsertOrFind(t, insertSegment, []any{segment.Run, segment.Policy, segment.Step, text, database.Nanos(segment.At)}, func() (record.Segment, error) {
				return database.One(t.Ctx, t, readSegment, selectSegments+` AND step = $3`, segment.Run, segment.Policy, segment.Step)
			})
			if err != nil || !created {
				return err
			}
			return takeFeedback(t, segment)
		})
	}
	if err != nil {
		return record.Segment{}, false, fmt.Errorf("put segment of %s step %d: %w", segment.Run, segment.Step, err)
	}
	return stored, created, nil
}

// refuseWhileForgetting returns an error if a user is being removed from a run: a new segment
// could have what is about to go.
func refuseWhileForgetting(t database.Tx, run string) error {
	f, err := database.One(t.Ctx, t, readForgotten, selectForgotten+` WHERE run = $1 AND what = 'user' AND ended = 0 ORDER BY task LIMIT 1`, run)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("the removal of one of its users has not ended: %w", forgotten(f))
}

// takeFeedback marks the feedback of a segment as used. It does so in the order of ids, so
// that two segments don't wait for each other.
func takeFeedback(t database.Tx, segment record.Segment) error {
	ids := slices.Clone(segment.Feedback)
	slices.Sort(ids)
	for i, id := range ids {
		if i > 0 && ids[i-1] == id {
			return fmt.Errorf("feedback %s is in it twice", id)
		}
		n, err := t.Exec(useFeedback, segment.Run, id, segment.Step)
		if err != nil {
			return err
		}
		if n == 1 {
			continue
		}
		step, err := database.One(t.Ctx, t, database.Scalar[int], `SELECT f.step FROM feedback f`+feedbackAt, segment.Run, id)
		if err != nil {
			return fmt.Errorf("feedback %s: %w", id, notFound(err))
		}
		return fmt.Errorf("%w: step %d has learned from feedback %s", record.ErrConflict, step, id)
	}
	return nil
}

// Segment returns the segment of a step, or record.ErrNotFound.
func (s *Store) Segment(ctx context.Context, run, policy string, step int) (record.Segment, error) {
	one, err := database.One(ctx, s.db.Read(), readSegment, selectSegments+` AND step = $3`, run, policy, step)
	if err != nil {
		return one, fmt.Errorf("read segment of %s step %d: %w", run, step, notFound(err))
	}
	return one, nil
}

// Segments returns the segments of a run in the order of steps. It is no error if there are
// none.
func (s *Store) Segments(ctx context.Context, run, policy string) ([]record.Segment, error) {
	all, err := database.List(ctx, s.db.Read(), readSegment, selectSegments+` ORDER BY step`, run, policy)
	if err != nil {
		return nil, fmt.Errorf("list segments of run %s: %w", run, err)
	}
	return all, nil
}

func readSegment(row database.Scan) (one record.Segment, err error) {
	err = row(inJSON{&one})
	return one, err
}
