package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/internal/evaluation"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

// ancestorsShown is how many versions a lineage goes back.
const ancestorsShown = 12

// versionBody is the page of a version.
type versionBody struct {
	model.Version
	Row         versionRow
	Ancestors   []link // the parent first
	More        bool   // there are earlier ones
	Step        string // the page of the step that made it
	Evaluations []evaluationRow
	Events      []string
	Files       []fileRow
	Unread      string // why its manifest is not shown
	Manifest    model.Manifest
	Canary      *canaryRow
	Metrics     []tallyOf
	Splits      []trace.Kind
	Versions    string // the page of all
	Promoted    *int
}

// fileRow is a file of a version.
type fileRow struct {
	Name, Digest string
	Size         string
}

// canaryRow is a canary row, which a sampler has to reproduce before it serves a version.
type canaryRow struct {
	Rows, Tokens int
	Exact        bool
	Tolerance    float64
	Mean         float64 // log-probability
	Fingerprint  string
}

func (s *Server) version(r *http.Request) (view, error) {
	ctx := r.Context()
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	n, err := strconv.Atoi(r.PathValue("version"))
	if err != nil || strconv.Itoa(n) != r.PathValue("version") {
		return view{}, fmt.Errorf("%w: %q is no number of a version", trace.ErrNotFound, format.FirstLine(r.PathValue("version")))
	}
	found, err := s.Records.Version(ctx, model.VersionID{Run: run.Name, Policy: model.DefaultPolicy, Number: n})
	if err != nil {
		return view{}, err
	}
	l, err := s.lineage(ctx, run.Name, n, n+1)
	if err != nil {
		return view{}, err
	}
	b := versionBody{Version: found, Row: l.row(found), Versions: runPath(run.Name) + "/versions"}
	if l.promoted >= 0 && l.promoted != n {
		b.Promoted = &l.promoted
	}
	if n > 0 {
		b.Step = stepPath(run.Name, trace.Train, n)
	}
	for _, e := range l.evaluations {
		b.Evaluations = append(b.Evaluations, rowOfEvaluation(run, e))
		b.Splits = append(b.Splits, e.Kind)
	}
	for _, p := range l.moves {
		b.Events = append(b.Events, fmt.Sprintf("%s: %s: %s", format.Moment(p.At), p.Source, format.Shown(p.Reason)))
	}
	for _, d := range l.decisions {
		b.Events = append(b.Events, fmt.Sprintf("%s: %s: %s", format.Moment(d.At), format.Shown(d.Verdict), format.Shown(d.Reason)))
	}
	if b.Ancestors, b.More, err = s.ancestors(ctx, found); err != nil {
		return view{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(found.Metrics)) {
		b.Metrics = append(b.Metrics, tallyOf{name, found.Metrics[name]})
	}
	s.readFiles(ctx, &b)
	v := runView("version", run, "Versions", link{Text: "Versions", Path: b.Versions}, link{Text: fmt.Sprintf("Version %d", n)})
	v.Body = b
	return v, nil
}

// ancestors returns the versions that a version was made of, the parent first.
func (s *Server) ancestors(ctx context.Context, v model.Version) (out []link, more bool, err error) {
	for parent := v.Parent; parent >= 0 && !more; {
		if more = len(out) == ancestorsShown; more {
			break
		}
		id := v.VersionID
		id.Number = parent
		p, err := s.Records.Version(ctx, id)
		if errors.Is(err, trace.ErrNotFound) {
			return out, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		out = append(out, link{Text: strconv.Itoa(parent), Path: versionPath(v.Run, parent)})
		parent = p.Parent
	}
	return out, more, nil
}

// readFiles fills in the content of the manifest.
func (s *Server) readFiles(ctx context.Context, b *versionBody) {
	if b.Version.Manifest == "" {
		b.Unread = "it has no manifest"
		return
	}
	text, err := s.Blobs.Get(ctx, b.Version.Manifest)
	if err == nil {
		b.Manifest, err = model.ParseManifest(text)
	}
	if err != nil {
		b.Unread = format.FirstLine(err.Error())
		return
	}
	files := maps.Clone(b.Manifest.Files)
	if b.Manifest.Base != nil {
		files["base, which other versions share"] = *b.Manifest.Base
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		b.Files = append(b.Files, fileRow{format.FirstLine(name), files[name].Digest, bytesText(files[name].Size)})
	}
	if !b.Collected.IsZero() {
		return
	}
	file, ok := b.Manifest.Files[model.CanaryFile]
	if !ok {
		return // as of older or external trainers
	}
	var canary model.Canary
	if text, err = s.Blobs.Get(ctx, file.Digest); err == nil {
		canary, err = model.ParseCanary(text)
	}
	if err != nil {
		b.Unread = "its canary can't be read: " + format.FirstLine(err.Error())
		return
	}
	row := canaryRow{Rows: len(canary.Rows), Exact: canary.Exact, Tolerance: canary.Tolerance, Fingerprint: format.FirstLine(canary.Fingerprint)}
	for _, c := range canary.Rows {
		row.Tokens += len(c.Tokens)
		for _, l := range c.Logprobs {
			row.Mean += float64(l)
		}
	}
	row.Mean /= float64(max(1, row.Tokens))
	b.Canary = &row
}

// bytesText is a size for people.
func bytesText(n int64) string {
	units := []string{"bytes", "KB", "MB", "GB", "TB"}
	v, i := float64(n), 0
	for ; v >= 1000 && i < len(units)-1; i++ {
		v /= 1000
	}
	if i == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

// pairBody compares two evaluations task by task.
type pairBody struct {
	A, B     string // references as they were given
	Split    trace.Kind
	Splits   []trace.Kind
	Problem  string // why there is no comparison
	Result   *evaluation.Comparison
	Tasks    []pairTask
	More     int // tasks that are not shown
	Sentence string
}

// pairTask is a task on both sides.
type pairTask struct {
	evaluation.TaskChange
	Before, After string // the groups
}

// pair compares two versions, of this run or of others, as `fulgurite compare` does.
func (s *Server) pair(r *http.Request) (view, error) {
	ctx := r.Context()
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	q := r.URL.Query()
	b := pairBody{A: reference(run, q.Get("a")), B: reference(run, q.Get("b")), Split: trace.Kind(q.Get("split")), Splits: []trace.Kind{trace.Gate, trace.Test, trace.Train}}
	v := runView("pair", run, "Versions", link{Text: "Versions", Path: runPath(run.Name) + "/versions"}, link{Text: "Comparison"})
	v.Follow = ""
	switch {
	case q.Get("a") == "" || q.Get("b") == "":
		b.Problem = "Name two versions: their numbers, or RUN@NUMBER for one of another run."
	default:
		if err := s.compare(ctx, &b); err != nil {
			if !expected(err) {
				return view{}, err
			}
			b.Problem = format.Shown(err.Error())
		}
	}
	v.Body = b
	return v, nil
}

// expected reports whether an error says that the requested object does not exist.
func expected(err error) bool {
	for _, one := range []error{evaluation.ErrIncomparable, evaluation.ErrIncomplete, evaluation.ErrNoEvaluation, trace.ErrNotFound} {
		if errors.Is(err, one) {
			return true
		}
	}
	return strings.Contains(err.Error(), "means several evaluations")
}

// reference is a version as `fulgurite compare` takes it; a number is of the run itself.
func reference(run record.Run, text string) string {
	text = strings.TrimSpace(text)
	if _, err := strconv.Atoi(text); err == nil {
		return run.Name + "@" + text
	}
	return format.FirstLine(text)
}

func (s *Server) compare(ctx context.Context, b *pairBody) error {
	var sets [2]evaluation.Set
	for i, reference := range []string{b.A, b.B} {
		found, err := evaluation.Find(ctx, s.Records, reference, b.Split)
		if err != nil {
			return err
		}
		if sets[i], err = evaluation.Load(ctx, s.Records, s.Blobs, found); err != nil {
			return err
		}
	}
	c, err := evaluation.Compare(sets[0], sets[1])
	if err != nil {
		return err
	}
	b.Result, b.Split = &c, c.A.Split
	b.Sentence = sentence(c)
	places := map[string]int{}
	for i, t := range sets[0].Tasks {
		places[t.ID] = i
	}
	for _, t := range c.ByTask[:min(len(c.ByTask), groupsPerPage)] {
		at := func(side evaluation.Side) string {
			return fmt.Sprintf("%s/%d", stepPath(side.Run, side.Split, side.Version), places[t.ID])
		}
		one := pairTask{t, at(c.A), at(c.B)}
		one.ID = format.FirstLine(t.ID)
		b.Tasks = append(b.Tasks, one)
	}
	b.More = len(c.ByTask) - len(b.Tasks)
	return nil
}

// sentence describes the result of a comparison.
func sentence(c evaluation.Comparison) string {
	verdict := "The difference may be chance"
	if c.PValue < 1-c.Level {
		verdict = cmp.Or(map[bool]string{true: "B is better", false: "A is better"}[c.Difference.Mean > 0], "")
	}
	return fmt.Sprintf("%s: B is better on %d of %d tasks, worse on %d, equal on %d.", verdict, c.Wins, c.Tasks, c.Losses, c.Ties)
}
