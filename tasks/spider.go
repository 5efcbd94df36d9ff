package tasks

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/spec"
)

// MetadataDatabase is the key in a task's metadata for the path of the SQLite database
// that the task's question is about.
const MetadataDatabase = "database"

// MetadataMetric is the key in a task's metadata for the metric by which the grader "sql"
// compares results, unless grader.metric says another: that of the task's data set.
const MetadataMetric = "sql_metric"

// databaseFolders returns the names of the folders with databases in the layouts of
// Spider and BIRD. They are next to the file of questions.
func databaseFolders() []string {
	return []string{"database", "databases", "train_databases", "dev_databases", "test_database"}
}

// readSpider reads questions about databases in the layout of Spider
// (https://yale-lily.github.io/spider) or BIRD (https://bird-bench.github.io). A row has
// db_id, question, query (SQL in BIRD) and, in BIRD, evidence. Each database is in
// database/<db_id>/<db_id>.sqlite next to the file. The task's id is the row's number,
// its input is the question, its answer is the query, and its metadata names the
// database. A row in BIRD's layout, with SQL or evidence, is compared by BIRD's metric,
// which its metadata says. A row without a database is an error.
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
		if key == "SQL" || fields.has("evidence") {
			metadata[MetadataMetric] = spec.MetricBIRD
		}
		if fields.has("evidence") {
			metadata["evidence"] = textOf(fields["evidence"])
		}
		return Task{ID: strconv.Itoa(number), Input: question, Answer: query, Metadata: metadata}, nil
	})
}

// spiderDatabases finds the databases next to a file of questions.
type spiderDatabases struct {
	folder string
	found  map[string]string // path by name; empty for a missing database
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
