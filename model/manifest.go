package model

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"time"
)

// ManifestFormat names the layout of a version's manifest; docs/formats.md
// describes it.
const ManifestFormat = "fulgurite.version/1"

// AdapterManifestFormat is the format of a version whose weights are an adapter over a
// base that other versions share.
const AdapterManifestFormat = "fulgurite.version/2"

// FilesManifestFormat is the format of a version of a model that only engine torch
// computes: its weights, or those of an adapter and its base, lie in files that no Go
// code reads.
const FilesManifestFormat = "fulgurite.version/3"

// The files of a version. Hugging Face loaders expect Config and Weights under these
// names. A version without OptimizerFile can be sampled, but its training starts with
// fresh moments.
const (
	ConfigFile    = "config.json"
	WeightsFile   = "model.safetensors"
	OptimizerFile = "optimizer.safetensors"
	// Optimizer8File is in the place of OptimizerFile where moments are kept in 8 bits.
	Optimizer8File = "optimizer8.safetensors"
	// AdapterFile and AdapterConfigFile replace WeightsFile if an adapter is trained.
	// PEFT expects these names.
	AdapterFile       = "adapter_model.safetensors"
	AdapterConfigFile = "adapter_config.json"
	// CanaryFile is optional. It holds the numbers that a sampler of the version has to
	// reproduce.
	CanaryFile = "canary.json"
)

// ErrManifest is wrapped by every error of Manifest.Check and ParseManifest.
var ErrManifest = errors.New("bad manifest")

// File describes the content of one file; its digest names the blob that holds it.
type File struct {
	Digest string `json:"digest"` // "sha256:<64 hex digits>"
	Size   int64  `json:"size"`   // in bytes
}

// Manifest lists the files of a version. The files contain neither a run's name nor a
// time, so equal training gives equal digests of files. The manifest itself does differ:
// it names the batch, and a batch names attempts.
type Manifest struct {
	Format string `json:"format"`
	Policy string `json:"policy"`
	Number int    `json:"number"`
	Parent int    `json:"parent"` // -1 for version 0
	// Updates is the number of optimizer updates behind the moments in
	// OptimizerFile: AdamW's bias correction depends on it. It differs from
	// Number after a warm start.
	Updates      int          `json:"updates"`
	Architecture Architecture `json:"architecture"`
	Codec        string       `json:"codec"`
	Engine       string       `json:"engine"`
	Fingerprint  string       `json:"fingerprint"`
	// Batch is the digest of the batch that made the version of its parent; empty
	// for version 0.
	Batch string          `json:"batch,omitempty"`
	Files map[string]File `json:"files"`
	// LoRA and Base are set if an adapter is trained. LoRA holds the adapter's numbers,
	// and Base is the file with the frozen weights of the policy that is adapted.
	LoRA *LoRA `json:"lora,omitempty"`
	Base *File `json:"base,omitempty"`
	// BaseFiles replaces Base in FilesManifestFormat. It holds the files of the base by
	// name.
	BaseFiles map[string]File    `json:"base_files,omitempty"`
	Metrics   map[string]float64 `json:"metrics,omitempty"`
}

// Check returns an error that names the field if m contradicts the format.
func (m Manifest) Check() error {
	switch {
	case m.Format != ManifestFormat && m.Format != AdapterManifestFormat && m.Format != FilesManifestFormat:
		return fmt.Errorf("%w: format is %q, want %q, %q or %q", ErrManifest, m.Format, ManifestFormat, AdapterManifestFormat, FilesManifestFormat)
	case m.Policy == "":
		return fmt.Errorf("%w: policy is empty", ErrManifest)
	case m.Number < 0 || m.Parent < -1 || m.Parent >= m.Number:
		return fmt.Errorf("%w: number %d cannot have parent %d", ErrManifest, m.Number, m.Parent)
	case m.Updates < 0:
		return fmt.Errorf("%w: updates is %d", ErrManifest, m.Updates)
	case m.Codec == "":
		return fmt.Errorf("%w: codec is empty", ErrManifest)
	case m.Batch != "" && !validDigest(m.Batch):
		return fmt.Errorf("%w: batch %q is not a sha256 digest", ErrManifest, m.Batch)
	}
	check := m.Architecture.Check
	if m.Format == FilesManifestFormat {
		check = m.Architecture.CheckConfig
	}
	if err := check(); err != nil {
		return fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if err := m.checkAdapter(); err != nil {
		return fmt.Errorf("%w: %w", ErrManifest, err)
	}
	for _, name := range m.required() {
		if _, ok := m.Files[name]; !ok {
			return fmt.Errorf("%w: file %s is absent", ErrManifest, name)
		}
	}
	for _, files := range []map[string]File{m.Files, m.BaseFiles} {
		for name, f := range files {
			if !fileName.MatchString(name) {
				return fmt.Errorf("%w: file name %q", ErrManifest, name)
			}
			if !validDigest(f.Digest) || f.Size < 1 {
				return fmt.Errorf("%w: file %s has digest %q and size %d", ErrManifest, name, f.Digest, f.Size)
			}
		}
	}
	for name, v := range m.Metrics {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("%w: metric %s is %v", ErrManifest, name, v)
		}
	}
	return nil
}

