package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

const (
	insertConversation = `INSERT INTO conversations (run, number, name, client, person, policy, version, pinned, experiment, candidate, redacted, begun, last)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0, $11, $11)`
	insertServedRollout = `INSERT INTO rollouts (run, kind, step, task, sample, attempt) VALUES ($1, $2, $3, $4, $5, 1)`
	// Rollouts stay when conversations are removed, so that no number is given twice.
	nextConversation = `SELECT COALESCE(MAX(task), -1) + 1 FROM rollouts WHERE run = $1 AND kind = 'served' AND step = 0`

	selectConversations = `SELECT ` + conversationColumns + fromConversations
	ofConversation      = ` WHERE v.run = $1 AND v.number = $2`
	namedConversation   = selectConversations + ` WHERE v.run = $1 AND v.client = $2 AND v.person = $3 AND v.name = $4 AND v.name <> '' AND v.policy = $5 AND v.pinned = $6 AND (v.pinned = 0 OR v.version = $7)`
	repliedInside       = selectConversations + ` JOIN conversation_replies p ON p.run = v.run AND p.number = v.number WHERE p.run = $1 AND p.client = $2 AND p.digest = $3 AND a.outcome = ''`
	addressOfServed     = `SELECT c.run, c.task FROM calls c WHERE c.kind = 'served' AND c.id = $1 ORDER BY c.run, c.task LIMIT 1`
	// parentsOfServed selects a call by its id, the call that it continues, the parent of that
	// one and so on.
	parentsOfServed = `WITH RECURSIVE below (run, kind, step, task, sample, attempt, seq, parent) AS (
SELECT c.run, c.kind, c.step, c.task, c.sample, c.attempt, c.seq, c.parent FROM calls c WHERE c.kind = 'served' AND c.id = $1 AND c.run = $2 AND c.task = $3
UNION ALL SELECT c.run, c.kind, c.step, c.task, c.sample, c.attempt, c.seq, c.parent FROM below b JOIN calls c ON
c.run = b.run AND c.kind = b.kind AND c.step = b.step AND c.task = b.task AND c.sample = b.sample AND c.attempt = b.attempt AND c.seq = b.parent) `
	matchingCalls = ` WHERE c.run = below.run AND c.kind = below.kind AND c.step = below.step AND c.task = below.task
AND c.sample = below.sample AND c.attempt = below.attempt AND c.seq = below.seq ORDER BY c.seq`

	// The latest conversation with these messages is the one that goes on.
	putReply   = `INSERT INTO conversation_replies (run, client, digest, number) VALUES ($1, $2, $3, $4) ON CONFLICT (run, client, digest) DO UPDATE SET number = excluded.number`
	noteCall   = `UPDATE conversations SET last = CASE WHEN last < $3 THEN $3 ELSE last END, redacted = CASE WHEN $4 = 1 THEN 1 ELSE redacted END WHERE run = $1 AND number = $2`
	putSetting = `INSERT INTO traffic_settings (run, seq, record, person, reason, at)
SELECT CAST($1 AS TEXT), COALESCE(MAX(seq), 0) + 1, CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS BIGINT) FROM traffic_settings WHERE run = $1`
	lastSetting = `SELECT record FROM traffic_settings WHERE run = $1 ORDER BY seq DESC LIMIT 1`
)

// BeginConversation begins a conversation of a client with a served version, together with
// the attempt that has its calls: an attempt without a key, under the terms. If c has a name,
// and the client has an open conversation of that name for the user with the policy, and with
// the version if it is pinned, it returns that one instead; created says which. The store
// sets Number, and Begun and Last if they are zero. The run must be on record; one that was
// forgotten returns record.ErrForgotten.
func (s *Store) BeginConversation(ctx context.Context, c record.Conversation, terms record.Terms) (out record.Conversation, created bool, err error) {
	text, err := encode("terms", terms)
	if err != nil {
		return c, false, fmt.Errorf("begin conversation of run %s: %w", c.Run, err)
	}
	c.Begun = orNow(c.Begun)
	c.Last, c.Calls, c.Redacted = c.Begun, 0, false
	err = s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		created = false // it may have run before
		// The lock makes others wait who look for the name, or for the next number.
		_, err := database.One(t.Ctx, t, database.Scalar[record.Status], selectStatus+t.ForUpdate, c.Run)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if failed := refuseRemoved(t, c.Run); failed != nil {
			return failed
		}
		if err != nil {
			return record.ErrNotFound
		}
		if c.Name != "" {
			out, err = database.One(t.Ctx, t, readConversation, namedConversation, nameKey(c)...)
			if !errors.Is(err, sql.ErrNoRows) {
				return err
			}
		}
		out, created = c, true
		if out.Number, err = database.One(t.Ctx, t, database.Scalar[int], nextConversation, c.Run); err != nil {
			return err
		}
		return insertServed(t, out, text)
	})
	if err != nil {
		return out, false, fmt.Errorf("begin conversation of run %s: %w", c.Run, err)
	}
	if created {
		s.metrics.Conversation()
	}
	return out, created, nil
}

