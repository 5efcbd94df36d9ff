package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

const (
	ofKeptRuns     = ` IN (SELECT name FROM runs WHERE status <> 'forgetting')`
	neededVersions = `SELECT run, policy, number, manifest, batch FROM versions WHERE collected = 0 AND run` + ofKeptRuns + ` ORDER BY run, policy, number`
	neededSplits   = `SELECT name, splits FROM runs WHERE status <> 'forgetting' ORDER BY name`
	neededPrompts  = `SELECT run, prompts FROM prompt_versions WHERE run` + ofKeptRuns + ` ORDER BY run, number`
	neededArchives = `SELECT run, digest FROM archives WHERE removed = 0 AND digest <> '' AND run` + ofKeptRuns + ` ORDER BY run`
	removedByAsk   = selectForgotten + ` WHERE what <> 'records' ORDER BY begun, run, what, task`
)

// NeededFile is a blob without which a store is not complete.
type NeededFile struct {
	Digest string
	// For says for people what needs it.
	For string
	// Manifest says that it is the manifest of a version. The other blobs that the manifest
	// names are needed, too, except for Batch, which goes if a task is forgotten.
	Manifest bool
	Batch    string
}

// NeededFiles calls visit with the blobs that the store needs as long as its rows are there:
// the manifests of versions that keep their files, the tasks of runs, prompts, and archived
// histories. Batches
// are not among them: they may have been removed with a task.
func (s *Store) NeededFiles(ctx context.Context, visit func(NeededFile) error) error {
	for _, one := range []struct {
		query string
		read  func(database.Scan) ([]NeededFile, error)
	}{{neededVersions, neededManifest}, {neededSplits, neededSplit}, {neededPrompts, neededPrompt}, {neededArchives, neededArchive}} {
		rows, err := database.List(ctx, s.db.Read(), one.read, one.query)
		if err != nil {
			return fmt.Errorf("read which files are needed: %w", err)
		}
		for _, files := range rows {
			for _, f := range files {
				if err := visit(f); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func neededManifest(row database.Scan) ([]NeededFile, error) {
	var id model.VersionID
	f := NeededFile{Manifest: true}
	err := row(&id.Run, &id.Policy, &id.Number, &f.Digest, &f.Batch)
	f.For = "version " + id.String()
	return []NeededFile{f}, err
}

func neededSplit(row database.Scan) (out []NeededFile, err error) {
	var run, splits string
	if err := row(&run, &splits); err != nil {
		return nil, err
	}
	for _, digest := range digestsIn.FindAllString(splits, -1) {
		out = append(out, NeededFile{Digest: digest, For: "the tasks of run " + run})
	}
	return out, nil
}

func neededPrompt(row database.Scan) (out []NeededFile, err error) {
	var run, prompts string
	err = row(&run, &prompts)
	if strings.HasPrefix(prompts, "sha256:") {
		out = append(out, NeededFile{Digest: prompts, For: "the prompts of run " + run})
	}
	return out, err
}

func neededArchive(row database.Scan) ([]NeededFile, error) {
	var run string
	var f NeededFile
	err := row(&run, &f.Digest)
	f.For = "the archived histories of run " + run
	return []NeededFile{f}, err
}

// AllForgotten returns the tombstones of all runs, and of all tasks within runs, the oldest
// first.
func (s *Store) AllForgotten(ctx context.Context) ([]record.Forgotten, error) {
	all, err := database.List(ctx, s.db.Read(), readForgotten, removedByAsk)
	if err != nil {
		return nil, fmt.Errorf("list what was forgotten: %w", err)
	}
	return all, nil
}

// Schema returns the number of the store's schema, 0 if it has no tables.
func (s *Store) Schema(ctx context.Context) (int, error) { return s.db.Schema(ctx) }

// SchemaNumber returns the number of the schema that this program needs.
func SchemaNumber() (int, error) { return database.SchemaNumber() }
