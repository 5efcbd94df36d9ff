package checker

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// TrafficRecords are the store's records of a run that learns from conversations.
type TrafficRecords struct {
	Run           string
	Status        string
	Execution     string // of Temporal, the first of its chain
	Conversations []TrafficConversation
	Calls         []ServedCall // by conversation and number
	Rollouts      []Call       // of evaluations
	Feedback      []FeedbackRow
	Segments      []Segment // by step
	Versions      []TrafficVersion
	Batches       map[int]string  // digests, by step
	Promotions    []Promotion     // in their order
	Decisions     []Decision      // that moved no pointer
	Experiments   []ExperimentRow // in the order in which they began
}

// TrafficConversation is a conversation's row. Client is the name of a key.
type TrafficConversation struct {
	Number  int
	Client  string
	Person  string // a hash, or empty
	Version int
	// Experiment is the candidate of the experiment that it takes part in, or 0.
	Experiment int
	Candidate  bool // which answers it
	Redacted   bool
}

// ServedCall is a call of a conversation, whose number is the Task of its address.
type ServedCall struct {
	Call
	ID  string
	Key string // of the request
	// Request is the body as stored: whole for the first call of a conversation. Response is
	// whole for all.
	Request, Response string
	// Prompted is how many bytes its prompt has as it is stored.
	Prompted int
}

// redacted reports whether the call is on record without the tokens that were sampled.
func (c ServedCall) redacted() bool { return len(c.Tokens) == 0 }

// FeedbackRow is the row of feedback. Step is the segment that used it, or 0.
type FeedbackRow struct {
	ID           string
	Conversation int
	Reply        string
	Reward       *float64
	Client       string
	Step         int
	At           time.Time
}

// Segment is the row of what a step learns from.
type Segment struct {
	Step          int       `json:"step"`
	Parent        int       `json:"parent"`
	Feedback      []string  `json:"feedback"`
	Conversations []int     `json:"conversations"`
	Calls         []int     `json:"calls"`
	Replies       int       `json:"replies"`
	At            time.Time `json:"-"`
}

// TrafficVersion is a version's row, with its parent.
type TrafficVersion struct {
	Version
	Parent int
}

// Promotion is a move of the promoted version.
type Promotion struct {
	Version int
	At      time.Time
}

// conversation returns a conversation by its number.
func (r TrafficRecords) conversation(number int) (TrafficConversation, bool) {
	for _, c := range r.Conversations {
		if c.Number == number {
			return c, true
		}
	}
	return TrafficConversation{}, false
}

// reply reads the id and the text of a call's recorded reply.
func (c ServedCall) reply() (id, content string, err error) {
	var body struct {
		ID      string `json:"id"`
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
	}
	if err := json.Unmarshal([]byte(c.Response), &body); err != nil {
		return "", "", fmt.Errorf("read the body of reply %s: %w", c.ID, err)
	}
	if len(body.Choices) != 1 {
		return body.ID, "", fmt.Errorf("reply %s has %d choices", c.ID, len(body.Choices))
	}
	return body.ID, body.Choices[0].Message.Content, nil
}

// TrafficRecords reads everything that the store has of a run that learns from conversations.
func (d *Database) TrafficRecords(ctx context.Context, run string) (TrafficRecords, error) {
	r := TrafficRecords{Run: run, Batches: map[int]string{}}
	if err := d.db.QueryRowContext(ctx, `SELECT status, execution_id FROM runs WHERE name = $1`, run).Scan(&r.Status, &r.Execution); err != nil {
		return r, fmt.Errorf("read store of run %s: %w", run, err)
	}
	for _, read := range []func(context.Context, *TrafficRecords) error{d.conversations, d.servedCalls, d.feedback, d.segments, d.chain, d.experiments} {
		if err := read(ctx, &r); err != nil {
			return r, fmt.Errorf("read store of run %s: %w", run, err)
		}
	}
	return r, nil
}