// insertServed adds the rows of a conversation, and of the attempt that has its calls.
func insertServed(t database.Tx, c record.Conversation, terms string) error {
	key, begun := rolloutKey(c.Address().RolloutID), database.Nanos(c.Begun)
	if _, err := t.Exec(insertServedRollout, key...); err != nil {
		return err
	}
	if _, err := t.Exec(insertAttempt, append(key, 1, "", c.Policy, c.Version, terms, "", begun)...); err != nil {
		return err
	}
	if _, err := t.Exec(insertConversation, c.Run, c.Number, database.ValidText(c.Name), c.Key, c.User, c.Policy, c.Version, flag(c.Pinned), c.Experiment, flag(c.Candidate), begun); err != nil {
		return err
	}
	if c.Opening == "" {
		return nil
	}
	_, err := t.Exec(putReply, c.Run, c.Key, c.Opening, c.Number)
	return err
}

func flag(set bool) int {
	if set {
		return 1
	}
	return 0
}

// nameKey returns what a name of a client is looked up by.
func nameKey(c record.Conversation) []any {
	return []any{c.Run, c.Key, c.User, database.ValidText(c.Name), c.Policy, flag(c.Pinned), c.Version}
}

// noteServed notes a call of a conversation, in the transaction that appends it.
func noteServed(t database.Tx, a record.Address, c record.ServedCall) error {
	if _, err := t.Exec(noteCall, a.Run, a.Task, database.Nanos(time.Now()), flag(c.Redacted)); err != nil || c.Digest == "" {
		return err
	}
	_, err := t.Exec(putReply, a.Run, c.Client, c.Digest, a.Task)
	return err
}

// Conversation returns a conversation of a run by its number, or record.ErrNotFound. If it was
// removed, the error also wraps record.ErrForgotten.
func (s *Store) Conversation(ctx context.Context, run string, number int) (record.Conversation, error) {
	c, err := database.One(ctx, s.db.ReadOften(), readConversation, selectConversations+ofConversation, run, number)
	if err != nil {
		return c, fmt.Errorf("read conversation %d of run %s: %w", number, run, missingConversation(ctx, s.db.Read(), run, number, err))
	}
	return c, nil
}

// NamedConversation returns the conversation that BeginConversation would return for c instead
// of beginning one, or record.ErrNotFound.
func (s *Store) NamedConversation(ctx context.Context, c record.Conversation) (record.Conversation, error) {
	out, err := database.One(ctx, s.db.ReadOften(), readConversation, namedConversation, nameKey(c)...)
	if err != nil {
		return out, fmt.Errorf("find conversation %q of run %s: %w", c.Name, c.Run, notFound(err))
	}
	return out, nil
}

// ConversationOfReply returns the conversation of a client that stands where a digest says:
// that of a record.ServedCall, or of an Opening. If several do, it is the one that got there
// last. Without one, it returns record.ErrNotFound.
func (s *Store) ConversationOfReply(ctx context.Context, run, client, digest string) (record.Conversation, error) {
	c, err := database.One(ctx, s.db.ReadOften(), readConversation, repliedInside, run, client, digest)
	if err != nil {
		return c, fmt.Errorf("find conversation of run %s by its messages: %w", run, notFound(err))
	}
	return c, nil
}

