package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/actions"
	"github.com/fulgurite/fulgurite/page/curves"
	"github.com/fulgurite/fulgurite/page/decisions"
	"github.com/fulgurite/fulgurite/page/figure"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/run/promptsearch"
)

// versionsPerPage is how many versions a list has.
const versionsPerPage = 100

// versionsBody is the page of the versions of a run.
type versionsBody struct {
	Path     string
	Versions []versionRow
	Splits   []record.Kind // on which versions were evaluated
	Search   *listing.Form
	History  []decisions.Event // the newest ones
	Earlier  bool              // there are more
	Pinned   bool
	// Alone says that each of several policies has a promoted version of its own. The rows are
	// then versions of one policy each.
	Alone bool
	// Left is the number of versions that the page leaves out because they were not
	// evaluated. All is the query of the page that includes them, or, on that page, of
	// the one that leaves them out.
	Left int
	All  string
	Acts []actions.Link
	Why  string // why no more actions are offered
}

// versionRow is a version in the lineage.
type versionRow struct {
	model.Version
	Promoted bool // at the moment
	Pinned   bool // holds the promoted version of one of several policies
	Once     bool // was promoted before
	Gate     *record.Evaluation
	Test     *record.Evaluation
	Interval template.HTML
	Verdict  string
	Path     string
}

func (s *Server) versions(r *http.Request) (view, error) {
	ctx := r.Context()
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	if searches(run) {
		return s.promptVersions(ctx, run)
	}
	b := versionsBody{Path: runPath(run.Name) + "/versions"}
	last, err := s.Records.LastVersion(ctx, run.Name, model.DefaultPolicy)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return view{}, err
	}
	asked, form := listing.Read(r, versionOrder())
	// Without a search the numbers of the versions say which ones the page has.
	to := max(0, last.Number+1-asked.From)
	from := max(0, to-versionsPerPage)
	if asked.Narrows() {
		from, to = 0, last.Number+1
	}
	if b.Alone = specOf(run).Promotion.Alone; b.Alone {
		b.Versions, err = s.policyVersions(ctx, run, from, to)
	} else {
		b.Versions, err = s.runVersions(ctx, run, from, to)
	}
	if err != nil {
		return view{}, err
	}
	for _, kind := range []record.Kind{record.Gate, record.Test} {
		if slices.ContainsFunc(b.Versions, func(row versionRow) bool {
			return kind == record.Gate && row.Gate != nil || kind == record.Test && row.Test != nil
		}) {
			b.Splits = append(b.Splits, kind)
		}
	}
	switch {
	case asked.Narrows():
		b.Versions, b.Search = listing.Narrow(r, b.Versions, versionsPerPage, versionOrder())
	case last.Number >= listing.SearchAfter:
		b.Search = form
		b.Search.Turn(asked.From, versionsPerPage, from > 0)
	}
	if !asked.Narrows() {
		b.leaveOut(r, last.Number)
	}
	acts := s.pointerActs(ctx, run)
	b.Acts, b.Why = acts.Links, acts.Why
	if b.History, b.Earlier, b.Pinned, err = s.pointerHistory(ctx, run); err != nil {
		return view{}, err
	}
	v := runView("versions", run, "Versions", link{Text: "Versions"})
	v.Body = b
	return v, nil
}

// runVersions returns the rows of a run's versions, the newest first.
func (s *Server) runVersions(ctx context.Context, run record.Run, from, to int) ([]versionRow, error) {
	all, err := s.Records.VersionsBetween(ctx, run.Name, model.DefaultPolicy, from, to)
	if err != nil {
		return nil, err
	}
	l, err := s.lineage(ctx, run, promptsearch.PolicyOf(run), from, to)
	if err != nil {
		return nil, err
	}
	var rows []versionRow
	for _, v := range slices.Backward(all) {
		rows = append(rows, l.row(v))
	}
	return rows, nil
}

// pointerHistory returns the newest moves of a run's promoted pointers and the decisions that
// moved nothing, whether there are earlier ones, and whether the pointer is pinned, if the run
// has one.
func (s *Server) pointerHistory(ctx context.Context, run record.Run) (history []decisions.Event, earlier, pinned bool, err error) {
	policies := pointersOf(run)
	for _, policy := range policies {
		moves, err := s.Records.LatestPromotions(ctx, run.Name, policy, versionsPerPage)
		if err != nil {
			return nil, false, false, err
		}
		decided, err := s.Records.LatestDecisions(ctx, run.Name, policy, versionsPerPage)
		if err != nil {
			return nil, false, false, err
		}
		history = append(history, decisions.Events(moves, decided)...)
		earlier = earlier || len(moves) == versionsPerPage || len(decided) == versionsPerPage
		pinned = len(policies) == 1 && len(moves) > 0 && moves[0].Pinned()
	}
	if len(policies) > 1 {
		slices.SortStableFunc(history, func(a, b decisions.Event) int { return b.At.Compare(a.At) })
	}
	earlier = earlier || len(history) > versionsPerPage
	return history[:min(len(history), versionsPerPage)], earlier, pinned, nil
}