func (m Manifest) required() []string {
	if m.Format == AdapterManifestFormat || m.LoRA != nil {
		return []string{ConfigFile, AdapterFile, AdapterConfigFile}
	}
	return []string{ConfigFile, WeightsFile}
}

// checkAdapter returns an error unless LoRA and Base are set in AdapterManifestFormat,
// and only there.
func (m Manifest) checkAdapter() error {
	if m.Format == FilesManifestFormat {
		return m.checkFiles()
	}
	if m.BaseFiles != nil {
		return fmt.Errorf("format %q has no base_files", m.Format)
	}
	if m.Format != AdapterManifestFormat {
		if m.LoRA != nil || m.Base != nil {
			return fmt.Errorf("format %q has no lora and no base", m.Format)
		}
		return nil
	}
	if m.LoRA == nil || m.Base == nil {
		return fmt.Errorf("format %q without lora and base", m.Format)
	}
	if !validDigest(m.Base.Digest) || m.Base.Size < 1 {
		return fmt.Errorf("base has digest %q and size %d", m.Base.Digest, m.Base.Size)
	}
	return m.LoRA.Check()
}

// checkFiles returns an error unless BaseFiles is set exactly if an adapter is trained.
func (m Manifest) checkFiles() error {
	switch {
	case m.Base != nil:
		return fmt.Errorf("format %q has no base, but base_files", m.Format)
	case (m.LoRA == nil) != (len(m.BaseFiles) == 0):
		return fmt.Errorf("format %q with one of lora and base_files, but not the other", m.Format)
	case m.LoRA != nil:
		return m.LoRA.CheckFor(m.Architecture)
	}
	return nil
}

// IdentityOf returns one digest for several files: the digest of a text with the title
// and then the name and the digest of each file, sorted by name.
func IdentityOf(title string, files map[string]File) string {
	text := title + "\n"
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text += name + " " + files[name].Digest + "\n"
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))
}

// BaseIdentity returns one digest for the files of a base in FilesManifestFormat. Equal
// results mean equal weights.
func BaseIdentity(files map[string]File) string { return IdentityOf("base", files) }

// Weights returns a digest that identifies the version's weights. It is the digest of
// their file. For an adapter it is the digest of a text that names the base and the
// adapter's two files. In FilesManifestFormat it is IdentityOf all files that decide the
// model's numbers.
func (m Manifest) Weights() string {
	if m.Format == FilesManifestFormat {
		files := maps.Clone(m.Files)
		delete(files, OptimizerFile)
		delete(files, CanaryFile)
		if m.LoRA != nil {
			files["base"] = File{Digest: BaseIdentity(m.BaseFiles)}
		}
		return IdentityOf(FilesManifestFormat, files)
	}
	if m.Format != AdapterManifestFormat {
		return m.Files[WeightsFile].Digest
	}
	text := fmt.Sprintf("%s\nbase %s\n%s %s\n%s %s\n", AdapterManifestFormat, m.Base.Digest,
		AdapterConfigFile, m.Files[AdapterConfigFile].Digest, AdapterFile, m.Files[AdapterFile].Digest)
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))
}

// Blobs returns the digests of all blobs of the version, without its manifest and its
// batch, in no order.
func (m Manifest) Blobs() []string {
	var all []string
	for _, f := range m.Files {
		all = append(all, f.Digest)
	}
	if m.Base != nil {
		all = append(all, m.Base.Digest)
	}
	for _, f := range m.BaseFiles {
		all = append(all, f.Digest)
	}
	return all
}

// Encode checks m and returns its JSON; equal manifests give equal bytes.
func (m Manifest) Encode() ([]byte, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode manifest %d: %w", m.Number, err)
	}
	return append(b, '\n'), nil
}

