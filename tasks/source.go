package tasks

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/arithmetic"
)

// generatorSeed is the seed of generated tasks. It does not depend on the run's seed, so
// that runs with different seeds are compared on the same tasks.
const generatorSeed = 1

// generatedCount returns how many tasks a generator makes if its source has no number.
func generatedCount(split arithmetic.Split) int {
	switch split {
	case arithmetic.Train:
		return 1024
	case arithmetic.Gate:
		return 128
	default:
		return 256
	}
}

// Open reads the tasks of a source, which is written as in a spec:
//
//   - the path of a JSONL file (see ReadJSONL);
//   - "<family>:<path>" for a file of a published data set in its own layout (spider,
//     gsm8k, musique, hotpotqa, 2wikimultihopqa);
//   - "harbor:<directory>" for directories in Harbor's format;
//   - "arithmetic:<split>" or "arithmetic:<split>:<count>" for problems of the built-in
//     generator. Its splits train, gate and test share no problem. Without a count they
//     have 1024, 128 and 256 problems.
//
// If the error wraps a *FileError, the list has the tasks of the other lines or rows.
func Open(source string) ([]Task, error) {
	s, err := spec.ParseSource(source)
	if err != nil {
		return nil, err
	}
	switch s.Family {
	case spec.Arithmetic:
		return generate(s)
	case spec.Harbor:
		return readHarbor(s.Path, spec.Harbored{})
	}
	list, err := openFile(s)
	if err != nil {
		err = withHint(s, err)
	}
	return list, err
}

// openFile reads a file of tasks in the layout of a family.
func openFile(s spec.Source) ([]Task, error) {
	switch s.Family {
	case spec.Spider:
		return readSpider(s.Path)
	case spec.GSM8K:
		return readTasks(s.Path, parseGSM8K)
	case spec.MuSiQue, spec.HotpotQA, spec.TwoWiki:
		return readTasks(s.Path, parseMultiHop)
	}
	f, err := os.Open(s.Path)
	if err != nil {
		return nil, fmt.Errorf("open tasks: %w", err)
	}
	defer f.Close()
	r, array, err := contentsOf(f)
	switch {
	case err != nil:
		return nil, err
	case array:
		return nil, fmt.Errorf("read %s: %w", s.Path, errArray)
	}
	return ReadJSONL(r, s.Path)
}

func generate(s spec.Source) ([]Task, error) {
	split := arithmetic.Split(s.Split)
	if s.Count == 0 {
		s.Count = generatedCount(split)
	}
	problems, err := arithmetic.Problems(split, s.Count, generatorSeed)
	if err != nil {
		return nil, err
	}
	list := make([]Task, len(problems))
	for i, p := range problems {
		list[i] = Task{
			ID: p.ID, Input: p.Expression, Answer: strconv.Itoa(p.Value),
			Metadata: map[string]any{"operands": json.Number(strconv.Itoa(p.Operands))},
		}
	}
	return list, nil
}

// Task is one item to attempt.
type Task struct {
	ID    string `json:"id"`
	Input string `json:"input"` // text; JSON of another type is kept as its text
	// Answer is the answer that graders compare with. Agents never see it.
	Answer   string         `json:"answer,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

// Database returns the path of the SQLite database that the task is about, from its
// metadata. If the metadata has no absolute path, the error wraps ErrAnswer.
func (t Task) Database() (string, error) {
	path, err := t.database()
	if err != nil {
		return "", fmt.Errorf("task %s: %w", t.ID, err)
	}
	return path, nil
}

// Metric returns by which metric the grader "sql" compares results of the task: the
// grader's, else that of the task's metadata, else Spider's.
func (t Task) Metric(g spec.Grader) (string, error) {
	named, given := t.Metadata[MetadataMetric]
	switch {
	case g.Metric != "":
		return g.Metric, nil
	case !given:
		return spec.MetricSpider, nil
	case named == spec.MetricSpider, named == spec.MetricBIRD:
		return named.(string), nil
	}
	return "", fmt.Errorf("%w: metadata.%s is %v: give %s or %s", ErrAnswer, MetadataMetric, named, spec.MetricSpider, spec.MetricBIRD)
}

func (t Task) database() (string, error) {
	path, ok := t.Metadata[MetadataDatabase].(string)
	if !ok || !filepath.IsAbs(path) {
		return "", fmt.Errorf("%w: metadata.%s must be the absolute path of an SQLite file", ErrAnswer, MetadataDatabase)
	}
	return path, nil
}
