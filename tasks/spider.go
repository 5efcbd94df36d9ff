package tasks

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// MetadataDatabase is the key of a task's metadata that has the path of the SQLite
// database which the task's question is about.
const MetadataDatabase = "database"

// databaseFolders are where the layouts of Spider and BIRD keep their databases,
// beside the file of questions.
func databaseFolders() []string {
	return []string{"database", "databases", "train_databases", "dev_databases", "test_database"}
}

// readSpider reads questions about databases in the layout of Spider
// (https://yale-lily.github.io/spider) or BIRD (https://bird-bench.github.io): rows
// with db_id, question, query (in BIRD SQL) and in BIRD evidence, and each database
// in database/<db_id>/<db_id>.sqlite beside the file. A task's id is the row's
// number, its input the question, its answer the query; its metadata names the
// database. A row without a database is an error.
func readSpider(path string) ([]Task, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open tasks: %w", err)
	}
	databases := spiderDatabases{folder: filepath.Dir(absolute), found: map[string]string{}}
	return readTasks(path, func(fields row, number int) (Task, error) {
		question, err := fields.text("question")
		if err != nil {
			return Task{}, err
		}
		key := "query"
		if !fields.has(key) && fields.has("SQL") {
			key = "SQL"
		}
		query, err := fields.text(key)
		if err != nil {
			return Task{}, err
		}
		name, err := fields.text("db_id")
		if err != nil {
			return Task{}, err
		}
		database, err := databases.path(name)
		if err != nil {
			return Task{}, err
		}
		metadata := map[string]any{"db_id": name, MetadataDatabase: database}
		if fields.has("evidence") {
			metadata["evidence"] = textOf(fields["evidence"])
		}
		return Task{ID: strconv.Itoa(number), Input: question, Answer: query, Metadata: metadata}, nil
	})
}

// spiderDatabases are the databases beside a file of questions.
type spiderDatabases struct {
	folder string
	found  map[string]string // path by name, empty for a missing one
}

// path returns the path of the database with a name.
func (d spiderDatabases) path(name string) (string, error) {
	if name == "." || name == ".." || strings.ContainsAny(name, `/\`) {
		return "", fmt.Errorf("db_id %q can't be the name of a database", name)
	}
	if _, ok := d.found[name]; !ok {
		d.found[name] = ""
		for _, folder := range databaseFolders() {
			path := filepath.Join(d.folder, folder, name, name+".sqlite")
			if stat, err := os.Stat(path); err == nil && stat.Mode().IsRegular() {
				d.found[name] = path
				break
			}
		}
	}
	if d.found[name] == "" {
		return "", fmt.Errorf("no database %q: want %s", name, filepath.Join(d.folder, databaseFolders()[0], name, name+".sqlite"))
	}
	return d.found[name], nil
}
