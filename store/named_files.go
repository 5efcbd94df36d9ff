package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

// In these queries OF stands for the condition on the run, which is one or any but one, and
// SINCE(table) for the condition that a row was written since some moment.
const (
	namedManifests = `SELECT manifest FROM versions WHERE OF AND SINCE(versions) AND collected = 0 UNION SELECT manifest FROM progress WHERE OF AND SINCE(progress)`
	namedCollected = `SELECT manifest FROM versions WHERE OF AND SINCE(versions) AND collected <> 0`
	namedBatches   = `SELECT digest FROM batches WHERE OF AND SINCE(batches) UNION SELECT batch FROM versions WHERE OF AND SINCE(versions) UNION SELECT batch FROM steps WHERE OF AND SINCE(steps)`
	namedOthers    = `SELECT manifest FROM versions WHERE OF AND SINCE(versions) UNION SELECT scores FROM versions WHERE OF AND SINCE(versions)
UNION SELECT weights FROM versions WHERE OF AND SINCE(versions) UNION SELECT digest FROM pending_files WHERE OF AND SINCE(pending_files)
UNION SELECT prompts FROM prompt_versions WHERE OF AND SINCE(prompt_versions) UNION SELECT digest FROM archives WHERE OF AND SINCE(archives)`
	namedInSplits = `SELECT splits FROM (SELECT name AS run, splits FROM runs WHERE SINCE(runs)) r WHERE OF`
	namedInSpecs  = `SELECT spec FROM (SELECT name AS run, spec FROM runs WHERE SINCE(specs)) r WHERE OF`
	ofOne         = `run = $1`
	ofOthers      = `run <> $1`
	// Candidates of a search, and the prompts of a spec, are named only here.
	termsOfRun    = `SELECT DISTINCT terms FROM attempts WHERE run = $1`
	termsOfOthers = `SELECT DISTINCT a.terms FROM attempts a JOIN runs r ON r.name = a.run WHERE a.run <> $1 AND r.spec LIKE '%"prompts"%'`

	manifestsSince = `SELECT manifest FROM versions WHERE SINCE(versions) AND collected = 0 UNION SELECT manifest FROM progress WHERE SINCE(progress)`
	manifestsKept  = `SELECT manifest FROM versions WHERE collected = 0 UNION SELECT manifest FROM progress`

	// A run's row is written anew only if the run was refused, with another execution then.
	selectExecutions = `SELECT name || '/' || execution_id || '/' || created FROM runs`
	oldestUnfinished = `SELECT txid_snapshot_xmin(txid_current_snapshot())`
)

// rowKeys has, for the tables whose rows are added and removed and never change what they
// name, an expression for the key of a row.
var rowKeys = map[string]string{
	"versions":        `run || '/' || policy || '/' || number`,
	"batches":         `run || '/' || policy || '/' || step`,
	"steps":           `run || '/' || policy || '/' || step`,
	"prompt_versions": `run || '/' || number`,
}

var (
	digestsIn = regexp.MustCompile(`sha256:[0-9a-f]{64}`)
	sinceForm = regexp.MustCompile(`SINCE\((\w+)\)`)
)

// moment is a moment of the store: what was written since can be told from the rest. What
// was written shortly before may count as written since.
type moment struct {
	// transaction is, for PostgreSQL, the oldest transaction that had not ended.
	transaction int64
	// newest are, for SQLite, the newest rows of the tables of rowKeys, and executions those
	// of all runs.
	newest     map[string]newestRow
	executions map[string]bool
}

type newestRow struct {
	id  int64 // 0 if the table is empty
	key string
}

// now returns the present moment.
func (s *Store) now(ctx context.Context) (*moment, error) {
	q, m := s.db.Read(), &moment{newest: map[string]newestRow{}, executions: map[string]bool{}}
	if s.postgres {
		var err error
		m.transaction, err = database.One(ctx, q, database.Scalar[int64], oldestUnfinished)
		return m, err
	}
	for table, key := range rowKeys {
		newest, err := database.One(ctx, q, func(row database.Scan) (n newestRow, err error) {
			err = row(&n.id, &n.key)
			return n, err
		}, `SELECT rowid, `+key+` FROM `+table+` ORDER BY rowid DESC LIMIT 1`)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
		m.newest[table] = newest
	}
	executions, err := database.List(ctx, q, database.Scalar[string], selectExecutions)
	for _, one := range executions {
		m.executions[one] = true
	}
	return m, err
}

