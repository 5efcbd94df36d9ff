package store

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

const (
	insertSecret = `INSERT INTO secrets (name, secret) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	selectSecret = `SELECT secret FROM secrets WHERE name = $1`
	// secretOfUsers is the name of the key of HashUser.
	secretOfUsers = "users"
)

// HashUser returns the keyed hash of what a client calls a user: HMAC-SHA-256, hex, under a
// random key that the store makes once. It is the same in all runs and processes of a store,
// and another one in other stores. Whoever can read the database can read the key. The hash
// of the empty name is empty.
func (s *Store) HashUser(ctx context.Context, user string) (string, error) {
	if user == "" {
		return "", nil
	}
	key := s.userKey.Load()
	if key == nil {
		made, err := s.secret(ctx, secretOfUsers)
		if err != nil {
			return "", err
		}
		key = &made
		s.userKey.Store(key)
	}
	mac := hmac.New(sha256.New, []byte(*key))
	_, _ = mac.Write([]byte(user)) // a hash never fails
	return hex.EncodeToString(mac.Sum(nil)), nil
}

// secret returns the secret of a name. The first process that asks for it makes it.
func (s *Store) secret(ctx context.Context, name string) (secret string, err error) {
	secret, err = database.One(ctx, s.db.Read(), database.Scalar[string], selectSecret, name)
	if errors.Is(err, sql.ErrNoRows) {
		err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) (err error) {
			secret, _, err = database.InsertOrFind(t, insertSecret, []any{name, rand.Text()}, func() (string, error) {
				return database.One(t.Ctx, t, database.Scalar[string], selectSecret, name)
			})
			return err
		})
	}
	if err != nil {
		return "", fmt.Errorf("read the secret %q: %w", name, err)
	}
	return secret, nil
}

// conversationColumns are those that readConversation reads, from conversations v and
// attempts a. A conversation without its attempt is being removed.
const (
	conversationColumns = `v.run, v.number, v.name, v.client, v.person, v.policy, v.version, v.pinned, v.experiment, v.candidate, v.redacted, v.begun, v.last, a.calls`
	fromConversations   = ` FROM conversations v JOIN attempts a ON a.run = v.run AND a.kind = 'served' AND a.step = 0 AND a.task = v.number AND a.sample = 0 AND a.attempt = 1`
)

// conversationsOfLatest selects the conversations of a table of numbers, with what was said of
// them.
const conversationsOfLatest = `SELECT ` + conversationColumns + `, (SELECT COUNT(*) FROM feedback f WHERE f.run = v.run AND f.conversation = v.number),
(SELECT COUNT(*) FROM feedback f WHERE f.run = v.run AND f.conversation = v.number AND f.step = 0),
(SELECT AVG(` + feedbackNumber + `) FROM feedback f WHERE f.run = v.run AND f.conversation = v.number),
(SELECT COUNT(` + feedbackNumber + `) FROM feedback f WHERE f.run = v.run AND f.conversation = v.number)
FROM latest CROSS JOIN conversations v JOIN attempts a ON a.run = v.run AND a.kind = 'served' AND a.step = 0 AND a.task = v.number AND a.sample = 0 AND a.attempt = 1
WHERE v.run = $1 AND v.number = latest.number ORDER BY v.number DESC`

// feedbackNumber is what record.Feedback.Value returns of feedback f, NULL without a value.
const feedbackNumber = `CASE WHEN f.reward IS NOT NULL THEN f.reward WHEN f.thumb = 'up' THEN 1.0 WHEN f.thumb = 'down' THEN -1.0 END`

func conversationFields(c *record.Conversation) []any {
	return []any{
		&c.Run, &c.Number, &c.Name, &c.Key, &c.User, &c.Policy, &c.Version, (*database.Flag)(&c.Pinned), &c.Experiment, (*database.Flag)(&c.Candidate),
		(*database.Flag)(&c.Redacted), at(&c.Begun), at(&c.Last), &c.Calls,
	}
}

// ConversationsNamed returns the conversations that a client calls by a name, the newest
// first: it may have one with each version. It is no error if there are none.
func (s *Store) ConversationsNamed(ctx context.Context, run, key, name string) ([]record.Conversation, error) {
	all, err := database.List(ctx, s.db.Read(), readConversation,
		selectConversations+` WHERE v.run = $1 AND v.client = $2 AND v.name = $3 AND v.name <> '' ORDER BY v.last DESC, v.number DESC`, run, key, name)
	if err != nil {
		return nil, fmt.Errorf("list conversations %q of run %s: %w", name, run, err)
	}
	return all, nil
}

// missingConversation returns the error for a conversation that is not there. When one is
// removed, its rollout stays, so that its number is not used again.
func missingConversation(ctx context.Context, q database.Querier, run string, number int, err error) error {
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	_, err = database.One(ctx, q, database.Scalar[int], `SELECT attempt FROM rollouts r WHERE r.run = $1 AND r.kind = 'served' AND r.step = 0 AND r.task = $2 AND r.sample = 0`, run, number)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return record.ErrNotFound
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: it was removed: %w", record.ErrNotFound, record.ErrForgotten)
}

// Conversations returns the conversations of a run that a query selects, the newest first.
func (s *Store) Conversations(ctx context.Context, q record.ConversationQuery) ([]record.ConversationSummary, error) {
	where, args := []string{`v.run = $1`}, []any{q.Run}
	add := func(condition string, value any) {
		args = append(args, value)
		where = append(where, strings.ReplaceAll(condition, "?", fmt.Sprintf("$%d", len(args))))
	}
	if q.Policy != "" {
		add(`v.policy = ?`, q.Policy)
	}
	if q.Version != nil {
		add(`v.version = ?`, *q.Version)
	}
	if q.User != "" {
		add(`SUBSTR(v.person, 1, LENGTH(?)) = ?`, q.User)
	}
	if q.Before > 0 {
		add(`v.number < ?`, q.Before)
	}
	if q.WithFeedback {
		where = append(where, `EXISTS (SELECT 1 FROM feedback f WHERE f.run = v.run AND f.conversation = v.number)`)
	}
	if q.Label != "" {
		label, err := encode("label", q.Label)
		if err != nil {
			return nil, err
		}
		add(`EXISTS (SELECT 1 FROM feedback f WHERE f.run = v.run AND f.conversation = v.number AND REPLACE(f.labels, ?, '') <> f.labels)`, label)
	}
	limit := ""
	if q.Limit > 0 {
		limit = fmt.Sprintf(" LIMIT %d", q.Limit)
	}
	// The conversations are chosen before anything is counted, whatever the planner thinks of
	// their number.
	query := `WITH latest (number) AS (SELECT v.number FROM conversations v WHERE ` + strings.Join(where, " AND ") + ` ORDER BY v.number DESC` + limit + `) ` + conversationsOfLatest
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (c record.ConversationSummary, err error) {
		err = row(append(conversationFields(&c.Conversation), &c.Feedback, &c.Unused, &c.Value, &c.Values)...)
		return c, err
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list conversations of run %s: %w", q.Run, err)
	}
	return all, nil
}

const (
	lockConversation  = `SELECT v.number FROM conversations v WHERE v.run = $1 AND v.number = $2`
	conversationsUser = `SELECT number FROM conversations WHERE run = $1 AND person = $2 ORDER BY number`
	feedbackUser      = `SELECT id FROM feedback WHERE run = $1 AND person = $2 ORDER BY id`
	runsUser          = `SELECT run FROM conversations WHERE person = $1 UNION SELECT run FROM feedback WHERE person = $1
UNION SELECT run FROM forgotten WHERE what = 'user' AND ended = 0 AND SUBSTR(task, 1, LENGTH($1) + 1) = $1 || '/' ORDER BY 1`
)

// RemoveFeedbackOf removes the feedback that a user, named by the keyed hash, gave in a run.
func (s *Store) RemoveFeedbackOf(ctx context.Context, run, user string) error {
	if err := s.removeRows(ctx, "feedback", `run = $1 AND person = $2 AND person <> ''`, run, user); err != nil {
		return fmt.Errorf("remove the feedback of a user in run %s: %w", run, err)
	}
	return nil
}

// RunsOfUser returns the names of the runs with a conversation or with feedback of a user,
// who is named by the keyed hash, and of those in which the removal of the user was
// interrupted.
func (s *Store) RunsOfUser(ctx context.Context, user string) ([]string, error) {
	all, err := database.List(ctx, s.db.Read(), database.Scalar[string], runsUser, user)
	if err != nil {
		return nil, fmt.Errorf("list the runs of a user: %w", err)
	}
	return all, nil
}

// ConversationsOfUser returns the numbers of the conversations of a user in a run, in order.
func (s *Store) ConversationsOfUser(ctx context.Context, run, user string) ([]int, error) {
	all, err := database.List(ctx, s.db.Read(), database.Scalar[int], conversationsUser, run, user)
	if err != nil {
		return nil, fmt.Errorf("list the conversations of a user in run %s: %w", run, err)
	}
	return all, nil
}

// FeedbackOfUser returns the ids of the feedback that a user gave in a run, in order.
func (s *Store) FeedbackOfUser(ctx context.Context, run, user string) ([]string, error) {
	all, err := database.List(ctx, s.db.Read(), database.Scalar[string], feedbackUser, run, user)
	if err != nil {
		return nil, fmt.Errorf("list the feedback of a user in run %s: %w", run, err)
	}
	return all, nil
}
