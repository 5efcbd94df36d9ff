// Package catalog finds versions by the names that users and requests give, and loads
// them: "demo@12", "demo@promoted", "demo@newest", or "demo". The last means the promoted
// version, or the newest one if nothing compares the run's versions. Every process that
// samples, serves or exports finds the row of a version and its blobs through this
// package.
//
// If a run trains several policies, these names mean its joint versions, which have no
// weights of their own. "demo:writer@12" is the version of one policy, and
// "demo:writer@promoted" is the one in the promoted joint version. If each policy is promoted
// alone, it is the promoted version of that policy, and no joint version is promoted.
//
// The package only reads. The weights of a version that it loads have the digest that is
// in the version's row.
package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// Store is the part of a store that the catalog reads.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Runs(ctx context.Context) ([]record.Run, error)
	Version(ctx context.Context, id model.VersionID) (model.Version, error)
	Versions(ctx context.Context, run, policy string) ([]model.Version, error)
	Promoted(ctx context.Context, run, policy string) (record.Promotion, error)
	PromptVersion(ctx context.Context, run string, number int) (record.PromptVersion, error)
	// TrafficSetting returns what is recorded of the run's conversations, if it was changed
	// since the spec was written, or "".
	TrafficSetting(ctx context.Context, run string) (string, error)
}

// Catalog finds and loads versions.
type Catalog struct {
	Store Store
	Blobs checkpoint.Blobs
}

// promoted refers to the version that is promoted at the moment, and newest to the
// version that was trained last.
const (
	promoted = "promoted"
	newest   = "newest"
)

// Find reads a reference, RUN@NUMBER, RUN@promoted, RUN@newest or RUN, each also with
// RUN:POLICY in place of RUN, and returns the row of the version it means. Without POLICY
// that is a joint version if the run trains several policies: see OnePolicy.
func (c Catalog) Find(ctx context.Context, reference string) (model.Version, error) {
	v, _, err := c.Choose(ctx, reference)
	return v, err
}

// promoted finds the version of a policy that is promoted at the moment: that of the joint
// version, unless the run promotes each policy alone.
func (c Catalog) promoted(ctx context.Context, run, policy string) (model.Version, error) {
	s, err := c.Spec(ctx, run)
	if err != nil {
		return model.Version{}, fmt.Errorf("find the promoted version of run %q: %w", run, err)
	}
	of := model.DefaultPolicy
	if s.Promotion.Alone {
		if of = policy; policy == model.DefaultPolicy {
			return model.Version{}, &aloneError{run, s.PolicyNames()}
		}
	}
	p, err := c.Store.Promoted(ctx, run, of)
	if err != nil {
		return model.Version{}, fmt.Errorf("find the promoted version of run %q: %w", run, c.forgotten(ctx, run, err))
	}
	return c.version(ctx, run, of, p.Version)
}

// aloneError says that no joint version is promoted. It wraps model.ErrJoint.
type aloneError struct {
	run      string
	policies []string
}

func (e *aloneError) Error() string {
	return fmt.Sprintf("the policies of run %s are promoted one by one: name one, such as %s:%s@%s, or a number, such as %s@0", e.run, e.run, e.policies[0], promoted, e.run)
}

func (*aloneError) Unwrap() error { return model.ErrJoint }

// numbered finds the version of a number.
func (c Catalog) numbered(ctx context.Context, reference, run, policy, number string) (model.Version, error) {
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || strconv.Itoa(n) != number {
		return model.Version{}, fmt.Errorf("%w: version %q: want RUN@NUMBER, RUN@promoted or RUN@newest", record.ErrNotFound, reference)
	}
	return c.version(ctx, run, policy, n)
}

func (c Catalog) version(ctx context.Context, run, policy string, number int) (model.Version, error) {
	id := model.VersionID{Run: run, Policy: policy, Number: number}
	v, err := c.Store.Version(ctx, id)
	if err != nil {
		return v, fmt.Errorf("find version %s: %w", id, c.forgotten(ctx, run, err))
	}
	return v, nil
}

// forgotten returns the error that says when and by whom a run was forgotten, or err if it
// was not.
func (c Catalog) forgotten(ctx context.Context, run string, err error) error {
	if !errors.Is(err, record.ErrNotFound) {
		return err
	}
	if _, gone := c.Store.Run(ctx, run); errors.Is(gone, record.ErrForgotten) {
		return gone
	}
	return err
}