// ConversationWithReply returns the conversation that has a reply with an id, or
// record.ErrNotFound.
func (s *Store) ConversationWithReply(ctx context.Context, id string) (record.Conversation, error) {
	c, err := database.One(ctx, s.db.Read(), func(row database.Scan) (c record.Conversation, err error) {
		err = row(&c.Run, &c.Number)
		return c, err
	}, addressOfServed, id)
	if err != nil {
		return c, fmt.Errorf("find reply %s: %w", id, notFound(err))
	}
	return s.Conversation(ctx, c.Run, c.Number)
}

// ServedReply returns the call of a conversation whose reply has an id, or record.ErrNotFound.
// It reads the call and those that it continues, because their tokens begin its prompt.
func (s *Store) ServedReply(ctx context.Context, id string) (c record.Conversation, call record.Call, err error) {
	if c, err = s.ConversationWithReply(ctx, id); err != nil {
		return c, call, err
	}
	read, err := s.readCalls(ctx, parentsOfServed+calls.From("below")+matchingCalls, id, c.Run, c.Number)
	if err != nil {
		return c, call, fmt.Errorf("read reply %s: %w", id, err)
	}
	if len(read) == 0 { // it was removed meanwhile
		return c, call, fmt.Errorf("find reply %s: %w", id, record.ErrNotFound)
	}
	return c, read[len(read)-1], nil
}

func readConversation(row database.Scan) (c record.Conversation, err error) {
	err = row(conversationFields(&c)...)
	return c, err
}

const (
	expiredConversations = `SELECT number FROM conversations WHERE run = $1 AND last < $2 ORDER BY number`
	closeServed          = `UPDATE attempts SET outcome = 'completed', ended = $7, error = $8
WHERE run = $1 AND kind = $2 AND step = $3 AND task = $4 AND sample = $5 AND attempt = $6 AND outcome = ''`
	unnameConversation = `UPDATE conversations SET name = '' WHERE run = $1 AND number = $2`
	emptyConversations = `SELECT v.number` + fromConversations + ` WHERE v.run = $1 AND v.last < $2 AND a.calls = 0
AND NOT EXISTS (SELECT 1 FROM feedback f WHERE f.run = v.run AND f.conversation = v.number) ORDER BY v.number`
	contentOfServed = `SELECT a.calls + (SELECT COUNT(*) FROM feedback f WHERE f.run = a.run AND f.conversation = a.task) FROM attempts a
WHERE a.run = $1 AND a.kind = $2 AND a.step = $3 AND a.task = $4 AND a.sample = $5 AND a.attempt = $6`
	stillExpired = `SELECT COUNT(*) FROM conversations WHERE run = $1 AND number = $2 AND last < $3`
)

// removedConversation is the error of an attempt whose conversation was removed.
const removedConversation = "the conversation was removed"

// RemoveConversations removes the conversations of a run whose last call was recorded before
// a time, except for some, as RemoveConversation does, and returns how many. If it is
// interrupted, the next call continues.
func (s *Store) RemoveConversations(ctx context.Context, run string, before time.Time, keep []int) (removed int, err error) {
	numbers, err := database.List(ctx, s.db.Read(), database.Scalar[int], expiredConversations, run, database.Nanos(before))
	if err != nil {
		return 0, fmt.Errorf("list conversations of run %s before %s: %w", run, before, err)
	}
	for _, n := range numbers {
		if slices.Contains(keep, n) {
			continue
		}
		ok, err := s.removeConversation(ctx, run, n, before, false)
		if err != nil {
			return removed, err
		}
		if ok {
			removed++
		}
	}
	return removed, nil
}

// RemoveEmptyConversations removes the conversations of a run that began before a time and have
// neither calls nor feedback, and returns how many. Such a conversation is left by a gateway
// that was killed before its first reply was on record.
func (s *Store) RemoveEmptyConversations(ctx context.Context, run string, before time.Time) (removed int, err error) {
	numbers, err := database.List(ctx, s.db.Read(), database.Scalar[int], emptyConversations, run, database.Nanos(before))
	if err != nil {
		return 0, fmt.Errorf("list empty conversations of run %s before %s: %w", run, before, err)
	}
	for _, n := range numbers {
		ok, err := s.removeConversation(ctx, run, n, time.Time{}, true)
		if err != nil {
			return removed, err
		}
		if ok {
			removed++
		}
	}
	return removed, nil
}