// condition is that of rows that were written since a moment. Its text has a question mark in
// place of an argument, if it has one: with the number in the text itself, a connection would
// prepare and keep each query anew.
type condition struct {
	text     string
	argument any
}

// always is the condition that every row was written since.
func always(string) condition { return condition{"TRUE", nil} }

// since returns the conditions by table; nil stands for the beginning. SQLite gives a row a
// larger number than all that are there. So those with larger numbers are new, unless the
// newest row of then was removed and its number given to another. Tables whose rows change
// are small, and read whole.
func (m *moment) since(t database.Tx) (func(table string) condition, error) {
	switch {
	case m == nil:
		return always, nil
	case t.ForUpdate != "": // PostgreSQL
		oldest := condition{`age(xmin) <= age(?::text::xid)`, fmt.Sprint(m.transaction & 0xffffffff)}
		return func(string) condition { return oldest }, nil
	}
	conditions := map[string]condition{}
	for table, newest := range m.newest {
		key, err := database.One(t.Ctx, t, database.Scalar[string], `SELECT `+rowKeys[table]+` FROM `+table+` WHERE rowid = $1`, newest.id)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
		if err == nil && key == newest.key {
			conditions[table] = condition{"rowid > ?", newest.id}
		}
	}
	executions, err := database.List(t.Ctx, t, database.Scalar[string], selectExecutions)
	if err != nil {
		return nil, err
	}
	changed := []string{}
	for _, one := range executions {
		if !m.executions[one] {
			changed = append(changed, one)
		}
	}
	text, err := json.Marshal(changed)
	if err != nil {
		return nil, fmt.Errorf("encode names of runs: %w", err)
	}
	conditions["specs"] = condition{`name || '/' || execution_id || '/' || created IN (SELECT value FROM json_each(?))`, string(text)}
	return func(table string) condition {
		if one, ok := conditions[table]; ok {
			return one
		}
		return always(table)
	}, nil
}

// expand fills in the placeholders of a query, and returns it with its arguments, which begin
// with args.
func expand(query, of string, since func(table string) condition, args ...any) (string, []any) {
	query = strings.ReplaceAll(query, "WHERE OF", "WHERE "+of)
	query = sinceForm.ReplaceAllStringFunc(query, func(found string) string {
		one := since(sinceForm.FindStringSubmatch(found)[1])
		if !strings.Contains(one.text, "?") {
			return one.text
		}
		args = append(args, one.argument)
		return strings.Replace(one.text, "?", fmt.Sprintf("$%d", len(args)), 1)
	})
	return query, args
}

// FilesOf returns the blobs that the rows of a run name.
func (s *Store) FilesOf(ctx context.Context, run string) (record.NamedFiles, error) {
	files, err := namedFiles(ctx, s.db.Read(), ofOne, always, run)
	if err == nil {
		err = addTerms(ctx, s.db.Read(), &files, termsOfRun, run)
	}
	if err != nil {
		return files, fmt.Errorf("read which files run %s has: %w", run, err)
	}
	return files, nil
}

// PromptsOfOthers returns the blobs with prompts that attempts of other runs name. It reads
// all attempts of runs with prompts.
func (s *Store) PromptsOfOthers(ctx context.Context, run string) ([]string, error) {
	var files record.NamedFiles
	if err := addTerms(ctx, s.db.Read(), &files, termsOfOthers, run); err != nil {
		return nil, fmt.Errorf("read which prompts other runs than %s have: %w", run, err)
	}
	return files.Others, nil
}

