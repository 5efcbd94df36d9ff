package page

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/actions"
	"github.com/fulgurite/fulgurite/page/decisions"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/trace"
)

// ancestorsShown is how many versions a lineage goes back.
const ancestorsShown = 12

// versionBody is the page of a version.
type versionBody struct {
	model.Version
	Row          versionRow
	Ancestors    []link // the parent first
	More         bool   // there are earlier ones
	Step         string // the page of the step that made it
	Evaluations  []evaluationRow
	Events       []decisions.Event
	Files        []fileRow
	Unread       string // why its manifest is not shown
	Manifest     model.Manifest
	Canary       *canaryRow
	Metrics      []namedValue
	MetricSearch *listing.Form
	Splits       []trace.Kind
	Versions     string // path of the list of versions
	Promoted     *int
	Acts         []actions.Link
	Why          string // why no more actions are offered
}

// fileRow is a file of a version.
type fileRow struct {
	Name, Digest string
	Size         string
}

// canaryRow summarizes a canary, which a sampler has to reproduce before it serves a
// version.
type canaryRow struct {
	Rows, Tokens int
	Exact        bool
	Tolerance    float64
	Mean         float64 // mean log-probability
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
		return view{}, fmt.Errorf("%w: %q is not a version's number", trace.ErrNotFound, format.FirstLine(r.PathValue("version")))
	}
	found, err := s.Records.Version(ctx, model.VersionID{Run: run.Name, Policy: model.DefaultPolicy, Number: n})
	if err != nil {
		return view{}, err
	}
	l, err := s.lineage(ctx, run, n, n+1)
	if err != nil {
		return view{}, err
	}
	acts := s.pointerActs(ctx, run)
	b := versionBody{Version: found, Row: l.row(found), Acts: acts.OfVersion(n, n == l.promoted, l.row(found).Once, found.Collected.IsZero()), Why: acts.Why, Versions: runPath(run.Name) + "/versions"}
	if l.promoted >= 0 && l.promoted != n {
		b.Promoted = &l.promoted
	}
	if n > 0 {
		b.Step = stepPath(run.Name, trace.Train, n)
	}
	for _, e := range l.evaluations {
		b.Evaluations = append(b.Evaluations, rowOfEvaluation(run, e, l.fraction))
		b.Splits = append(b.Splits, e.Kind)
	}
	for _, p := range l.moves {
		b.Events = append(b.Events, decisions.OfMove(p))
	}
	for _, d := range l.decisions {
		b.Events = append(b.Events, decisions.OfDecision(d))
	}
	if b.Ancestors, b.More, err = s.ancestors(ctx, found); err != nil {
		return view{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(found.Metrics)) {
		b.Metrics = append(b.Metrics, namedValue{name, found.Metrics[name]})
	}
	b.Metrics, b.MetricSearch = narrowMetrics(r, b.Metrics)
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

// readFiles adds the content of the manifest.
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

// bytesText returns a size as readable text.
func bytesText(n int64) string {
	units := []string{"bytes", "KB", "MB", "GB", "TB"}
	v, i := float64(n), 0
	for ; v >= 1000 && i < len(units)-1; i++ {
		v /= 1000
	}
	if i == 0 {
		return format.Counted(int(n), "byte")
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
