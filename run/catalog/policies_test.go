package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/catalog"
	"github.com/fulgurite/fulgurite/spec"
)

const (
	twoPolicies = `{"model":{"codec":"compact"},"policies":{"writer":{"match":[{"agent":"writer"}]},"checker":{}}}`
	askForOne   = "version pair@1 has several policies: name one, such as pair:checker@1 or pair:writer@1"
)

// paired adds run "pair", which trains a checker and a writer and has versions 0 to 2.
func paired(t *testing.T, s *fakeRecords, gate int) {
	t.Helper()
	ctx := t.Context()
	_, _, err := s.store.CreateRun(ctx, record.Run{
		Name: "pair", Spec: []byte(twoPolicies), Splits: map[record.Kind]record.Split{record.Gate: {Digest: "sha256:g", Count: gate}},
	})
	require.NoError(t, err)
	for n := range 3 {
		joint := model.JointManifest{Format: model.JointManifestFormat, Number: n, Policies: map[string]model.JointPart{}}
		for i, policy := range []string{"checker", "writer"} {
			a := architecture()
			c := model.Checkpoint{Architecture: a, Weights: a.Init(uint64(10*i + n))}
			manifest, weights, err := checkpoint.Save(ctx, s.Blobs, c, model.Manifest{Policy: policy, Number: n, Parent: n - 1, Codec: "compact"})
			require.NoError(t, err)
			s.put(t, model.Version{VersionID: ofPair(policy, n), Parent: n - 1, Manifest: manifest, Weights: weights})
			joint.Policies[policy] = model.JointPart{Manifest: manifest, Weights: weights}
		}
		text, err := joint.Encode()
		require.NoError(t, err)
		manifest, err := s.Blobs.Put(ctx, text)
		require.NoError(t, err)
		s.put(t, model.Version{VersionID: ofPair("main", n), Parent: n - 1, Manifest: manifest, Weights: joint.Weights()})
	}
	require.NoError(t, s.store.Promote(ctx, record.Promotion{Run: "pair", Policy: "main", DecisionID: "d", Version: 0, Previous: -1, Source: record.SourceGate}))
}

func ofPair(policy string, number int) model.VersionID {
	return model.VersionID{Run: "pair", Policy: policy, Number: number}
}

func TestAPolicyOfARunIsNamedInAReference(t *testing.T) {
	t.Parallel()
	s := newFakeRecords(t)
	paired(t, s, 4)
	require.NoError(t, s.store.Promote(t.Context(), record.Promotion{Run: "pair", Policy: "main", DecisionID: "e", Version: 1, Previous: 0, Source: record.SourceGate}))
	for reference, want := range map[string]model.VersionID{
		"pair:writer@0": ofPair("writer", 0), "pair:writer@promoted": ofPair("writer", 1), "pair:checker@newest": ofPair("checker", 2), "pair:checker": ofPair("checker", 1),
	} {
		v, err := s.Find(t.Context(), reference)
		require.NoError(t, err)
		require.Equal(t, want, v.VersionID, reference)
		served, err := s.Resolve(t.Context(), reference)
		require.NoError(t, err)
		require.Equal(t, model.Served{
			VersionID: want, MaxCalls: spec.DefaultMaxCalls, Codec: "compact", Pinned: reference == "pair:writer@0", Newest: reference == "pair:checker@newest",
		}, served, reference)
		_, digest, err := s.Load(t.Context(), want)
		require.NoError(t, err)
		require.Equal(t, v.Weights, digest)
		_, err = s.Canary(t.Context(), want)
		require.NoError(t, err)
	}
	for reference, number := range map[string]int{"pair@2": 2, "pair@promoted": 1, "pair@newest": 2, "pair": 1, "pair:main@2": 2} {
		v, err := s.Find(t.Context(), reference)
		require.NoError(t, err)
		require.Equal(t, ofPair("main", number), v.VersionID, reference)
	}
}

