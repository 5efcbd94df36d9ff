package model

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// JointManifestFormat names the layout of the manifest of a joint version; docs/formats.md
// describes it.
const JointManifestFormat = "fulgurite.joint/1"

// ErrJoint is returned where the weights of one policy are needed and a version has those of
// several.
var ErrJoint = errors.New("the version has several policies")

// JointManifest lists what makes up a version of a run that trains several policies: the
// version of each policy with the same number. The joint version is that of DefaultPolicy,
// and has no weights of its own.
type JointManifest struct {
	Format   string               `json:"format"`
	Number   int                  `json:"number"`
	Policies map[string]JointPart `json:"policies"`
}

// JointPart is the version of one policy.
type JointPart struct {
	Manifest string `json:"manifest"` // digest of the blob with the Manifest's JSON
	Weights  string `json:"weights"`  // as in Version
}

// Check returns an error that names the field if m contradicts the format.
func (m JointManifest) Check() error {
	switch {
	case m.Format != JointManifestFormat:
		return fmt.Errorf("%w: format is %q, want %q", ErrManifest, m.Format, JointManifestFormat)
	case m.Number < 0:
		return fmt.Errorf("%w: number is %d", ErrManifest, m.Number)
	case len(m.Policies) < 2:
		return fmt.Errorf("%w: %d policies, want at least 2", ErrManifest, len(m.Policies))
	}
	for _, name := range slices.Sorted(maps.Keys(m.Policies)) {
		p := m.Policies[name]
		if name == "" || !validDigest(p.Manifest) || !validDigest(p.Weights) {
			return fmt.Errorf("%w: policy %q has manifest %q and weights %q", ErrManifest, name, p.Manifest, p.Weights)
		}
	}
	return nil
}

// Weights returns a digest that identifies the weights of all policies: that of a text with
// the name and the digest of each, sorted by name.
func (m JointManifest) Weights() string {
	text := JointManifestFormat + "\n"
	for _, name := range slices.Sorted(maps.Keys(m.Policies)) {
		text += name + " " + m.Policies[name].Weights + "\n"
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))
}

// Encode checks m and returns its JSON; equal manifests give equal bytes.
func (m JointManifest) Encode() ([]byte, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode joint manifest %d: %w", m.Number, err)
	}
	return append(b, '\n'), nil
}

// ParseJointManifest reads what Encode wrote.
func ParseJointManifest(b []byte) (JointManifest, error) {
	var m JointManifest
	if err := json.Unmarshal(b, &m); err != nil {
		return JointManifest{}, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	return m, m.Check()
}