func (d *Database) conversations(ctx context.Context, r *TrafficRecords) error {
	return d.list(ctx, `SELECT number, client, person, version, experiment, candidate, redacted FROM conversations WHERE run = $1 ORDER BY number`, r.Run, func(scan func(...any) error) error {
		var c TrafficConversation
		var candidate, redacted int
		err := scan(&c.Number, &c.Client, &c.Person, &c.Version, &c.Experiment, &candidate, &redacted)
		c.Candidate, c.Redacted = candidate == 1, redacted == 1
		r.Conversations = append(r.Conversations, c)
		return err
	})
}

func (d *Database) servedCalls(ctx context.Context, r *TrafficRecords) error {
	all := Records{Run: r.Run}
	if err := d.calls(ctx, &all); err != nil {
		return err
	}
	type place struct{ task, seq int }
	served := map[place]Call{}
	for _, c := range all.Calls {
		if c.Kind == "served" {
			served[place{c.Task, c.Seq}] = c
		} else {
			r.Rollouts = append(r.Rollouts, c)
		}
	}
	const query = `SELECT c.task, c.seq, c.id, c.key, LENGTH(c.prompt), e.request, e.response FROM calls c
JOIN exchanges e ON e.run = c.run AND e.kind = c.kind AND e.step = c.step AND e.task = c.task AND e.sample = c.sample AND e.attempt = c.attempt AND e.seq = c.seq
WHERE c.run = $1 AND c.kind = 'served' ORDER BY c.task, c.seq`
	err := d.list(ctx, query, r.Run, func(scan func(...any) error) error {
		var c ServedCall
		var request, response []byte
		if err := scan(&c.Task, &c.Seq, &c.ID, &c.Key, &c.Prompted, &request, &response); err != nil {
			return err
		}
		c.Call, c.Request, c.Response = served[place{c.Task, c.Seq}], string(request), string(response)
		r.Calls = append(r.Calls, c)
		return nil
	})
	if err == nil && len(r.Calls) != len(served) {
		err = fmt.Errorf("%d calls of conversations have %d bodies", len(served), len(r.Calls))
	}
	return err
}

func (d *Database) feedback(ctx context.Context, r *TrafficRecords) error {
	return d.list(ctx, `SELECT id, conversation, call_id, reward, client, step, at FROM feedback WHERE run = $1 ORDER BY id`, r.Run, func(scan func(...any) error) error {
		var f FeedbackRow
		var at int64
		err := scan(&f.ID, &f.Conversation, &f.Reply, &f.Reward, &f.Client, &f.Step, &at)
		f.At = time.Unix(0, at)
		r.Feedback = append(r.Feedback, f)
		return err
	})
}

func (d *Database) segments(ctx context.Context, r *TrafficRecords) error {
	return d.list(ctx, `SELECT segment, at FROM segments WHERE run = $1 ORDER BY step`, r.Run, func(scan func(...any) error) error {
		var text string
		var at int64
		if err := scan(&text, &at); err != nil {
			return err
		}
		s := Segment{At: time.Unix(0, at)}
		err := json.Unmarshal([]byte(text), &s)
		r.Segments = append(r.Segments, s)
		return err
	})
}

// chain reads versions, batches and promotions.
func (d *Database) chain(ctx context.Context, r *TrafficRecords) error {
	versions := d.list(ctx, `SELECT number, parent, weights, batch FROM versions WHERE run = $1 AND policy = 'main' ORDER BY number`, r.Run, func(scan func(...any) error) error {
		var v TrafficVersion
		err := scan(&v.Number, &v.Parent, &v.Weights, &v.Batch)
		r.Versions = append(r.Versions, v)
		return err
	})
	batches := d.list(ctx, `SELECT step, digest FROM batches WHERE run = $1`, r.Run, func(scan func(...any) error) error {
		var step int
		var digest string
		err := scan(&step, &digest)
		r.Batches[step] = digest
		return err
	})
	promotions := d.list(ctx, `SELECT version, at FROM promotions WHERE run = $1 AND policy = 'main' ORDER BY seq`, r.Run, func(scan func(...any) error) error {
		var p Promotion
		var at int64
		err := scan(&p.Version, &at)
		p.At = time.Unix(0, at)
		r.Promotions = append(r.Promotions, p)
		return err
	})
	return errors.Join(versions, batches, promotions)
}