// jointError says that a version has no weights of its own. It wraps model.ErrJoint.
type jointError struct {
	version  model.VersionID
	policies []string
}

func (e *jointError) Error() string {
	names := make([]string, min(len(e.policies), 2))
	for i := range names {
		names[i] = model.VersionID{Run: e.version.Run, Policy: e.policies[i], Number: e.version.Number}.String()
	}
	return fmt.Sprintf("version %s has several policies: name one, such as %s", e.version, strings.Join(names, " or "))
}

func (*jointError) Unwrap() error { return model.ErrJoint }

// Joint returns the error for a joint version, where weights are needed. It wraps
// model.ErrJoint and says which versions to ask for.
func Joint(v model.VersionID, policies []string) error { return &jointError{v, policies} }

// OnePolicy returns the error of Joint if v, of a run with the spec s, is a joint version.
func OnePolicy(s spec.Spec, v model.VersionID) error {
	if names := s.PolicyNames(); len(names) > 0 && v.Policy == model.DefaultPolicy {
		return Joint(v, names)
	}
	return nil
}

// Policy reads RUN or RUN:POLICY. Without POLICY it returns the default policy. The error
// wraps record.ErrNotFound if POLICY is not one of several that the run trains. Of RUN alone,
// Policy does not check whether there is such a run.
func (c Catalog) Policy(ctx context.Context, name string) (run, policy string, err error) {
	run, policy, named := strings.Cut(name, ":")
	if !named || policy == model.DefaultPolicy {
		return run, model.DefaultPolicy, nil
	}
	s, err := c.Spec(ctx, run)
	if err != nil {
		return run, policy, err
	}
	names := s.PolicyNames()
	switch {
	case slices.Contains(names, policy):
		return run, policy, nil
	case len(names) == 0:
		return run, policy, fmt.Errorf("%w: run %q has no policy %q, since it trains only one: leave :%s out", record.ErrNotFound, run, policy, policy)
	}
	return run, policy, fmt.Errorf("%w: run %q has no policy %q: it has %s", record.ErrNotFound, run, policy, strings.Join(names, ", "))
}

// unjoined says which policies a version has if err is that it has several.
func (c Catalog) unjoined(ctx context.Context, id model.VersionID, err error) error {
	if !errors.Is(err, model.ErrJoint) {
		return err
	}
	s, failure := c.Spec(ctx, id.Run)
	if failure != nil {
		return failure
	}
	if named := OnePolicy(s, id); named != nil {
		return named
	}
	return err
}

// Resolve returns the version that a reference means, with the codec and the promoted
// prompts of its run, and with what is recorded of conversations, for the gateway. A joint version is an error that wraps
// model.ErrJoint.
func (c Catalog) Resolve(ctx context.Context, reference string) (model.Served, error) {
	v, choice, err := c.Choose(ctx, reference)
	if err != nil {
		return model.Served{}, err
	}
	s, err := c.Spec(ctx, v.Run)
	if err != nil {
		return model.Served{}, err
	}
	if err := OnePolicy(s, v.VersionID); err != nil {
		return model.Served{}, err
	}
	out := model.Served{VersionID: v.VersionID, Codec: s.Model.Codec, Pinned: choice == Numbered, Newest: choice == Newest, Collected: !v.Collected.IsZero()}
	if out.Recording, err = c.recording(ctx, v.Run, s); err != nil {
		return model.Served{}, err
	}
	if s.Traffic != nil && s.Traffic.Redactor != nil {
		out.Redactor = s.Traffic.Redactor.Command
		out.RedactorTimeout = time.Duration(s.Traffic.Redactor.TimeoutSeconds * float64(time.Second))
	}
	if out.MaxCalls = spec.DefaultMaxCalls; s.Traffic != nil { // it may be recorded without being in the spec
		out.MaxCalls = cmp.Or(s.Traffic.MaxCalls, out.MaxCalls)
	}
	out.DeliverUnrecorded = s.Traffic != nil && s.Traffic.OnFailure == spec.ServeUnrecorded
	out.Prompts, out.PromptsNumber, err = c.Prompts(ctx, v.Run, s)
	return out, err
}

// recording returns what is recorded of conversations with versions of a run: what was set
// last, or else what its spec says.
func (c Catalog) recording(ctx context.Context, run string, s spec.Spec) (model.Recording, error) {
	setting, err := c.Store.TrafficSetting(ctx, run)
	if err != nil {
		return model.RecordNothing, fmt.Errorf("find what is recorded of run %q: %w", run, err)
	}
	if setting == "" && s.Traffic != nil {
		setting = s.Traffic.Record
	}
	switch setting {
	case spec.RecordAll:
		return model.RecordAll, nil
	case spec.RecordConsent:
		return model.RecordConsent, nil
	}
	return model.RecordNothing, nil
}

