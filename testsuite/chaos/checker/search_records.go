package checker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Budget is a number for each purpose of a search: rollouts on the train split, rollouts
// on the validation split, and requests to the reflector.
type Budget struct {
	Minibatch   int `json:"minibatch"`
	Validation  int `json:"validation"`
	Reflections int `json:"reflections"`
}

// SearchResult is the part of the result of a PromptWorkflow that the checker reads.
type SearchResult struct {
	Promoted int `json:"promoted"`
	Search   struct {
		Candidates int      `json:"candidates"`
		Proposals  int      `json:"proposals"`
		Refused    int      `json:"refused"`
		Best       *float64 `json:"best"`
		Spent      Budget   `json:"spent"`
	} `json:"search"`
	SearchEnd struct {
		Reason    string   `json:"reason"`
		Purpose   string   `json:"purpose"`
		Version   int      `json:"version"`
		Prompts   string   `json:"prompts"`
		Score     *float64 `json:"score"`
		SeedScore *float64 `json:"seed_score"`
	} `json:"search_end"`
}

// TaskResult is the result of a candidate on one task.
type TaskResult struct {
	Task     int           `json:"task"`
	Score    *float64      `json:"score"`
	Attempts []TaskAttempt `json:"attempts"`
}

// TaskAttempt is an attempt that counts in a result.
type TaskAttempt struct {
	Trace  string   `json:"trace"` // run/kind-step/task/sample/attempt
	Reward *float64 `json:"reward"`
}

// SearchAnswer is the row of the answer to a request of a search.
type SearchAnswer struct {
	Number     int
	Request    string
	Reflection string // the key of the reply that it was read from
	At         time.Time
	// These are in its JSON.
	Results []TaskResult
	Retries int
	Text    string
	Refusal string
}

// Reflection is the row of a reflector's reply.
type Reflection struct {
	Key, Request string
	// Model is what the reflector called itself. No two replies of the suite's reflector
	// have the same.
	Model, Text string
	At          time.Time
}

// PromptVersion is the row of a version of the prompts.
type PromptVersion struct {
	Number, Parent     int
	Prompts, Candidate string
}

// GateDecision is the row of a decision about a version of the prompts, whether it moved
// the pointer or not.
type GateDecision struct {
	ID                string
	Candidate, Before int
	Verdict           string // empty if it moved the pointer
	Reason, Evidence  string
}

// SearchAttempt is an attempt's row as far as a search has to do with it.
type SearchAttempt struct {
	RolloutAddress
	Number  int
	Outcome string
	Reward  *float64
	Prompts string // the digest of what the agent was served
}

// SearchRecords are the store's records of a search for prompts.
type SearchRecords struct {
	Run, Status, Execution string
	Begun, Ended           time.Time
	Start                  string // the version RUN@NUMBER of the prompts that it began with, if any
	Budget                 Budget
	Answers                []SearchAnswer // in the order of their numbers
	Reflections            []Reflection
	Versions               []PromptVersion
	Decisions              []GateDecision
	Evaluations            []Evaluation
	Attempts               []SearchAttempt
	Calls                  []Call // without tokens
	Promoted               int
}

// SearchRecords reads everything that the store has of a search for prompts.
func (d *Database) SearchRecords(ctx context.Context, run string) (SearchRecords, error) {
	r := SearchRecords{Run: run, Promoted: -1}
	for _, read := range []func(context.Context, *SearchRecords) error{
		d.searchRun, d.searchAnswers, d.reflections, d.promptVersions, d.gateDecisions, d.searchEvaluations, d.searchAttempts, d.searchCalls,
	} {
		if err := read(ctx, &r); err != nil {
			return r, fmt.Errorf("read store of run %s: %w", run, err)
		}
	}
	return r, nil
}

