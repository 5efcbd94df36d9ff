package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

const (
	insertShadow = `INSERT INTO shadow_replies (run, policy, candidate, conversation, call_id, reply, tokens, finish, duration, error, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING`
	selectShadow    = `SELECT run, policy, candidate, conversation, call_id, reply, tokens, finish, duration, error, at FROM shadow_replies WHERE run = $1 AND policy = $2`
	newestCandidate = ` AND candidate = (SELECT MAX(candidate) FROM shadow_replies WHERE run = $1 AND policy = $2)`
)

// PutShadowReply records what a candidate replied to a call of a conversation, unless a reply to
// the call is recorded; created says whether this call stored it. A conversation that was
// removed is record.ErrForgotten, one that never was record.ErrNotFound. If At is zero, it is
// set to the current time.
//
// The caller makes sure that the call is one of the conversation.
func (s *Store) PutShadowReply(ctx context.Context, r record.ShadowReply) (created bool, err error) {
	wrap := func(err error) error {
		return fmt.Errorf("put the shadow reply to %s of run %s: %w", r.CallID, r.Run, err)
	}
	if err := r.Check(); err != nil {
		return false, wrap(err)
	}
	args := []any{
		r.Run, r.Policy, r.Candidate, r.Conversation, r.CallID, database.ValidText(r.Reply), r.Tokens, r.Finish, int64(r.Duration),
		database.ValidText(r.Error), database.Nanos(orNow(r.At)),
	}
	err = s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error { // it can be sampled again
		if err := refuseRemoved(t, r.Run); err != nil {
			return err
		}
		// As for feedback: the lock keeps the conversation from being removed until the commit.
		locked, err := database.List(t.Ctx, t, database.Scalar[int], lockConversation+t.ForUpdate, r.Run, r.Conversation)
		if err != nil {
			return err
		}
		open, err := database.One(t.Ctx, t, database.Scalar[int], openConversation, r.Run, r.Conversation)
		if err != nil {
			return err
		}
		if open == 0 || !slices.Contains(locked, r.Conversation) {
			return missingConversation(t.Ctx, t, r.Run, r.Conversation, sql.ErrNoRows)
		}
		n, err := t.Exec(insertShadow, args...)
		created = n == 1
		return err
	})
	if err != nil {
		return false, wrap(err)
	}
	return created, nil
}

// ShadowReplies returns what a candidate replied in the shadow, the replies of the newest
// conversations first. It is no error if there are none.
func (s *Store) ShadowReplies(ctx context.Context, q record.ShadowQuery) ([]record.ShadowReply, error) {
	where, args := "", []any{q.Run, q.Policy}
	if q.Candidate == nil {
		where += newestCandidate
	} else {
		args = append(args, *q.Candidate)
		where += fmt.Sprintf(" AND candidate = $%d", len(args))
	}
	if q.Before != nil {
		args = append(args, *q.Before)
		where += fmt.Sprintf(" AND conversation < $%d", len(args))
	}
	query := selectShadow + where
	if q.Limit > 0 {
		args = append(args, q.Limit)
		query += ` AND conversation IN (SELECT DISTINCT conversation FROM shadow_replies WHERE run = $1 AND policy = $2` + where + fmt.Sprintf(` ORDER BY conversation DESC LIMIT $%d)`, len(args))
	}
	all, err := database.List(ctx, s.db.Read(), func(row database.Scan) (r record.ShadowReply, err error) {
		err = row(&r.Run, &r.Policy, &r.Candidate, &r.Conversation, &r.CallID, &r.Reply, &r.Tokens, &r.Finish, &r.Duration, &r.Error, at(&r.At))
		return r, err
	}, query+` ORDER BY conversation DESC, at, call_id`, args...)
	if err != nil {
		return nil, fmt.Errorf("list the shadow replies of %s/%s: %w", q.Run, q.Policy, err)
	}
	return all, nil
}