// DiscardConversation removes a conversation as RemoveConversation does, unless it has calls or
// feedback.
// removed is false if it has.
func (s *Store) DiscardConversation(ctx context.Context, run string, number int) (removed bool, err error) {
	return s.removeConversation(ctx, run, number, time.Time{}, true)
}

// RemoveConversation removes a conversation with its calls, its feedback, and what candidates
// replied to it in the shadow. From then on its attempt accepts no calls. The rows of the
// attempt and its rollout stay, without texts and tokens, so that its number is not given
// again. If it is interrupted, the next call continues; it is no error if nothing is left.
func (s *Store) RemoveConversation(ctx context.Context, run string, number int) error {
	_, err := s.removeConversation(ctx, run, number, time.Time{}, false)
	return err
}

// removeConversation removes a conversation, unless it went on after before, or has calls
// or feedback although it should be empty; a zero time removes it whenever it went on.
func (s *Store) removeConversation(ctx context.Context, run string, number int, before time.Time, empty bool) (removed bool, err error) {
	a := record.ConversationAddress(run, number)
	fail := func(err error) (bool, error) {
		return false, fmt.Errorf("remove conversation %d of run %s: %w", number, run, err)
	}
	// First nobody can add to it or find it any more, last its own row goes, so that it is
	// found again if this process is killed.
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if t.ForUpdate == "" { // SQLite leaves the bytes of the name in its file otherwise
			if _, err := t.Exec("PRAGMA secure_delete = ON"); err != nil {
				return err
			}
		}
		if _, err := lockAttempt(t, a); err != nil {
			return err
		}
		// Feedback that is being added has the lock.
		if _, err := database.List(t.Ctx, t, database.Scalar[int], lockConversation+t.ForUpdate, run, number); err != nil {
			return err
		}
		if !before.IsZero() {
			n, err := database.One(t.Ctx, t, database.Scalar[int], stillExpired, run, number, database.Nanos(before))
			if removed = n > 0; err != nil || !removed {
				return err
			}
		}
		if removed = true; empty {
			n, err := database.One(t.Ctx, t, database.Scalar[int], contentOfServed, attemptKey(a)...)
			if removed = n == 0; err != nil || !removed {
				return err
			}
		}
		if _, err := t.Exec(closeServed, append(attemptKey(a), database.Nanos(time.Now()), removedConversation)...); err != nil {
			return err
		}
		_, err := t.Exec(unnameConversation, run, number)
		return err
	})
	if errors.Is(err, record.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return fail(err)
	}
	if !removed {
		return false, nil
	}
	for _, table := range attemptTables {
		if err := s.removeRows(ctx, table, rowsOfAttempt, attemptKey(a)...); err != nil {
			return fail(err)
		}
	}
	for _, where := range []struct{ table, column string }{{"shadow_replies", "conversation"}, {"feedback", "conversation"}, {"conversation_replies", "number"}, {"conversations", "number"}} {
		if err := s.removeRows(ctx, where.table, `run = $1 AND `+where.column+` = $2`, run, number); err != nil {
			return fail(err)
		}
	}
	s.recent.drop(a)
	return true, nil
}

// PutTrafficSetting sets what is recorded of a run's conversations from now on: "none",
// "with-consent" or "all", in place of what its spec says. It also works on runs that have
// ended.
func (s *Store) PutTrafficSetting(ctx context.Context, run, setting, by, reason string) error {
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		_, err := database.One(t.Ctx, t, database.Scalar[record.Status], selectStatus+t.ForUpdate, run)
		if err != nil {
			return notFound(err)
		}
		if err := refuseRemoved(t, run); err != nil {
			return err
		}
		_, err = t.Exec(putSetting, run, setting, by, database.ValidText(reason), database.Nanos(time.Now()))
		return err
	})
	if err != nil {
		return fmt.Errorf("set what is recorded of conversations with run %s: %w", run, err)
	}
	return nil
}

// TrafficSetting returns what PutTrafficSetting set last, or "" if it never did.
func (s *Store) TrafficSetting(ctx context.Context, run string) (string, error) {
	setting, err := database.One(ctx, s.db.ReadOften(), database.Scalar[string], lastSetting, run)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("read what is recorded of conversations with run %s: %w", run, err)
	}
	return setting, nil
}