// leaveOut leaves out the versions that nobody judged, unless the request asks for all, but never
// the last one.
func (b *versionsBody) leaveOut(r *http.Request, last int) {
	judged := slices.DeleteFunc(slices.Clone(b.Versions), func(row versionRow) bool { return !row.judged() && row.Number != last })
	if len(judged) < 2 || len(judged) == len(b.Versions) {
		return
	}
	query := r.URL.Query()
	if query.Has("all") {
		query.Del("all")
	} else {
		b.Left, b.Versions = len(b.Versions)-len(judged), judged
		query.Set("all", "1")
	}
	b.All = "?" + query.Encode()
}

// PromotionText says in a few words whether a version is or was promoted, or that it was refused. A
// version that was refused and that somebody promoted by hand is one thing, not two.
func (r versionRow) PromotionText() string {
	switch {
	case r.Verdict == "" && r.Promoted:
		return "promoted"
	case r.Verdict == "" && r.Once:
		return "was promoted"
	case r.Promoted:
		return "promoted by hand, though refused"
	case r.Once:
		return "was promoted by hand, though refused"
	case r.Verdict != "":
		return "not promoted"
	}
	return ""
}

// versionOrder says how versions can be searched, filtered and sorted.
func versionOrder() listing.Order[versionRow] {
	mean := func(e *record.Evaluation) *float64 {
		if e == nil {
			return nil
		}
		return &e.Mean
	}
	return listing.Order[versionRow]{
		Text: func(v versionRow) string { return fmt.Sprintf("%d %s %s", v.Number, v.Weights, v.PromotionText()) },
		Filters: []listing.Filter[versionRow]{
			{Text: "all"},
			{Name: "evaluated", Text: "evaluated", Keep: func(v versionRow) bool { return v.Gate != nil || v.Test != nil }},
			{Name: "promoted", Text: "promoted at times", Keep: func(v versionRow) bool { return v.Promoted || v.Once }},
			{Name: "refused", Text: "refused", Keep: func(v versionRow) bool { return v.Verdict != "" }},
		},
		Sorts: []listing.Sort[versionRow]{
			{Text: "newest"},
			{Name: "oldest", Text: "oldest", Compare: func(a, b versionRow) int { return cmp.Compare(a.Number, b.Number) }},
			{Name: "gate", Text: "gate, highest first", Compare: func(a, b versionRow) int { return compareKnown(mean(a.Gate), mean(b.Gate), -1) }},
			{Name: "test", Text: "test, highest first", Compare: func(a, b versionRow) int { return compareKnown(mean(a.Test), mean(b.Test), -1) }},
		},
	}
}

// judged reports whether a version was evaluated or decided on.
func (r versionRow) judged() bool {
	return r.Promoted || r.Once || r.Gate != nil || r.Test != nil || r.Verdict != ""
}

// pointerActs returns links to the actions that move a run's promoted pointer.
func (s *Server) pointerActs(ctx context.Context, run record.Run) actions.Offer {
	var row runRow
	var err error
	if row.Promoted, row.Pinned, err = s.promoted(ctx, run.Name, promptsearch.PolicyOf(run)); err != nil {
		return actions.Offer{Why: format.FirstLine(err.Error())}
	}
	state, _ := s.state(ctx, run)
	offer := s.offer(ctx, run, row, state)
	return offer.About(record.ActionPromote, record.ActionRollback, record.ActionPin, record.ActionUnpin, record.ActionApprove, record.ActionReject)
}

// lineage has other records of some of a run's versions.
type lineage struct {
	run         string
	evaluations []record.Evaluation
	others      []record.Evaluation // whose intervals have the same scale as those of evaluations
	moves       []record.Promotion
	decisions   []record.Decision
	promoted    int  // promoted now, or -1
	pinned      bool // it is held there
	fraction    bool // rewards lie between 0 and 1
}

// lineage reads the records of the versions of a policy with numbers from (inclusive) to to
// (exclusive). Policies that are promoted alone begin with the run's own version 0.
func (s *Server) lineage(ctx context.Context, of record.Run, policy string, from, to int) (l lineage, err error) {
	run := of.Name
	l = lineage{run: run, promoted: -1}
	if l.fraction, err = s.fractions(ctx, of); err != nil {
		return l, err
	}
	if l.evaluations, err = s.Records.EvaluationsBetween(ctx, run, policy, from, to); err != nil {
		return l, err
	}
	if own := promptsearch.PolicyOf(of); policy != own && from == 0 && to > 0 {
		first, err := s.Records.EvaluationsBetween(ctx, run, own, 0, 1)
		if err != nil {
			return l, err
		}
		l.evaluations = append(first, l.evaluations...)
	}
	if l.moves, err = s.Records.PromotionsBetween(ctx, run, policy, from, to); err != nil {
		return l, err
	}
	if l.decisions, err = s.Records.DecisionsBetween(ctx, run, policy, from, to); err != nil {
		return l, err
	}
	now, pinned, err := s.promoted(ctx, run, policy)
	if now != nil {
		l.promoted, l.pinned = *now, pinned
	}
	return l, err
}