// Prompts returns the digest and the number of the promoted version of the prompts of a run
// with the spec s; the digest is empty if the run has none. Version 0 has the prompts of the
// spec, and is promoted unless a search made a better one.
func (c Catalog) Prompts(ctx context.Context, run string, s spec.Spec) (digest string, number int, err error) {
	if s.Prompts == nil {
		return "", 0, nil
	}
	p, err := c.Store.Promoted(ctx, run, record.PromptsPolicy)
	switch {
	case errors.Is(err, record.ErrNotFound) || err == nil && p.Version == 0:
		return s.PromptsDigest(), 0, nil
	case err != nil:
		return "", 0, fmt.Errorf("find the promoted prompts of run %q: %w", run, err)
	}
	v, err := c.Store.PromptVersion(ctx, run, p.Version)
	return v.Prompts, p.Version, err
}

// List returns the references that can be requested: each run's promoted version if it
// has one, and its newest version if nothing compares the run's versions. Of a run that
// trains several policies, it returns those of each policy.
func (c Catalog) List(ctx context.Context) ([]string, error) {
	runs, err := c.Store.Runs(ctx)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	names := make([]string, 0, len(runs))
	for _, r := range runs {
		if r.Status == record.Forgetting {
			continue
		}
		switch _, err := c.Store.Promoted(ctx, r.Name, pointerOf(r)); {
		case err == nil:
			unevaluated, err := c.Unevaluated(ctx, r.Name)
			if err != nil {
				return nil, fmt.Errorf("list versions of run %q: %w", r.Name, err)
			}
			for _, name := range policiesOf(r) {
				names = append(names, name+"@"+promoted)
				if unevaluated {
					names = append(names, name+"@"+newest)
				}
			}
		case !errors.Is(err, record.ErrNotFound):
			return nil, fmt.Errorf("find the promoted version of run %q: %w", r.Name, err)
		}
	}
	return names, nil
}

// pointerOf returns a policy that has a promoted version as soon as the run has one.
func pointerOf(r record.Run) string {
	s, err := spec.Stored(r.Spec)
	if err != nil || !s.Promotion.Alone {
		return model.DefaultPolicy
	}
	names := s.PolicyNames()
	return names[len(names)-1] // each is promoted alone, and this one last
}

// policiesOf returns what references to versions with weights begin with: RUN, or
// RUN:POLICY for each policy.
func policiesOf(r record.Run) []string {
	s, err := spec.Stored(r.Spec)
	if err != nil || len(s.Policies) == 0 {
		return []string{r.Name} // Resolve reports what is wrong with the spec
	}
	names := s.PolicyNames()
	for i, policy := range names {
		names[i] = r.Name + ":" + policy
	}
	return names
}

// Spec returns the resolved spec of a run.
func (c Catalog) Spec(ctx context.Context, run string) (spec.Spec, error) {
	r, err := c.Store.Run(ctx, run)
	if err != nil {
		return spec.Spec{}, fmt.Errorf("read run %q: %w", run, err)
	}
	s, err := spec.Stored(r.Spec)
	if err != nil {
		return s, fmt.Errorf("decode the spec of run %q: %w", run, err)
	}
	return s, nil
}

// Load loads a version's weights, for the sampler. A joint version is an error that wraps
// model.ErrJoint.
func (c Catalog) Load(ctx context.Context, id model.VersionID) (model.Checkpoint, string, error) {
	v, err := c.kept(ctx, id)
	if err != nil {
		return model.Checkpoint{}, "", err
	}
	k, m, err := checkpoint.LoadWeights(ctx, c.Blobs, v.Manifest)
	if err != nil {
		return model.Checkpoint{}, "", c.unjoined(ctx, id, err)
	}
	if got := m.Weights(); got != v.Weights {
		return model.Checkpoint{}, "", fmt.Errorf("%w: version %s has weights %s, its manifest %s", checkpoint.ErrCorrupt, id, v.Weights, got)
	}
	return k, v.Weights, nil
}

