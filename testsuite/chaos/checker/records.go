package checker

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/fulgurite/fulgurite/spec"
)

// RolloutAddress is a rollout's address within its run.
type RolloutAddress struct {
	Kind               string
	Step, Task, Sample int
}

// Attempt is an attempt's row.
type Attempt struct {
	RolloutAddress
	Number  int
	Outcome string // empty while it is open
}

// Call is a recorded model call.
type Call struct {
	RolloutAddress
	Attempt, Seq int
	Policy       string
	Version      int
	Weights      string
	Seed         uint64
	Tokens       []int32 // of the completion
	// ReplayedFrom is the attempt whose recorded call answered this one, or 0 if it was
	// sampled.
	ReplayedFrom int
	Recorded     time.Time
}

// Version is a version's row.
type Version struct {
	Number         int
	Weights, Batch string
}

// Evaluation is an evaluation's row.
type Evaluation struct {
	Kind     string
	Version  int
	Rollouts int
	Mean     float64
}

// Quarantine is a prompt that was quarantined.
type Quarantine struct {
	Kind       string
	Step, Task int
}

// mainPolicy is the name of the policy if a run trains one, and of all of them together if it
// trains several.
const mainPolicy = "main"

// criticSuffix follows the name of a policy in that of its critic, if the run trains several.
const criticSuffix = ".critic"

// Records are the store's records of a run.
type Records struct {
	Run         string
	Status      string
	Execution   string // of Temporal, the first of its chain
	Seed        uint64
	Steps       int
	TasksPer    int        // tasks of a step
	Samples     int        // of a task
	TrainTasks  int        // in the train split
	Chosen      *spec.Spec // the spec, if it has a curriculum
	Choices     []Choice   // of that, by step
	FlatLimit   int        // groups that a step may replace because they are flat
	HasCritic   bool       // of the only policy
	CriticNames []string   // the policies that have a critic of their own, sorted
	Attempts    []Attempt
	Calls       []Call
	Versions    []Version
	Critics     []Version            // of the model that estimates returns, if there is one
	Policies    map[string][]Version // by name, if the run trains several; Versions are then the joint ones
	PolicyNames []string             // that the spec has
	// PolicyCritics are the critics of several policies, by the policy's name.
	PolicyCritics map[string][]Version
	Batches       map[int]string // digests, by step
	Evaluations   []Evaluation
	Quarantined   []Quarantine
	Judgments     []Judgment // that this run asked for
	Promoted      int
}

// Database is a store that is read and never written.
type Database struct {
	db     *sql.DB
	sqlite bool
}

// OpenDatabase opens the store at a URL, an SQLite file or postgres://…
func OpenDatabase(url string) (*Database, error) {
	driver := "sqlite"
	if strings.HasPrefix(url, "postgres") {
		driver = "pgx"
	} else {
		url = "file:" + url + "?_pragma=busy_timeout(15000)&_pragma=query_only(1)"
	}
	db, err := sql.Open(driver, url)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	db.SetMaxOpenConns(2)
	return &Database{db, driver == "sqlite"}, nil
}

// Close closes the connections.
func (d *Database) Close() error { return d.db.Close() }

// Status returns a run's status, or "" while there is no such run.
func (d *Database) Status(ctx context.Context, run string) (string, error) {
	var status string
	err := d.db.QueryRowContext(ctx, `SELECT status FROM runs WHERE name = $1`, run).Scan(&status)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return status, err
}

// Records reads everything that the store has of a run.
func (d *Database) Records(ctx context.Context, run string) (Records, error) {
	r := Records{Run: run, Batches: map[int]string{}, Policies: map[string][]Version{}, PolicyCritics: map[string][]Version{}, Promoted: -1}
	for _, read := range []func(context.Context, *Records) error{
		d.run, d.attempts, d.calls, d.versions, d.batches, d.evaluations, d.quarantines, d.choices, d.judgments, d.promoted,
	} {
		if err := read(ctx, &r); err != nil {
			return r, fmt.Errorf("read store of run %s: %w", run, err)
		}
	}
	return r, nil
}

func (d *Database) run(ctx context.Context, r *Records) error {
	var text, splits string
	err := d.db.QueryRowContext(ctx, `SELECT status, execution_id, spec, splits FROM runs WHERE name = $1`, r.Run).
		Scan(&r.Status, &r.Execution, &text, &splits)
	if err != nil {
		return err
	}
	var s struct {
		Seed     uint64 `json:"seed"`
		Training struct {
			Steps          int `json:"steps"`
			TasksPerStep   int `json:"tasks_per_step"`
			SamplesPerTask int `json:"samples_per_task"`
			FlatLimit      int `json:"dynamic_sampling"`
		} `json:"training"`
		Critic   *struct{}           `json:"critic"`
		Policies map[string]struct{} `json:"policies"`
	}
	var counts map[string]struct {
		Count int `json:"count"`
	}
	if err := errors.Join(json.Unmarshal([]byte(text), &s), json.Unmarshal([]byte(splits), &counts)); err != nil {
		return err
	}
	whole, err := spec.Stored([]byte(text))
	if err != nil {
		return err
	}
	if whole.Training.Chooses() {
		r.Chosen = &whole
	}
	r.Seed, r.Steps, r.TasksPer, r.Samples = s.Seed, s.Training.Steps, s.Training.TasksPerStep, s.Training.SamplesPerTask
	r.TrainTasks, r.FlatLimit, r.HasCritic = counts["train"].Count, s.Training.FlatLimit, s.Critic != nil
	r.PolicyNames = slices.Sorted(maps.Keys(s.Policies))
	if len(r.PolicyNames) > 0 { // what the spec says of critics is then about those of the policies
		r.HasCritic, r.CriticNames = false, whole.CriticPolicies(mainPolicy)
	}
	if r.Steps == 0 || r.TasksPer == 0 || r.Samples == 0 || r.TrainTasks == 0 {
		return errors.New("its spec lacks steps, tasks or samples")
	}
	return nil
}