// ParseManifest reads what Encode, or an external trainer, wrote. Fields that
// the format does not have are ignored, so that it can grow.
func ParseManifest(b []byte) (Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return Manifest{}, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if m.Format == JointManifestFormat {
		return Manifest{}, ErrJoint
	}
	if err := m.Check(); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

var (
	digest   = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

func validDigest(s string) bool { return digest.MatchString(s) }

// DefaultPolicy is the policy's name unless a spec trains several. It then is the name of all
// of them together: its versions are joint versions, see JointManifest.
const DefaultPolicy = "main"

// VersionID names a version: number v is the policy after v steps.
type VersionID struct {
	Run    string `json:"run"`
	Policy string `json:"policy"`
	Number int    `json:"number"`
}

// String returns, for example, "demo@12", or "demo:critic@3" for a policy other than the
// default one.
func (v VersionID) String() string {
	if v.Policy == DefaultPolicy || v.Policy == "" {
		return fmt.Sprintf("%s@%d", v.Run, v.Number)
	}
	return fmt.Sprintf("%s:%s@%d", v.Run, v.Policy, v.Number)
}

// Served is what a name such as "demo@promoted" means to clients that ask for it: a version,
// and how requests for it are read.
type Served struct {
	VersionID
	// Codec is the name of the codec of the version's run.
	Codec string
	// Prompts is the digest of the prompts that replace texts of the requests. It is empty
	// if the run has none.
	Prompts string
	// PromptsNumber is the number of these prompts among the versions of the run's prompts.
	PromptsNumber int
	// Pinned says that the name has the version's number, and Newest that it asks for the
	// version that was trained last. Otherwise the name means another version once one is
	// promoted.
	Pinned, Newest bool
	// Collected says that the version's files were deleted.
	Collected bool
	// Recording says which conversations with the version are recorded.
	Recording Recording
	// DeliverUnrecorded says that a reply which was to be recorded and can't be is delivered
	// all the same.
	DeliverUnrecorded bool
	// MaxCalls is the most calls of a recorded conversation; 0 is no bound.
	MaxCalls int
	// Redactor is the program that rewrites texts before they are recorded, with its arguments;
	// empty if there is none. RedactorTimeout is how long it may take for one.
	Redactor        []string
	RedactorTimeout time.Duration
}

// Recording says which conversations with served versions are recorded.
type Recording string

// The recordings.
const (
	RecordNothing Recording = ""
	RecordConsent Recording = "with-consent" // those whose client consents
	RecordAll     Recording = "all"          // all but those whose client does not
)

// Version is an immutable state of a policy. Digests are "sha256:<hex>" names of blobs;
// docs/formats.md describes their content.
type Version struct {
	VersionID
	Parent   int    `json:"parent"`   // -1 for version 0
	Manifest string `json:"manifest"` // blob with the Manifest's JSON
	Weights  string `json:"weights"`  // blob with the safetensors of the weights
	Batch    string `json:"batch,omitempty"`
	// Scores is the blob with the trainer's Scores for the tokens of the batch. It is
	// empty for version 0, for critics and for other trainers.
	Scores      string             `json:"scores,omitempty"`
	Fingerprint string             `json:"fingerprint"`
	Metrics     map[string]float64 `json:"metrics,omitempty"`
	Created     time.Time          `json:"created"`
	// Begun is when the process that made the version began, Work how long the parts of
	// its work took. An earlier process that was killed is in neither.
	Begun time.Time `json:"begun,omitzero"`
	Work  Work      `json:"work,omitzero"`
	// Collected is when the version's files were deleted to save space; zero while they
	// are kept. The row, its metrics and its manifest stay.
	Collected time.Time `json:"collected,omitzero"`
}

// Work is how long the parts of making a version took.
type Work struct {
	Load      time.Duration `json:"load,omitempty"`      // reading the parent, unless it was in memory
	Score     time.Duration `json:"score,omitempty"`     // of the batch, by the reference or the parent
	Gradient  time.Duration `json:"gradient,omitempty"`  // forward and backward passes; all of the updates if the engine does not say more
	Optimizer time.Duration `json:"optimizer,omitempty"` // the updates without their gradients
	Save      time.Duration `json:"save,omitempty"`      // writing files, those of updates on the way too
}

// ErrCollected is returned when the files of a version were deleted to save space.
var ErrCollected = errors.New("the version was collected, its weights are gone")

// Sampler answers for any version of any run, and loads it if needed.
type Sampler interface {
	// Sample also returns the digest of the weights that sampled.
	Sample(ctx context.Context, version VersionID, r DecodeRequest) (c Completion, weights string, err error)
}

// DecodeJSON reads a JSON object of a model's settings, as StandardJSON returns it. An error
// names the line, or the field and what it holds.
func DecodeJSON(text []byte, into any) error {
	err := json.Unmarshal(StandardJSON(text), into)
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Errorf("%s can't be a JSON %s", kind.Field, kind.Value)
	case errors.As(err, &kind):
		return fmt.Errorf("a JSON %s where an object is expected", kind.Value)
	case errors.As(err, &syntax):
		return fmt.Errorf("line %d: no JSON: %w", 1+bytes.Count(text[:min(int(syntax.Offset), len(text))], []byte("\n")), err)
	}
	return err
}

// StandardJSON returns a JSON text in which the numbers that Python writes and JSON does
// not have, NaN and Infinity, are null: config files of models have them in settings that
// were never set. Other texts are returned unchanged.
func StandardJSON(text []byte) []byte {
	if !bytes.Contains(text, []byte("NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return text
	}
	var out []byte
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\' && i+1 < len(text):
			out = append(out, c, text[i+1])
			i++
			continue
		case c == '"':
			quoted = !quoted
		case !quoted:
			if n := beyondJSON(text[i:]); n > 0 {
				out = append(out, "null"...)
				i += n - 1
				continue
			}
		}
		out = append(out, text[i])
	}
	return out
}

// beyondJSON returns the length of a number that JSON does not have.
func beyondJSON(text []byte) int {
	for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
		if bytes.HasPrefix(text, []byte(word)) {
			return len(word)
		}
	}
	return 0
}
