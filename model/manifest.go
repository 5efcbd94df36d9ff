package model

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
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
