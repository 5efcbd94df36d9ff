package model_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

func joint() model.JointManifest {
	digest := func(s string) string { return "sha256:" + strings.Repeat(s, 64) }
	return model.JointManifest{Format: model.JointManifestFormat, Number: 3, Policies: map[string]model.JointPart{
		"writer":  {Manifest: digest("1"), Weights: digest("2")},
		"checker": {Manifest: digest("3"), Weights: digest("4")},
	}}
}

func TestJointManifestsRoundTrip(t *testing.T) {
	t.Parallel()
	text, err := joint().Encode()
	require.NoError(t, err)
	again, err := joint().Encode()
	require.NoError(t, err)
	require.Equal(t, text, again)
	got, err := model.ParseJointManifest(text)
	require.NoError(t, err)
	require.Equal(t, joint(), got)
	_, err = model.ParseManifest(text)
	require.ErrorIs(t, err, model.ErrJoint, "it has no weights of its own")

	listed := "fulgurite.joint/1\nchecker sha256:" + strings.Repeat("4", 64) + "\nwriter sha256:" + strings.Repeat("2", 64) + "\n"
	require.Equal(t, fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(listed))), joint().Weights())
}

func TestBadJointManifestsAreRefusedByField(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(*model.JointManifest){
		`format is "x"`:                  func(m *model.JointManifest) { m.Format = "x" },
		"number is -1":                   func(m *model.JointManifest) { m.Number = -1 },
		"1 policies, want at least 2":    func(m *model.JointManifest) { delete(m.Policies, "writer") },
		`policy "third" has manifest ""`: func(m *model.JointManifest) { m.Policies["third"] = model.JointPart{} },
		`policy "" has manifest`:         func(m *model.JointManifest) { m.Policies[""] = m.Policies["writer"] },
	} {
		m := joint()
		spoil(&m)
		require.ErrorIs(t, m.Check(), model.ErrManifest)
		require.ErrorContains(t, m.Check(), want)
		_, err := m.Encode()
		require.ErrorContains(t, err, want)
	}
	_, err := model.ParseJointManifest([]byte("{"))
	require.ErrorIs(t, err, model.ErrManifest)
}