func (l lineage) row(v model.Version) versionRow {
	row := versionRow{Version: v, Path: versionPath(l.run, v.Number), Promoted: v.Number == l.promoted}
	row.Pinned = row.Promoted && l.pinned
	low, high := math.Inf(1), math.Inf(-1)
	for _, e := range slices.Concat(l.others, l.evaluations) {
		from, to := curves.Interval(e.Mean, e.StdError, l.fraction)
		low, high = min(low, from), max(high, to)
	}
	for _, e := range l.evaluations {
		switch {
		case e.Version != v.Number:
		case e.Kind == record.Gate:
			row.Gate = &e
		case e.Kind == record.Test:
			row.Test = &e
		}
	}
	row.Interval = intervalOf(row.Gate, l.fraction, low, high)
	for _, p := range l.moves {
		row.Once = row.Once || p.Version == v.Number
	}
	for _, d := range l.decisions {
		if d.Candidate == v.Number {
			row.Verdict = decisions.OfDecision(d).Why
		}
	}
	return row
}

// intervalOf draws the mean of an evaluation and its 95 % interval between the ends that all
// versions have.
func intervalOf(e *record.Evaluation, fraction bool, low, high float64) template.HTML {
	const width, height = 120.0, 14.0
	d := figure.Drawing{}
	d.Add(`<svg class="interval" viewBox="0 0 %g %g" aria-hidden="true">`, width, height)
	if e != nil && high > low {
		at := func(v float64) float64 { return 4 + (v-low)/(high-low)*(width-8) }
		from, to := curves.Interval(e.Mean, e.StdError, fraction)
		d.Add(`<path class="line0" d="M%.1f 7H%.1f"/><circle class="dot line0" cx="%.1f" cy="7" r="3"/>`, at(from), at(to), at(e.Mean))
	}
	d.Add(`</svg>`)
	return template.HTML(d.String()) // it has numbers alone
}

// ancestorsShown is how many versions a lineage goes back.
const ancestorsShown = 12

// versionBody is the page of a version.
type versionBody struct {
	model.Version
	Row          versionRow
	Policies     []versionRow // of the number, if each of several is promoted alone
	Ancestors    []link       // the parent first
	More         bool         // there are earlier ones
	Step         string       // the page of the step that made it
	Evaluations  []evaluationRow
	Events       []decisions.Event
	Files        []fileRow
	Unread       string // why its manifest is not shown
	Manifest     model.Manifest
	Canary       *canaryRow
	Metrics      []namedValue
	MetricSearch *listing.Form
	Splits       []record.Kind
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
		return view{}, fmt.Errorf("%w: %q is not a version's number", record.ErrNotFound, format.FirstLine(r.PathValue("version")))
	}
	if searches(run) {
		return s.promptVersion(ctx, run, n)
	}
	found, err := s.Records.Version(ctx, model.VersionID{Run: run.Name, Policy: model.DefaultPolicy, Number: n})
	if err != nil {
		return view{}, err
	}
	l, err := s.lineage(ctx, run, promptsearch.PolicyOf(run), n, n+1)
	if err != nil {
		return view{}, err
	}
	acts := s.pointerActs(ctx, run)
	b := versionBody{Version: found, Row: l.row(found), Acts: acts.OfVersion(n, n == l.promoted, l.row(found).Once, found.Collected.IsZero()), Why: acts.Why, Versions: runPath(run.Name) + "/versions"}
	if l.promoted >= 0 && l.promoted != n {
		b.Promoted = &l.promoted
	}
	if n > 0 {
		b.Step = stepPath(run.Name, record.Train, n)
	}
	b.add(run, l)
	if specOf(run).Promotion.Alone {
		if err := s.addPolicies(ctx, run, &b); err != nil {
			return view{}, err
		}
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

// add adds the evaluations of the version, and what was decided about it.
func (b *versionBody) add(run record.Run, l lineage) {
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
}

// addPolicies adds the same of the versions of several policies that are promoted alone. The
// joint version itself is evaluated only as version 0, which add has added.
func (s *Server) addPolicies(ctx context.Context, run record.Run, b *versionBody) error {
	rows, all, err := s.policyLineages(ctx, run, b.Number, b.Number+1)
	if err != nil {
		return err
	}
	b.Policies = rows
	for _, l := range all {
		l.evaluations = slices.DeleteFunc(l.evaluations, func(e record.Evaluation) bool { return evaluation.IsOwn(e.Policy) })
		b.add(run, l)
	}
	return nil
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
		if errors.Is(err, record.ErrNotFound) {
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
	if errors.Is(err, model.ErrJoint) {
		var joint model.JointManifest
		joint, err = model.ParseJointManifest(text)
		for _, name := range slices.Sorted(maps.Keys(joint.Policies)) {
			id := b.VersionID
			id.Policy = name
			b.Files = append(b.Files, fileRow{"manifest of " + format.FirstLine(id.String()), joint.Policies[name].Manifest, ""})
		}
		if err == nil {
			return
		}
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