// Canary returns what version id's weights have to reproduce, for the sampler. It returns
// nil if the version has no canary. A joint version is an error that wraps model.ErrJoint.
func (c Catalog) Canary(ctx context.Context, id model.VersionID) (*model.Canary, error) {
	v, err := c.kept(ctx, id)
	if err != nil {
		return nil, err
	}
	canary, err := checkpoint.LoadCanary(ctx, c.Blobs, v.Manifest)
	return canary, c.unjoined(ctx, id, err)
}

// kept finds a version whose files are kept.
func (c Catalog) kept(ctx context.Context, id model.VersionID) (model.Version, error) {
	v, err := c.Store.Version(ctx, id)
	if err != nil {
		return v, fmt.Errorf("find version %s: %w", id, err)
	}
	if !v.Collected.IsZero() {
		return v, fmt.Errorf("%w: %s: %w since %s, as training.keep of its run says; `%s` lists those that are kept",
			record.ErrNotFound, id, model.ErrCollected, readable.Time(v.Collected), shell.Command("versions", id.Run))
	}
	return v, nil
}

// Choice says why a reference means the version that it means.
type Choice string

// The choices.
const (
	// Numbered is the version of that number.
	Numbered Choice = "as asked"
	// Promoted is the version that the promotion rule or a person promoted.
	Promoted Choice = "promoted"
	// PromotedUnevaluated is the first version of a run in which no version was compared
	// with it.
	PromotedUnevaluated Choice = "promoted from the start; nothing was evaluated, @newest is what was trained last"
	// Newest is the version that was trained last.
	Newest Choice = "newest"
	// NewestUnevaluated is the newest version of a run without a gate split: nothing
	// compared its versions, so its first version is still promoted.
	NewestUnevaluated Choice = "newest; nothing was evaluated"
)

// Unevaluated reports whether no evaluation could have chosen the version.
func (c Choice) Unevaluated() bool { return c == NewestUnevaluated || c == PromotedUnevaluated }

// Choose is like Find, but also returns why the reference means this version.
func (c Catalog) Choose(ctx context.Context, reference string) (model.Version, Choice, error) {
	name, number, named := strings.Cut(reference, "@")
	run, policy, err := c.Policy(ctx, name)
	if err != nil {
		return model.Version{}, "", err
	}
	v, choice, err := c.choose(ctx, reference, run, policy, number, named)
	if err == nil && v.Policy != policy { // it is the joint version, which has the same number
		v, err = c.version(ctx, run, policy, v.Number)
	}
	return v, choice, err
}

// choose finds the version of a policy by its number, and otherwise that of the run.
func (c Catalog) choose(ctx context.Context, reference, run, policy, number string, named bool) (model.Version, Choice, error) {
	if named && number != promoted && number != newest {
		v, err := c.numbered(ctx, reference, run, policy, number)
		return v, Numbered, err
	}
	if number == newest {
		v, err := c.newest(ctx, run)
		return v, Newest, err
	}
	unevaluated, err := c.Unevaluated(ctx, run)
	if err != nil {
		return model.Version{}, "", fmt.Errorf("find a version of run %q: %w", run, err)
	}
	if unevaluated && !named {
		v, err := c.newest(ctx, run)
		return v, NewestUnevaluated, err
	}
	v, err := c.promoted(ctx, run, policy)
	if unevaluated {
		return v, PromotedUnevaluated, err
	}
	return v, Promoted, err
}

// Unevaluated reports whether nothing ever compared the versions of a run: it has no
// gate split, and no person moved the promoted pointer.
func (c Catalog) Unevaluated(ctx context.Context, run string) (bool, error) {
	r, err := c.Store.Run(ctx, run)
	if err != nil {
		return false, err
	}
	if r.Splits[record.Gate].Count > 0 {
		return false, nil
	}
	p, err := c.Store.Promoted(ctx, run, model.DefaultPolicy)
	if errors.Is(err, record.ErrNotFound) {
		return true, nil
	}
	return p.Source == "" || p.Source == record.SourceGate, err
}

func (c Catalog) newest(ctx context.Context, run string) (model.Version, error) {
	versions, err := c.Store.Versions(ctx, run, model.DefaultPolicy)
	if err != nil {
		return model.Version{}, fmt.Errorf("find the newest version of run %q: %w", run, err)
	}
	if len(versions) == 0 {
		return model.Version{}, fmt.Errorf("find the newest version of run %q: %w", run, record.ErrNotFound)
	}
	last := versions[0]
	for _, v := range versions {
		if v.Number > last.Number {
			last = v
		}
	}
	return last, nil
}
