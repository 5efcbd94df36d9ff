package tasks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/harbor"
	"github.com/fulgurite/fulgurite/tasks/numbers"
)

// answerMark precedes the number at the end of a solution in GSM8K's layout.
const answerMark = "####"

// parseGSM8K reads a row in the layout of GSM8K
// (https://github.com/openai/grade-school-math): a question, and an answer that is a
// solution with "#### <number>" at its end. A task's id is the row's number, its
// answer the number without separators of thousands.
func parseGSM8K(fields row, number int) (Task, error) {
	question, err := fields.text("question")
	if err != nil {
		return Task{}, err
	}
	solution, err := fields.text("answer")
	if err != nil {
		return Task{}, err
	}
	last := strings.LastIndex(solution, answerMark)
	if last < 0 {
		return Task{}, errors.New(`the answer has no "#### <number>" at its end`)
	}
	answer := strings.ReplaceAll(strings.TrimSpace(solution[last+len(answerMark):]), ",", "")
	if _, ok := numbers.Read(answer); !ok {
		return Task{}, fmt.Errorf("the answer ends in %q, which is not a number", answer)
	}
	return Task{ID: strconv.Itoa(number), Input: question, Answer: answer}, nil
}

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

const (
	// MetadataHarbor is the key in a task's metadata for its directory in Harbor's
	// format.
	MetadataHarbor = "harbor"
	// metadataDigest is the key for the digest of the directory's content when it was
	// read.
	metadataDigest = "digest"
	// metadataEnvironment is the key for the digest of the environment alone. The same
	// instruction in another environment is another task.
	metadataEnvironment = "environment_digest"
)

// readHarbor reads the tasks of a directory in Harbor's format. A task's id is its path there,
// its input the instruction.
func readHarbor(directory string, how spec.Harbored) ([]Task, error) {
	list, err := harbor.List(directory, harbor.Options{Container: how.Container, Reward: how.Reward})
	if err != nil {
		return nil, err
	}
	out := make([]Task, len(list))
	for i, one := range list {
		if len(one.Name) > longestID {
			return nil, fmt.Errorf("task %s: its path has %d bytes; at most %d are allowed", one.Name, len(one.Name), longestID)
		}
		digest, err := one.Digest()
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", one.Name, err)
		}
		environment, err := one.EnvironmentDigest()
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", one.Name, err)
		}
		out[i] = Task{ID: one.Name, Input: one.Instruction, Metadata: map[string]any{
			MetadataHarbor: one.Directory, metadataDigest: digest, metadataEnvironment: environment,
		}}
	}
	return out, nil
}

// HarborTask reads the directory of a task in Harbor's format again. The error wraps
// ErrAnswer if the metadata names no directory. It wraps harbor.ErrMachine if the
// directory is not on this machine, or has changed since the task was read.
func HarborTask(id string, metadata map[string]any) (harbor.Task, error) {
	directory, ok := metadata[MetadataHarbor].(string)
	if !ok || !filepath.IsAbs(directory) {
		return harbor.Task{}, fmt.Errorf("task %s: %w: metadata.%s must be the absolute path of a directory in Harbor's format", id, ErrAnswer, MetadataHarbor)
	}
	t, err := harbor.Read(directory)
	if err != nil {
		return t, fmt.Errorf("task %s: %w: %w", id, harbor.ErrMachine, err)
	}
	t.Name = id
	want, _ := metadata[metadataDigest].(string)
	got, err := t.Digest()
	if err != nil {
		return t, fmt.Errorf("task %s: %w: %w", id, harbor.ErrMachine, err)
	}
	if want != "" && got != want {
		return t, fmt.Errorf("task %s: %w: the files in %s differ from those that the run began with: restore them", id, harbor.ErrMachine, directory)
	}
	return t, nil
}