func TestAPolicyThatARunDoesNotHaveIsNotFound(t *testing.T) {
	t.Parallel()
	s := newFakeRecords(t)
	paired(t, s, 4)
	for reference, says := range map[string]string{
		"pair:judge@0":  `run "pair" has no policy "judge": it has checker, writer`,
		"pair:@0":       `run "pair" has no policy ""`,
		"pair:critic@0": `it has checker, writer`,
		"demo:writer@0": `run "demo" has no policy "writer", since it trains only one: leave :writer out`,
		"away:writer@0": `run "away"`,
		"pair:writer@3": "pair:writer@3",
		"pair:writer@x": "want RUN@NUMBER",
	} {
		_, err := s.Resolve(t.Context(), reference)
		require.ErrorIs(t, err, record.ErrNotFound, reference)
		require.ErrorContains(t, err, says, reference)
	}
}

func TestAJointVersionHasNoWeights(t *testing.T) {
	t.Parallel()
	s := newFakeRecords(t)
	paired(t, s, 4)
	_, err := s.Resolve(t.Context(), "pair@1")
	require.ErrorIs(t, err, model.ErrJoint)
	require.EqualError(t, err, askForOne)
	_, _, err = s.Load(t.Context(), ofPair("main", 1))
	require.ErrorIs(t, err, model.ErrJoint)
	require.EqualError(t, err, askForOne)
	_, err = s.Canary(t.Context(), ofPair("main", 1))
	require.EqualError(t, err, askForOne)
	require.NotErrorIs(t, err, record.ErrNotFound, "a gateway would say that the attempt does not exist")
}

func TestTheVersionsOfEachPolicyAreListed(t *testing.T) {
	t.Parallel()
	for gate, want := range map[int][]string{
		4: {"pair:checker@promoted", "pair:writer@promoted", "demo@promoted"},
		0: {"pair:checker@promoted", "pair:checker@newest", "pair:writer@promoted", "pair:writer@newest", "demo@promoted"},
	} {
		s := newFakeRecords(t)
		paired(t, s, gate)
		names, err := s.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, names)
		for _, name := range names {
			_, err := s.Resolve(t.Context(), name)
			require.NoError(t, err, name)
		}
		if gate == 0 {
			v, choice, err := s.Choose(t.Context(), "pair:writer")
			require.NoError(t, err)
			require.Equal(t, ofPair("writer", 2), v.VersionID)
			require.Equal(t, catalog.NewestUnevaluated, choice)
		}
	}
}

func TestAPolicyThatIsPromotedAloneHasItsOwnPromotedVersion(t *testing.T) {
	t.Parallel()
	s := newFakeRecords(t)
	paired(t, s, 4)
	ctx := t.Context()
	_, _, err := s.store.CreateRun(ctx, record.Run{
		Name: "alone", Spec: []byte(`{"model":{"codec":"compact"},"promotion":{"alone":true},"policies":{"writer":{"match":[{"agent":"writer"}]},"checker":{}}}`),
		Splits: map[record.Kind]record.Split{record.Gate: {Digest: "sha256:g", Count: 4}},
	})
	require.NoError(t, err)
	for _, policy := range []string{"main", "checker", "writer"} {
		for n := range 3 {
			v, err := s.store.Version(ctx, ofPair(policy, n))
			require.NoError(t, err)
			v.Run = "alone"
			s.put(t, v)
		}
	}
	listed, err := s.List(ctx)
	require.NoError(t, err)
	require.NotContains(t, listed, "alone:writer@promoted", "nothing is promoted yet")
	for policy, version := range map[string]int{"checker": 2, "writer": 1} {
		require.NoError(t, s.store.Promote(ctx, record.Promotion{Run: "alone", Policy: policy, DecisionID: "d", Version: version, Previous: -1, Source: record.SourceGate}))
	}
	for reference, want := range map[string]int{"alone:writer@promoted": 1, "alone:writer": 1, "alone:checker": 2, "alone:writer@newest": 2, "alone:writer@0": 0, "alone@1": 1} {
		v, err := s.Find(ctx, reference)
		require.NoError(t, err, reference)
		require.Equal(t, want, v.Number, reference)
	}
	for _, reference := range []string{"alone", "alone@promoted"} {
		_, err := s.Find(ctx, reference)
		require.ErrorIs(t, err, model.ErrJoint)
		require.EqualError(t, err, "the policies of run alone are promoted one by one: name one, such as alone:checker@promoted, or a number, such as alone@0")
	}
	listed, err = s.List(ctx)
	require.NoError(t, err)
	require.Subset(t, listed, []string{"alone:checker@promoted", "alone:writer@promoted"})
}