// FilesOfOthers returns the blobs that the rows of all runs but one name. It locks nothing, so
// more may be added meanwhile: At is a moment before it began to read.
func (s *Store) FilesOfOthers(ctx context.Context, run string) (record.NamedFiles, error) {
	at, err := s.now(ctx)
	if err != nil {
		return record.NamedFiles{}, fmt.Errorf("read which files other runs than %s have: %w", run, err)
	}
	files, err := namedFiles(ctx, s.db.Read(), ofOthers, always, run)
	if err != nil {
		return files, fmt.Errorf("read which files other runs than %s have: %w", run, err)
	}
	files.At = at
	return files, nil
}

// WhileOthersNeed calls f with the blobs that rows of all runs but one name, as far as the rows
// may have been written since the moment At of FilesOfOthers; nil stands for the beginning.
// Until f returns, no run, version, batch or file is put on record. f should return within
// some milliseconds.
func (s *Store) WhileOthersNeed(ctx context.Context, run string, at any, f func(added record.NamedFiles) error) error {
	since, _ := at.(*moment)
	err := s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		if t.ForUpdate != "" {
			if _, err := t.Exec(`LOCK TABLE runs, versions, batches, steps, progress, archives, pending_files, prompt_versions IN SHARE ROW EXCLUSIVE MODE`); err != nil {
				return err
			}
		}
		conditions, err := since.since(t)
		if err != nil {
			return err
		}
		files, err := namedFiles(t.Ctx, t, ofOthers, conditions, run)
		if err != nil {
			return err
		}
		return f(files)
	})
	if err != nil {
		return fmt.Errorf("read which files other runs than %s need: %w", run, err)
	}
	return nil
}

// KeptManifests returns the manifests of all versions of all runs that are not collected, and
// of saved progress. It locks nothing: at is a moment before it began to read.
func (s *Store) KeptManifests(ctx context.Context) (manifests []string, at any, err error) {
	began, err := s.now(ctx)
	if err == nil {
		manifests, err = database.List(ctx, s.db.Read(), database.Scalar[string], manifestsKept)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read which files versions have: %w", err)
	}
	return manifests, began, nil
}

// WhileUnchanged calls f with the manifests of all versions of all runs that are not
// collected, and of saved progress, as far as they may have been put on record since the
// moment of KeptManifests; nil stands for the beginning. Until f returns no other version is
// put on record.
func (s *Store) WhileUnchanged(ctx context.Context, at any, f func(added []string) error) error {
	since, _ := at.(*moment)
	err := s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		if t.ForUpdate != "" { // SQLite has one writer at a time anyway
			if _, err := t.Exec(`LOCK TABLE versions IN SHARE ROW EXCLUSIVE MODE`); err != nil {
				return err
			}
		}
		manifests, err := manifestsAdded(t, since)
		if err != nil {
			return err
		}
		return f(manifests)
	})
	if err != nil {
		return fmt.Errorf("read which files versions need: %w", err)
	}
	return nil
}

// namedFiles returns the blobs that rows of runs name, under conditions on the run and on when
// they were written. Manifests name further ones.
func namedFiles(ctx context.Context, q database.Querier, of string, since func(table string) condition, run string) (files record.NamedFiles, err error) {
	for _, named := range []struct {
		query string
		by    *[]string
	}{
		{namedManifests, &files.Manifests},
		{namedCollected, &files.Collected},
		{namedBatches, &files.Batches},
		{namedOthers, &files.Others},
		{namedInSplits, &files.Others},
		{namedInSpecs, &files.Others},
	} {
		query, args := expand(named.query, of, since, run)
		all, err := database.List(ctx, q, database.Scalar[string], query, args...)
		if err != nil {
			return files, err
		}
		for _, text := range all {
			*named.by = append(*named.by, digestsIn.FindAllString(text, -1)...)
		}
	}
	return files, nil
}

func addTerms(ctx context.Context, q database.Querier, files *record.NamedFiles, query, run string) error {
	texts, err := database.List(ctx, q, database.Scalar[string], query, run)
	for _, text := range texts {
		files.Others = append(files.Others, digestsIn.FindAllString(text, -1)...)
	}
	return err
}