func (d *Database) searchRun(ctx context.Context, r *SearchRecords) error {
	var text string
	var created, finished int64
	err := d.db.QueryRowContext(ctx, `SELECT status, execution_id, spec, created, finished FROM runs WHERE name = $1`, r.Run).
		Scan(&r.Status, &r.Execution, &text, &created, &finished)
	if err != nil {
		return err
	}
	r.Begun, r.Ended = time.Unix(0, created), time.Unix(0, finished)
	var s struct {
		Prompts struct {
			Version string `json:"version"`
		} `json:"prompts"`
		Optimizer struct {
			Budget Budget `json:"budget"`
		} `json:"optimizer"`
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	r.Start = s.Prompts.Version
	if r.Budget = s.Optimizer.Budget; r.Budget == (Budget{}) {
		return errors.New("its spec has no budget")
	}
	return nil
}

func (d *Database) searchAnswers(ctx context.Context, r *SearchRecords) error {
	const query = `SELECT number, request, answer, reflection, at FROM search_answers WHERE run = $1 ORDER BY number`
	return d.list(ctx, query, r.Run, func(scan func(...any) error) error {
		var a SearchAnswer
		var text string
		var at int64
		if err := scan(&a.Number, &a.Request, &text, &a.Reflection, &at); err != nil {
			return err
		}
		var answer struct {
			Results []TaskResult `json:"results"`
			Retries int          `json:"retries"`
			Text    string       `json:"text"`
			Refusal string       `json:"refusal"`
		}
		err := json.Unmarshal([]byte(text), &answer)
		a.At, a.Results, a.Retries, a.Text, a.Refusal = time.Unix(0, at), answer.Results, answer.Retries, answer.Text, answer.Refusal
		r.Answers = append(r.Answers, a)
		return err
	})
}

func (d *Database) reflections(ctx context.Context, r *SearchRecords) error {
	return d.list(ctx, `SELECT key, request, reply, at FROM reflections WHERE run = $1 ORDER BY request, key`, r.Run, func(scan func(...any) error) error {
		var one Reflection
		var text string
		var at int64
		if err := scan(&one.Key, &one.Request, &text, &at); err != nil {
			return err
		}
		var reply struct {
			Model string `json:"model"`
			Text  string `json:"text"`
		}
		err := json.Unmarshal([]byte(text), &reply)
		one.Model, one.Text, one.At = reply.Model, reply.Text, time.Unix(0, at)
		r.Reflections = append(r.Reflections, one)
		return err
	})
}

func (d *Database) promptVersions(ctx context.Context, r *SearchRecords) error {
	const query = `SELECT number, parent, prompts, candidate FROM prompt_versions WHERE run = $1 ORDER BY number`
	return d.list(ctx, query, r.Run, func(scan func(...any) error) error {
		var v PromptVersion
		err := scan(&v.Number, &v.Parent, &v.Prompts, &v.Candidate)
		r.Versions = append(r.Versions, v)
		return err
	})
}

// gateDecisions reads the pointer to the prompts, its moves, and the decisions that moved
// nothing.
func (d *Database) gateDecisions(ctx context.Context, r *SearchRecords) error {
	err := d.list(ctx, `SELECT version FROM promoted WHERE run = $1 AND policy = 'prompts'`, r.Run, func(scan func(...any) error) error {
		return scan(&r.Promoted)
	})
	if err != nil {
		return err
	}
	const query = `SELECT decision_id, version, previous, '', reason, evidence FROM promotions WHERE run = $1 AND policy = 'prompts'
UNION ALL SELECT decision_id, candidate, promoted, verdict, reason, evidence FROM decisions WHERE run = $1 AND policy = 'prompts' ORDER BY 1`
	return d.list(ctx, query, r.Run, func(scan func(...any) error) error {
		var g GateDecision
		err := scan(&g.ID, &g.Candidate, &g.Before, &g.Verdict, &g.Reason, &g.Evidence)
		r.Decisions = append(r.Decisions, g)
		return err
	})
}

func (d *Database) searchEvaluations(ctx context.Context, r *SearchRecords) error {
	const query = `SELECT kind, version, rollouts, mean FROM evaluations WHERE run = $1 ORDER BY policy, kind, version`
	return d.list(ctx, query, r.Run, func(scan func(...any) error) error {
		var e Evaluation
		err := scan(&e.Kind, &e.Version, &e.Rollouts, &e.Mean)
		r.Evaluations = append(r.Evaluations, e)
		return err
	})
}

func (d *Database) searchAttempts(ctx context.Context, r *SearchRecords) error {
	const query = `SELECT kind, step, task, sample, attempt, outcome, reward, terms FROM attempts WHERE run = $1 ORDER BY kind, step, task, sample, attempt`
	return d.list(ctx, query, r.Run, func(scan func(...any) error) error {
		var a SearchAttempt
		var text string
		if err := scan(&a.Kind, &a.Step, &a.Task, &a.Sample, &a.Number, &a.Outcome, &a.Reward, &text); err != nil {
			return err
		}
		var terms struct {
			Prompts string `json:"prompts"`
		}
		err := json.Unmarshal([]byte(text), &terms)
		a.Prompts = terms.Prompts
		r.Attempts = append(r.Attempts, a)
		return err
	})
}

func (d *Database) searchCalls(ctx context.Context, r *SearchRecords) error {
	const query = `SELECT kind, step, task, sample, attempt, seq, seed, replayed_from, recorded FROM calls WHERE run = $1 ORDER BY recorded, attempt, seq`
	return d.list(ctx, query, r.Run, func(scan func(...any) error) error {
		var c Call
		var seed, recorded int64
		err := scan(&c.Kind, &c.Step, &c.Task, &c.Sample, &c.Attempt, &c.Seq, &seed, &c.ReplayedFrom, &recorded)
		c.Seed, c.Recorded = uint64(seed), time.Unix(0, recorded)
		r.Calls = append(r.Calls, c)
		return err
	})
}
