package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/arithmetic"
	"github.com/fulgurite/fulgurite/tasks/shuffle"
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

// Disjoint removes from each list the tasks that leak into a later list: tasks with the
// same input as a task there, and tasks that are composed of a single question that a
// task there is composed of, too. The last list keeps all its tasks. left has the number
// of tasks that were removed from each list.
func Disjoint(lists [][]Task) (kept [][]Task, left []int) {
	kept, left = make([][]Task, len(lists)), make([]int, len(lists))
	known := map[string]bool{}
	for i := len(lists) - 1; i >= 0; i-- {
		for _, t := range lists[i] {
			leaks := false
			for _, key := range t.questions() {
				leaks = leaks || known[key]
			}
			if leaks {
				left[i]++
				continue
			}
			kept[i] = append(kept[i], t)
		}
		for _, t := range kept[i] {
			for _, key := range t.questions() {
				known[key] = true
			}
		}
	}
	return kept, left
}

// Split divides a list into as many parts as there are shares, in an order that the seed
// decides. No part leaks into another: tasks with the same question stay together, and so
// do tasks that are connected by single questions, also through other tasks. The sizes of
// the parts follow the shares as closely as such groups allow. It is an error if a part
// would be empty.
func Split(list []Task, shares []int, seed uint64) ([][]Task, error) {
	total := 0
	for _, share := range shares {
		if share < 1 {
			return nil, fmt.Errorf("a share of %d: give numbers of at least 1", share)
		}
		total += share
	}
	groups := together(list)
	parts, done := make([][]Task, len(shares)), 0
	for i := range groups {
		group := groups[shuffle.Index(seed, len(groups), i)]
		// The group goes to the part that lacks most of its share.
		most, lack := 0, 0.0
		for p, share := range shares {
			want := float64(share) / float64(total) * float64(done+len(group))
			if missing := want - float64(len(parts[p])); p == 0 || missing > lack {
				most, lack = p, missing
			}
		}
		parts[most] = append(parts[most], group...)
		done += len(group)
	}
	for p, part := range parts {
		if len(part) == 0 {
			return nil, fmt.Errorf("part %d of %d would be empty: from %s come only %s that share no question", p+1, len(parts), readable.Count(len(list), "task"), readable.Count(len(groups), "group"))
		}
	}
	return parts, nil
}

// together returns the groups of tasks that share questions, in the order of their first
// tasks.
func together(list []Task) [][]Task {
	parent := make([]int, len(list))
	root := func(i int) int {
		for parent[i] != i {
			parent[i] = parent[parent[i]]
			i = parent[i]
		}
		return i
	}
	first := map[string]int{}
	for i, t := range list {
		parent[i] = i
		for _, key := range t.questions() {
			if other, known := first[key]; known {
				a, b := root(other), root(i)
				parent[max(a, b)] = min(a, b)
				continue
			}
			first[key] = i
		}
	}
	position := map[int]int{}
	var groups [][]Task
	for i, t := range list {
		r := root(i)
		at, known := position[r]
		if !known {
			at = len(groups)
			position[r] = at
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], t)
	}
	return groups
}

// errArray is wrapped when a file without a family is a JSON array, as the files of some
// data sets are.
var errArray = errors.New("it is one JSON array; a file without a family before its name has a JSON object on each line")

// withHint adds a hint to an error of reading a file: what would have been right, if the
// file shows that.
func withHint(s spec.Source, err error) error {
	stat, missing := os.Stat(s.Path)
	var file *FileError
	switch {
	case errors.Is(missing, fs.ErrNotExist):
		if remedy := spec.FamilyRemedy(s.Path); remedy != "" && s.Family == "" {
			return fmt.Errorf("%w; %s", err, remedy)
		}
	case missing == nil && stat.IsDir():
		return errors.New(directoryText(s))
	case errors.Is(err, errArray), errors.As(err, &file):
		looks := layoutOf(firstRow(s.Path))
		switch {
		case looks != "" && looks != s.Family:
			return fmt.Errorf("%w\n%s looks like a file of %s: did you mean %s:%s?", err, s.Path, looks, looks, s.Path)
		case errors.Is(err, errArray):
			return fmt.Errorf("%w; those of data sets are named with their family, as in spider:FILE", err)
		}
	}
	return err
}

// directoryText returns an error text that says what to name instead of a directory.
func directoryText(s spec.Source) string {
	text := fmt.Sprintf("open tasks: %s is a directory: name a file in it", s.Path)
	if s.Family == "" {
		return text + fmt.Sprintf(", or %s:%s for tasks in Harbor's format", spec.Harbor, s.Path)
	}
	var found []string
	entries, _ := os.ReadDir(s.Path) // without entries the text makes no proposal
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".json" || ext == ".jsonl") && len(found) < shownPlaces {
			found = append(found, s.Family+":"+filepath.Join(s.Path, e.Name()))
		}
	}
	if len(found) > 0 {
		text += ", such as " + strings.Join(found, " or ")
	}
	return text
}

// firstRow returns the first row of a file, or nil if it can't be read.
func firstRow(path string) row {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	r, array, err := contentsOf(f)
	if err != nil {
		return nil
	}
	d := json.NewDecoder(r)
	if array {
		if _, err := d.Token(); err != nil {
			return nil
		}
	}
	var fields row
	if d.Decode(&fields) != nil {
		return nil
	}
	return fields
}

// layoutOf returns the family of data sets whose rows have these fields, or "".
func layoutOf(fields row) string {
	switch {
	case fields.has("db_id") && (fields.has("query") || fields.has("SQL")):
		return spec.Spider
	case fields.has("question_decomposition"), fields.has("id") && fields.has("paragraphs"):
		return spec.MuSiQue
	case fields.has("evidences") && (fields.has("_id") || fields.has("id") && fields.has("supporting_facts")):
		return spec.TwoWiki
	case fields.has("context") && (fields.has("_id") || fields.has("id") && fields.has("supporting_facts")):
		return spec.HotpotQA
	case fields.has("question") && strings.Contains(string(fields["answer"]), answerMark):
		return spec.GSM8K
	}
	return ""
}