func (d *Database) attempts(ctx context.Context, r *Records) error {
	return d.list(ctx, `SELECT kind, step, task, sample, attempt, outcome FROM attempts WHERE run = $1`, r.Run, func(scan func(...any) error) error {
		var a Attempt
		err := scan(&a.Kind, &a.Step, &a.Task, &a.Sample, &a.Number, &a.Outcome)
		r.Attempts = append(r.Attempts, a)
		return err
	})
}

func (d *Database) calls(ctx context.Context, r *Records) error {
	const query = `SELECT kind, step, task, sample, attempt, seq, policy, version, weights, seed, completion, replayed_from, recorded
FROM calls WHERE run = $1 ORDER BY recorded, attempt, seq`
	return d.list(ctx, query, r.Run, func(scan func(...any) error) error {
		var c Call
		var seed, recorded int64
		var completion []byte
		err := scan(&c.Kind, &c.Step, &c.Task, &c.Sample, &c.Attempt, &c.Seq, &c.Policy, &c.Version, &c.Weights, &seed, &completion, &c.ReplayedFrom, &recorded)
		c.Seed, c.Recorded = uint64(seed), time.Unix(0, recorded)
		for len(completion) > 0 && err == nil {
			v, n := binary.Uvarint(completion)
			if n <= 0 {
				return fmt.Errorf("tokens of call %d of %+v can't be read", c.Seq, c.RolloutAddress)
			}
			c.Tokens = append(c.Tokens, int32(uint32(v)))
			completion = completion[n:]
		}
		r.Calls = append(r.Calls, c)
		return err
	})
}

func (d *Database) versions(ctx context.Context, r *Records) error {
	return d.list(ctx, `SELECT policy, number, weights, batch FROM versions WHERE run = $1 ORDER BY number`, r.Run, func(scan func(...any) error) error {
		var policy string
		var v Version
		err := scan(&policy, &v.Number, &v.Weights, &v.Batch)
		of, isCritic := strings.CutSuffix(policy, criticSuffix)
		switch {
		case policy == "critic":
			r.Critics = append(r.Critics, v)
		case policy == mainPolicy:
			r.Versions = append(r.Versions, v)
		case isCritic:
			r.PolicyCritics[of] = append(r.PolicyCritics[of], v)
		default:
			r.Policies[policy] = append(r.Policies[policy], v)
		}
		return err
	})
}

func (d *Database) batches(ctx context.Context, r *Records) error {
	return d.list(ctx, `SELECT step, digest FROM batches WHERE run = $1`, r.Run, func(scan func(...any) error) error {
		var step int
		var digest string
		err := scan(&step, &digest)
		r.Batches[step] = digest
		return err
	})
}

func (d *Database) evaluations(ctx context.Context, r *Records) error {
	const query = `SELECT kind, version, rollouts, mean FROM evaluations WHERE run = $1 ORDER BY kind, version`
	return d.list(ctx, query, r.Run, func(scan func(...any) error) error {
		var e Evaluation
		err := scan(&e.Kind, &e.Version, &e.Rollouts, &e.Mean)
		r.Evaluations = append(r.Evaluations, e)
		return err
	})
}

func (d *Database) quarantines(ctx context.Context, r *Records) error {
	return d.list(ctx, `SELECT kind, step, task FROM quarantines WHERE run = $1`, r.Run, func(scan func(...any) error) error {
		var q Quarantine
		err := scan(&q.Kind, &q.Step, &q.Task)
		r.Quarantined = append(r.Quarantined, q)
		return err
	})
}

func (d *Database) choices(ctx context.Context, r *Records) error {
	return d.list(ctx, `SELECT choice FROM choices WHERE run = $1 ORDER BY step`, r.Run, func(scan func(...any) error) error {
		var text string
		if err := scan(&text); err != nil {
			return err
		}
		var c struct {
			Step  int `json:"step"`
			Stage int `json:"stage"`
			Since int `json:"since"`
			Draws []struct {
				Task int `json:"task"`
			} `json:"draws"`
		}
		err := json.Unmarshal([]byte(text), &c)
		made := Choice{Step: c.Step, Stage: c.Stage, Since: c.Since}
		for _, draw := range c.Draws {
			made.Tasks = append(made.Tasks, draw.Task)
		}
		r.Choices = append(r.Choices, made)
		return err
	})
}

func (d *Database) judgments(ctx context.Context, r *Records) error {
	return d.list(ctx, `SELECT key, scores, at FROM judgments WHERE run = $1`, r.Run, func(scan func(...any) error) error {
		var j Judgment
		var scores string
		var at int64
		if err := scan(&j.Key, &scores, &at); err != nil {
			return err
		}
		j.At = time.Unix(0, at)
		r.Judgments = append(r.Judgments, j)
		return json.Unmarshal([]byte(scores), &r.Judgments[len(r.Judgments)-1].Scores)
	})
}

func (d *Database) promoted(ctx context.Context, r *Records) error {
	return d.list(ctx, `SELECT version FROM promoted WHERE run = $1`, r.Run, func(scan func(...any) error) error {
		return scan(&r.Promoted)
	})
}

// list calls row for each row.
func (d *Database) list(ctx context.Context, query, run string, row func(scan func(...any) error) error) error {
	rows, err := d.db.QueryContext(ctx, query, run)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