// ConversationsOf returns the numbers of the conversations with some replies, in order, and
// whether a segment has used feedback on one of them.
func (d *Database) ConversationsOf(ctx context.Context, run string, replies []string) (numbers []int, learned bool, err error) {
	for _, id := range replies {
		const query = `SELECT task, (SELECT COUNT(*) FROM feedback f WHERE f.run = c.run AND f.conversation = c.task AND f.step > 0) FROM calls c WHERE c.run = $1 AND c.kind = 'served' AND c.id = $2`
		var number, used int
		err := d.db.QueryRowContext(ctx, query, run, id).Scan(&number, &used)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		numbers, learned = append(numbers, number), learned || used > 0
	}
	slices.Sort(numbers)
	return slices.Compact(numbers), learned, nil
}

// Serves reports whether a version of a run is promoted, and how many segments have no
// version yet.
func (d *Database) Serves(ctx context.Context, run string) (promoted bool, learning int, err error) {
	var n int
	err = d.db.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM promoted WHERE run = $1),
(SELECT COUNT(*) FROM segments s WHERE s.run = $1 AND NOT EXISTS (SELECT 1 FROM versions v WHERE v.run = s.run AND v.policy = s.policy AND v.number = s.step))`, run).Scan(&n, &learning)
	return n > 0, learning, err
}

// SegmentBatch is the batch of a segment. Sampled holds the tokens that are trained, by
// conversation.
type SegmentBatch struct{ Sampled map[int][]int32 }

// ReadSegmentBatch reads the batch of a segment from its file in a directory of blobs.
func ReadSegmentBatch(blobs, digest string) (SegmentBatch, error) {
	out, err := readSegmentBatch(blobs, digest)
	if err != nil {
		return out, fmt.Errorf("read batch %s: %w", digest, err)
	}
	return out, nil
}

func readSegmentBatch(blobs, digest string) (SegmentBatch, error) {
	out := SegmentBatch{map[int][]int32{}}
	file, err := readBatchFile(blobs, digest)
	if err != nil {
		return out, err
	}
	trajectories, err := file.trajectories()
	if err != nil {
		return out, err
	}
	offsets, rows, tokens, sampled := file.array("offsets", 4), file.array("trajectories", 4), file.array("tokens", 4), file.array("sampled", 1)
	if len(offsets) != len(rows)+1 || len(tokens) != len(sampled) || len(rows) == 0 || offsets[len(rows)] != int32(len(tokens)) {
		return out, fmt.Errorf("it has %d rows, %d offsets, %d tokens and %d marks", len(rows), len(offsets), len(tokens), len(sampled))
	}
	for i, row := range rows {
		if int(row) >= len(trajectories) || row < 0 || offsets[i] > offsets[i+1] || offsets[i] < 0 {
			return out, fmt.Errorf("row %d is of trajectory %d, at %d to %d", i, row, offsets[i], offsets[i+1])
		}
		t := trajectories[row]
		if t.Kind != "served" {
			return out, fmt.Errorf("row %d is of an attempt of kind %q", i, t.Kind)
		}
		for k := offsets[i]; k < offsets[i+1]; k++ {
			if sampled[k] != 0 {
				out.Sampled[t.Task] = append(out.Sampled[t.Task], tokens[k])
			}
		}
	}
	return out, nil
}

// array returns an array of the file, whose numbers have one byte or four; nil if there is
// none.
func (b batchFile) array(name string, size int) []int32 {
	var at struct {
		Offsets [2]int `json:"data_offsets"`
	}
	if json.Unmarshal(b.header[name], &at) != nil || at.Offsets[0] < 0 || at.Offsets[1] > len(b.data) || at.Offsets[0] > at.Offsets[1] {
		return nil
	}
	var out []int32
	for data := b.data[at.Offsets[0]:at.Offsets[1]]; len(data) >= size; data = data[size:] {
		if size == 1 {
			out = append(out, int32(data[0]))
		} else {
			out = append(out, int32(binary.LittleEndian.Uint32(data))) //nolint:gosec // the bits are those of an int32
		}
	}
	return out
}
