package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

const (
	countSearchAnswers  = `SELECT COUNT(*) FROM search_answers WHERE run = $1`
	insertSearchAnswer  = `INSERT INTO search_answers (run, number, request, answer, reflection, at) VALUES ($1, $2, $3, $4, $5, $6)`
	selectSearchAnswers = `SELECT run, number, request, answer, reflection, at FROM search_answers WHERE run = $1`
	searchAnswerTo      = selectSearchAnswers + ` AND request = $2`
	searchAnswersFrom   = selectSearchAnswers + ` AND number >= $2 ORDER BY number`

	insertReflection  = `INSERT INTO reflections (key, reply, run, request, at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`
	selectReflections = `SELECT key, reply, run, request, at FROM reflections`
	reflectionBy      = selectReflections + ` WHERE key = $1`
	reflectionsOf     = selectReflections + ` WHERE run = $1 ORDER BY at, key`

	insertPromptVersion  = `INSERT INTO prompt_versions (run, number, parent, prompts, candidate, at) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`
	selectPromptVersions = `SELECT run, number, parent, prompts, candidate, at FROM prompt_versions WHERE run = $1`
	promptVersion        = selectPromptVersions + ` AND number = $2`
)

// PutSearchAnswer stores the answer to a request of a run's search, under the next number,
// unless the request has an answer. It returns the answer on record and whether this call
// stored it. If At is zero, it is set to the current time.
func (s *Store) PutSearchAnswer(ctx context.Context, a record.SearchAnswer) (record.SearchAnswer, bool, error) {
	var stored record.SearchAnswer
	var created bool
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) (err error) {
		if err := refuseRemoved(t, a.Run); err != nil {
			return err
		}
		// The pointer's row is also the lock that gives numbers to one answer at a time.
		if _, _, err := lockPointer(t, a.Run, record.PromptsPolicy); err != nil {
			return err
		}
		stored, err = database.One(t.Ctx, t, readSearchAnswer, searchAnswerTo, a.Run, a.Request)
		if created = errors.Is(err, sql.ErrNoRows); !created {
			return err
		}
		if a.Number, err = database.One(t.Ctx, t, database.Scalar[int], countSearchAnswers, a.Run); err != nil {
			return err
		}
		a.At = orNow(a.At)
		stored = a
		_, err = t.Exec(insertSearchAnswer, a.Run, a.Number, a.Request, string(a.Answer), a.Reflection, database.Nanos(a.At))
		return err
	})
	if err != nil {
		return record.SearchAnswer{}, false, fmt.Errorf("put the answer to request %s of run %s: %w", a.Request, a.Run, err)
	}
	return stored, created, nil
}

// SearchAnswers returns the answers of a run's search with numbers from the given one on,
// in order. It is no error if there are none.
func (s *Store) SearchAnswers(ctx context.Context, run string, from int) ([]record.SearchAnswer, error) {
	all, err := database.List(ctx, s.db.Read(), readSearchAnswer, searchAnswersFrom, run, from)
	if err != nil {
		return nil, fmt.Errorf("list the answers of the search of run %s: %w", run, err)
	}
	return all, nil
}

func readSearchAnswer(row database.Scan) (record.SearchAnswer, error) {
	var a record.SearchAnswer
	var answer string
	err := row(&a.Run, &a.Number, &a.Request, &answer, &a.Reflection, at(&a.At))
	a.Answer = raw(answer)
	return a, err
}

// PutReflection stores a reflector's reply unless its key has one. It returns the reply on
// record and whether this call stored it. If At is zero, it is set to the current time.
func (s *Store) PutReflection(ctx context.Context, r record.Reflection) (record.Reflection, bool, error) {
	reply, err := encode("reply", r.Reply)
	if err != nil {
		return record.Reflection{}, false, fmt.Errorf("put reflection %s: %w", r.Key, err)
	}
	args := []any{r.Key, reply, r.Run, r.Request, database.Nanos(orNow(r.At))}
	var stored record.Reflection
	var created bool
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) (err error) {
		if err := refuseRemoved(t, r.Run); err != nil {
			return err
		}
		stored, created, err = database.InsertOrFind(t, insertReflection, args, func() (record.Reflection, error) {
			return database.One(t.Ctx, t, readReflection, reflectionBy, r.Key)
		})
		return err
	})
	if err != nil {
		return record.Reflection{}, false, fmt.Errorf("put reflection %s: %w", r.Key, err)
	}
	return stored, created, nil
}

// Reflection returns the reply under a key, or record.ErrNotFound.
func (s *Store) Reflection(ctx context.Context, key string) (record.Reflection, error) {
	r, err := database.One(ctx, s.db.Read(), readReflection, reflectionBy, key)
	if err != nil {
		return record.Reflection{}, fmt.Errorf("read reflection %s: %w", key, notFound(err))
	}
	return r, nil
}

// Reflections returns the replies that a run had made, the oldest first. It does not
// return those that the run found on record. It is no error if there are none.
func (s *Store) Reflections(ctx context.Context, run string) ([]record.Reflection, error) {
	all, err := database.List(ctx, s.db.Read(), readReflection, reflectionsOf, run)
	if err != nil {
		return nil, fmt.Errorf("list the reflections of run %s: %w", run, err)
	}
	return all, nil
}

func readReflection(row database.Scan) (r record.Reflection, err error) {
	err = row(&r.Key, inJSON{&r.Reply}, &r.Run, &r.Request, at(&r.At))
	return r, err
}

// PutPromptVersion stores a version of a run's prompts. Recording it again changes nothing;
// other prompts or another parent return record.ErrConflict. If At is zero, it is set to
// the current time.
func (s *Store) PutPromptVersion(ctx context.Context, v record.PromptVersion) error {
	args := []any{v.Run, v.Number, v.Parent, v.Prompts, v.Candidate, database.Nanos(orNow(v.At))}
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		if err := refuseRemoved(t, v.Run); err != nil {
			return err
		}
		old, _, err := database.InsertOrFind(t, insertPromptVersion, args, func() (record.PromptVersion, error) {
			return database.One(t.Ctx, t, readPromptVersion, promptVersion, v.Run, v.Number)
		})
		if err == nil && (old.Prompts != v.Prompts || old.Parent != v.Parent) {
			err = fmt.Errorf("%w: it has prompts %s from version %d", record.ErrConflict, old.Prompts, old.Parent)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("put version %d of the prompts of run %s: %w", v.Number, v.Run, err)
	}
	return nil
}

// PromptVersion returns a version of a run's prompts, or record.ErrNotFound.
func (s *Store) PromptVersion(ctx context.Context, run string, number int) (record.PromptVersion, error) {
	v, err := database.One(ctx, s.db.Read(), readPromptVersion, promptVersion, run, number)
	if err != nil {
		return record.PromptVersion{}, fmt.Errorf("read version %d of the prompts of run %s: %w", number, run, notFound(err))
	}
	return v, nil
}

// PromptVersions returns the versions of a run's prompts by number. It is no error if there
// are none.
func (s *Store) PromptVersions(ctx context.Context, run string) ([]record.PromptVersion, error) {
	all, err := database.List(ctx, s.db.Read(), readPromptVersion, selectPromptVersions+` ORDER BY number`, run)
	if err != nil {
		return nil, fmt.Errorf("list the versions of the prompts of run %s: %w", run, err)
	}
	return all, nil
}

func readPromptVersion(row database.Scan) (v record.PromptVersion, err error) {
	err = row(&v.Run, &v.Number, &v.Parent, &v.Prompts, &v.Candidate, at(&v.At))
	return v, err
}
