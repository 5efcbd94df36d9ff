package update

import (
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
)

// WithAdapter returns s with the properties of the adapters that model.lora.adapter and
// policies.NAME.lora.adapter name: rank, alpha, targets, trained tokens and digest. If s sets any
// of them, they have to agree. A spec without an adapter is returned unchanged. Errors are
// InvalidErrors.
func WithAdapter(s spec.Spec) (spec.Spec, error) {
	if s.Model.Version != "" {
		return s, nil
	}
	out, described := s, false
	if l := s.Model.LoRA; l != nil && l.Adapter != "" {
		own, err := describedAdapter(s, *l)
		if err != nil {
			return s, Invalid(fmt.Errorf("model.lora.adapter: %w", err))
		}
		out.Model.LoRA, described = &own, true
	}
	out.Policies = maps.Clone(s.Policies)
	for _, name := range s.PolicyNames() {
		p := out.Policies[name]
		if p.LoRA == nil || p.LoRA.Adapter == "" {
			continue
		}
		own, err := describedAdapter(s, *p.LoRA)
		if err != nil {
			return s, Invalid(fmt.Errorf("policies.%s.lora.adapter: %w", name, err))
		}
		p.LoRA, described = &own, true
		out.Policies[name] = p
	}
	if !described {
		return s, nil
	}
	checked := out
	if len(checked.Policies) == 1 { // the spec of one of several policies
		checked.Policies = nil
	}
	if err := checked.Validate(); err != nil { // its rank may be too large for a server
		return s, Invalid(err)
	}
	return out, nil
}

// describedAdapter returns l with the properties of its adapter.
func describedAdapter(s spec.Spec, l spec.LoRA) (spec.LoRA, error) {
	if files, err := openFiles(s); err == nil && files != nil {
		return l, fmt.Errorf("an adapter of a model of type %q can't be read here: leave it out, or take a model of type llama, mistral, qwen2 or qwen3",
			files.Architecture.ModelType())
	}
	err := describeAdapter(&l)
	return l, err
}

// describeAdapter sets those properties of the adapter that l does not set.
func describeAdapter(l *spec.LoRA) error {
	of, _, err := hf.ReadPEFTDirectory(l.Adapter)
	if err != nil {
		return err
	}
	disagree := func(field string, has any, key string, given any) error {
		return fmt.Errorf("%s: %s: %s is %v, but model.lora.%s is %v: leave model.lora.%s out", l.Adapter, model.AdapterConfigFile, field, has, key, given, key)
	}
	targets := inOrder(of.Targets)
	var tokens []string
	for _, id := range of.Tokens {
		tokens = append(tokens, strconv.Itoa(int(id)))
	}
	switch {
	case l.Rank != 0 && l.Rank != of.Rank:
		return disagree("r", of.Rank, "rank", l.Rank)
	case l.Alpha != 0 && l.Alpha != of.Alpha:
		return disagree("lora_alpha", of.Alpha, "alpha", l.Alpha)
	case len(l.Targets) > 0 && !slices.Equal(inOrder(l.Targets), targets):
		return disagree("target_modules", targets, "targets", l.Targets)
	case len(l.TrainableTokens) > 0 && !slices.Equal(l.TrainableTokens, tokens):
		return disagree("trainable_token_indices", tokens, "trainable_tokens", l.TrainableTokens)
	}
	digest, err := fileDigest(filepath.Join(l.Adapter, model.AdapterFile))
	if err != nil {
		return fmt.Errorf("read adapter %s: %w", l.Adapter, err)
	}
	if l.AdapterDigest != "" && l.AdapterDigest != digest {
		return fmt.Errorf("%s: %s has the digest %s, but model.lora.adapter_digest is %s: it is another file, or has changed since the run began",
			l.Adapter, model.AdapterFile, digest, l.AdapterDigest)
	}
	l.Rank, l.Alpha, l.Targets, l.TrainableTokens, l.AdapterDigest = of.Rank, of.Alpha, targets, tokens, digest
	return nil
}

// inOrder returns names of layers in the order of model.LoRATargets.
func inOrder(targets []string) []string {
	all := model.LoRATargets()
	return slices.SortedFunc(slices.Values(targets), func(a, b string) int { return slices.Index(all, a) - slices.Index(all, b) })
}

func fileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // nothing was written
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("sha256:%x", h.Sum(nil)), nil
}

// ReadAdapter reads the adapter that m starts from; WithAdapter must have processed m. It
// checks the adapter against the shapes of base and against the base that it names. Of
// base it needs only the architecture. If base has a digest, it is compared with the one
// that the adapter names. Errors are InvalidErrors.
func ReadAdapter(m spec.Model, base *model.Base) (model.Weights, error) {
	c, err := hf.ReadPEFT(m.LoRA.Adapter, base)
	if err == nil {
		err = checkBaseName(m)
	}
	if err != nil {
		return nil, Invalid(fmt.Errorf("model.lora.adapter: %w", err))
	}
	return c.Weights, nil
}

// checkBaseName returns an error if the adapter names another base and this machine can
// tell: the name is the built-in model, or a directory whose weights differ. A name on a
// hub, or a directory that does not exist here, proves nothing.
func checkBaseName(m spec.Model) error {
	_, of, err := hf.ReadPEFTDirectory(m.LoRA.Adapter)
	if err != nil {
		return err
	}
	refuse := func(difference string) error {
		return fmt.Errorf("%s: %s: base_model_name_or_path is %q, and model.base is %q%s: an adapter computes nothing of use over another base",
			m.LoRA.Adapter, model.AdapterConfigFile, of, m.Base, difference)
	}
	if m.Base == of || of == "" {
		return nil
	}
	if of == spec.BaseTiny {
		return refuse("")
	}
	if !filepath.IsAbs(of) {
		return nil
	}
	if _, err := os.Stat(of); err != nil {
		return nil //nolint:nilerr // it is no directory of this machine
	}
	if m.Base == spec.BaseTiny {
		return refuse("")
	}
	name, err := hf.DifferentTensor(of, m.Base)
	if err != nil {
		return nil //nolint:nilerr // whatever lies there now, nothing can be said of it
	}
	if name != "" {
		return refuse(fmt.Sprintf(", whose tensor %s is another", name))
	}
	return nil
}
