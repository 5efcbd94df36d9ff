package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

// NextRows returns the limit of a removal's next transaction, after one with a limit of rows
// that changed some and took some time.
func NextRows(rows, changed int, took time.Duration) int { return nextRows(rows, changed, took) }

// LastDurability returns a function that returns the durability of s's last write since
// then.
func LastDurability(s *Store) func() database.Durability {
	r := &recorder{DB: s.db}
	s.db = r
	return func() database.Durability { return r.last }
}

// Plans records the queries that s reads from now on. It returns a function that returns
// the database's plan for each query, as "EXPLAIN QUERY PLAN" of SQLite or "EXPLAIN" of
// PostgreSQL prints it.
func Plans(s *Store, explain string) func(ctx context.Context) (map[string][]string, error) {
	l := &listener{DB: s.db, seen: map[string][]any{}}
	s.db = l
	return func(ctx context.Context) (map[string][]string, error) {
		out := map[string][]string{}
		for query, args := range l.seen {
			plan, err := database.List(ctx, l.DB.Read(), func(row database.Scan) (detail string, err error) {
				if explain == "EXPLAIN" {
					return detail, row(&detail)
				}
				var id, parent, unused int
				err = row(&id, &parent, &unused, &detail)
				return detail, err
			}, explain+" "+query, args...)
			if err != nil {
				return nil, err
			}
			out[query] = plan
		}
		return out, nil
	}
}

// listener is a database that remembers the queries of one goroutine.
type listener struct {
	database.DB
	seen map[string][]any
}

func (l *listener) Read() database.Querier { return listening{l.DB.Read(), l.seen} }

func (l *listener) ReadOften() database.Querier { return l.Read() }

type listening struct {
	database.Querier
	seen map[string][]any
}

func (l listening) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	l.seen[query] = args
	return l.Querier.QueryContext(ctx, query, args...)
}

// recorder is a database that remembers the durability of the last write of one
// goroutine.
type recorder struct {
	database.DB
	last database.Durability
}

func (r *recorder) Write(ctx context.Context, d database.Durability, op func(database.Tx) error) error {
	r.last = d
	return r.DB.Write(ctx, d, op)
}

// Dying makes every write of s fail from number left on, counted from 0: before its
// transaction, or, if committed is true, after it.
func Dying(s *Store, left int, committed bool, killed error) {
	s.db = &dying{s.db, left, committed, killed}
}

type dying struct {
	database.DB
	left      int
	committed bool
	killed    error
}

func (d *dying) Write(ctx context.Context, durability database.Durability, op func(database.Tx) error) error {
	if d.left--; d.left >= 0 {
		return d.DB.Write(ctx, durability, op)
	}
	if d.committed && d.left == -1 {
		return errors.Join(d.killed, d.DB.Write(ctx, durability, op))
	}
	return d.killed
}

const insertTestConversation = `INSERT INTO conversations (run, number, name, client, person, policy, version, pinned, experiment, candidate, redacted, begun, last)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`

// InsertConversation puts the row of a conversation on record, without calls.
func InsertConversation(ctx context.Context, s *Store, c record.Conversation) error {
	return s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		_, err := t.Exec(insertTestConversation, c.Run, c.Number, c.Name, c.Key, c.User, c.Policy, c.Version, database.Flag(c.Pinned), c.Experiment, database.Flag(c.Candidate), database.Flag(c.Redacted), at(&c.Begun), at(&c.Last))
		return err
	})
}

// FillFeedback gives a conversation a number of thumbs.
func FillFeedback(ctx context.Context, s *Store, run string, conversation, n int) error {
	return s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		for i := range n {
			r, err := newFeedbackRow(record.Feedback{Run: run, ID: fmt.Sprintf("thumb %d", i), Conversation: conversation, Thumb: record.ThumbUp})
			if err == nil {
				_, err = t.Exec(insertFeedback, feedbacks.Fields(&r)...)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
