package spec

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/textfile"
	"github.com/fulgurite/fulgurite/prompts"
)

const (
	defaultPromptBytes = 16 << 10
	// maxPrompts and maxPromptsBytes keep a spec below what Temporal takes as an input, 2 MB.
	maxPrompts      = 100
	maxPromptsBytes = 512 << 10
)

// Prompts are named texts that replace parts of the agent's prompts, without a change of
// the agent.
type Prompts struct {
	// Texts lists the prompts: 1 to 100 of them. With version, they name those to take,
	// and absent means all of them.
	Texts []PromptText `json:"texts,omitempty"`
	// Version is a version of the prompts of another run in the same store, written
	// RUN@NUMBER. The run begins with its texts. Version 0 has the texts that the other run
	// began with.
	Version string `json:"version,omitempty"`
	// Rules lists which text of a request each prompt replaces. Absent means that the
	// agent asks for its prompts by name.
	Rules []PromptRule `json:"rules,omitempty"`
	// MaxBytes is the largest number of bytes in the text of one prompt.
	MaxBytes int `json:"max_bytes,omitempty"`
	// Digest is that of all texts and rules, "sha256:" and 64 hex digits. The run records
	// it. If you give it, texts or rules with another digest are refused.
	Digest string `json:"digest,omitempty"`
}

// PromptText is a named text. Exactly one of Text and File is given, or with
// prompts.version at most one.
type PromptText struct {
	// Name of the prompt: 1 to 63 of a-z, 0-9, '_' and '-', with a letter first.
	Name string `json:"name"`
	// Text of the prompt when the run begins.
	Text string `json:"text,omitempty"`
	// File is the path of a file with that text. The end of its last line is no part of
	// the text.
	File string `json:"file,omitempty"`
	// Placeholders lists the names that the agent fills in, each written {NAME} in the
	// text. With it, the text must have each of them and no other. Absent means that
	// braces have no meaning.
	Placeholders []string `json:"placeholders,omitempty"`
}

// PromptRule says which text of a request a prompt replaces.
type PromptRule struct {
	// Prompt is the name of the prompt.
	Prompt string `json:"prompt"`
	// Match finds the one text that the prompt replaces.
	Match PromptMatch `json:"match,omitzero"`
}

// PromptMatch finds a text in a request. All of its keys have to agree.
type PromptMatch struct {
	// Agent is the agent's name in the base URL of the request. Absent means any.
	Agent string `json:"agent,omitempty"`
	// Model is the model that the request asks for. Absent means any.
	Model string `json:"model,omitempty"`
	// Role is the kind of text: "system", "developer" (the same), "user", or "tool" for
	// the description of a tool. Absent means "system".
	Role string `json:"role,omitempty"`
	// Tool is the name of the tool. Only with role "tool".
	Tool string `json:"tool,omitempty"`
	// Position is the number of the message in the request, from 0. Absent means any.
	Position *int `json:"position,omitempty"`
	// Exact is the complete text as the agent sends it. Give exact or prefix or neither.
	Exact string `json:"exact,omitempty"`
	// Prefix is the beginning of the text as the agent sends it. Only the beginning is
	// replaced.
	Prefix string `json:"prefix,omitempty"`
}

func (p *Prompts) withDefaults() *Prompts {
	if p == nil {
		return nil
	}
	out := *p // the caller's copy does not change
	out.MaxBytes = cmp.Or(out.MaxBytes, defaultPromptBytes)
	out.Rules = slices.Clone(p.Rules)
	for i := range out.Rules {
		m := &out.Rules[i].Match
		m.Role = cmp.Or(m.Role, string(prompts.System))
	}
	return &out
}

// Set returns the prompts and rules as attempts are served them. ReadPrompts must have
// processed the spec. The error is a *prompts.Error.
func (p *Prompts) Set() (prompts.Set, error) {
	if p == nil {
		return prompts.Set{}, nil
	}
	byName := map[string]prompts.Prompt{}
	for _, t := range p.Texts {
		byName[t.Name] = prompts.Prompt{Text: t.Text, Placeholders: t.Placeholders}
	}
	texts, err := prompts.New(byName)
	if err != nil {
		return prompts.Set{}, err
	}
	return prompts.NewSet(texts, p.rules())
}

// WithTexts returns the same for other texts, which text gives by name. A prompt that it
// does not know keeps its text.
func (p *Prompts) WithTexts(text func(name string) (string, bool)) (prompts.Set, error) {
	out := *p // the caller's copy does not change
	out.Texts = slices.Clone(p.Texts)
	for i := range out.Texts {
		if other, ok := text(out.Texts[i].Name); ok {
			out.Texts[i].Text = other
		}
	}
	return out.Set()
}

func (p *Prompts) rules() []prompts.Rule {
	rules := make([]prompts.Rule, len(p.Rules))
	for i, r := range p.Rules {
		m := r.Match
		rules[i] = prompts.Rule{Prompt: r.Prompt, Match: prompts.Match{
			Agent: m.Agent, Model: m.Model, Role: prompts.Role(m.Role), Tool: m.Tool, Position: m.Position, Exact: m.Exact, Prefix: m.Prefix,
		}}
	}
	return rules
}

// PromptsDigest returns the digest of the prompts in the terms of attempts; empty if there
// are none. It is known once ReadPrompts has processed the spec.
func (s Spec) PromptsDigest() string {
	if s.Prompts == nil {
		return ""
	}
	return s.Prompts.Digest
}

// ReadPrompts returns s with the texts of files in place of their paths, and with the
// digest of the prompts. So later changes of the files have no effect. A spec without
// prompts is returned unchanged, and so is the digest of one with prompts.version: only
// TakePrompts knows its texts. The error is a *Faults.
func (s Spec) ReadPrompts() (Spec, error) {
	if s.Prompts == nil {
		return s, nil
	}
	f := &Faults{}
	p := s.Prompts.withFiles(f)
	s.Prompts = p
	if len(f.List) == 0 {
		p.check(f) // the texts of files are there now
	}
	if err := f.err(); err != nil || p.Version != "" {
		return s, err
	}
	return s.digestPrompts()
}

// TakePrompts returns s with the texts of prompts.version, which are given, and with the
// digest of the prompts. Of a spec with prompts.texts only these prompts are taken, with
// their placeholders if they have any. The error is a *Faults.
func (s Spec) TakePrompts(version []PromptText) (Spec, error) {
	f := &Faults{}
	p := s.Prompts.withDefaults()
	s.Prompts = p
	var names []string
	for _, t := range version {
		names = append(names, t.Name)
	}
	absent := func(key, name string) {
		f.add(key, "name one of "+strings.Join(names, ", ")+", or another version", "prompts.version %s has no prompt %q", p.Version, name)
	}
	if len(p.Texts) == 0 {
		p.Texts = version
	}
	p.Texts = slices.Clone(p.Texts)
	for i, t := range p.Texts {
		from := slices.Index(names, t.Name)
		if from < 0 {
			absent(promptKey(i)+".name", t.Name)
			continue
		}
		if t.Placeholders == nil {
			t.Placeholders = version[from].Placeholders
		}
		t.Text, t.File = version[from].Text, ""
		p.Texts[i] = t
	}
	for i, r := range p.Rules {
		if !slices.Contains(names, r.Prompt) {
			absent(fmt.Sprintf("prompts.rules[%d].prompt", i), r.Prompt)
		}
	}
	if len(f.List) == 0 {
		p.check(f)
	}
	if err := f.err(); err != nil {
		return s, err
	}
	return s.digestPrompts()
}

// digestPrompts returns s with the digest of its prompts. A digest that s has must be that.
func (s Spec) digestPrompts() (Spec, error) {
	f, p := &Faults{}, s.Prompts
	set, err := p.Set()
	if err != nil {
		return s, fmt.Errorf("make prompts: %w", err) // check would have reported it
	}
	if digest := set.Digest(); p.Digest == "" {
		p.Digest = digest
	} else if p.Digest != digest {
		f.add("prompts.digest", "leave it out, or give the texts and rules that it belongs to", "the digest of the texts and rules is %s", digest)
	}
	return s, f.err()
}

// withFiles returns the prompts, with their defaults, and with the texts of files in place of
// their paths. It reports what is wrong with the files.
func (p *Prompts) withFiles(f *Faults) *Prompts {
	if p == nil {
		return nil
	}
	p = p.withDefaults()
	p.Texts = slices.Clone(p.Texts)
	for i := range p.Texts {
		t := &p.Texts[i]
		if t.File == "" {
			continue
		}
		if text, ok := f.promptFile(promptKey(i)+".file", t.File); ok {
			t.Text, t.File = text, ""
			p.checkText(f, i, ".file")
		}
	}
	return p
}

func promptKey(i int) string { return fmt.Sprintf("prompts.texts[%d]", i) }

// promptFile reads a prompt.
func (f *Faults) promptFile(key, path string) (text string, ok bool) {
	switch stat, err := os.Stat(path); {
	case err != nil:
		f.add(key, pathRemedy(path), "%s: %s", path, reason(err))
		return "", false
	case stat.IsDir():
		f.add(key, "give a file", "%s is a directory", path)
		return "", false
	case stat.Size() > maxPromptsBytes: // don't read what can be no prompt
		f.add(key, "give a shorter text", "the %d bytes of %s are more than %d", stat.Size(), path, maxPromptsBytes)
		return "", false
	}
	data, err := textfile.Read(path)
	if err != nil {
		remedy := "make it readable"
		if errors.Is(err, textfile.ErrText) {
			remedy = "" // the error says it
		}
		f.add(key, remedy, "%v", err)
		return "", false
	}
	text = strings.ReplaceAll(string(data), "\r\n", "\n")
	return strings.TrimSuffix(text, "\n"), true
}

// check reports the faults of prompts, apart from those of files.
func (p *Prompts) check(f *Faults) {
	if p == nil {
		return
	}
	f.whole("prompts.max_bytes", p.MaxBytes, 1, prompts.MaxBytes)
	if p.Version != "" {
		const remedy = "give RUN@NUMBER, such as demo@1"
		if v, err := ParseVersion(p.Version); err != nil {
			f.add("prompts.version", remedy, "%v", err)
		} else if v.Policy != "" {
			f.add("prompts.version", remedy, "%q is a version of a policy, and policies have no prompts", p.Version)
		}
	}
	switch {
	case len(p.Texts) == 0 && p.Version == "":
		f.add("prompts.texts", "give a name and a text or a file, or prompts.version, or leave prompts out", "missing")
		return
	case len(p.Texts) > maxPrompts:
		f.add("prompts.texts", fmt.Sprintf("give at most %d", maxPrompts), "%d prompts", len(p.Texts))
		return
	}
	var names []string
	total := 0
	for i, t := range p.Texts {
		key := promptKey(i)
		if slices.Contains(names, t.Name) {
			f.add(key+".name", "give each prompt a name of its own", "%q is given twice", t.Name)
		}
		if t.Name != "" {
			names = append(names, t.Name)
		}
		total += len(t.Text)
		switch {
		case t.Text != "" && t.File != "":
			f.add(key+".file", "keep one of text and file", "both text and file")
		case t.Text == "" && t.File == "" && p.Version == "":
			f.add(key+".text", "give text or file", "missing")
		}
		p.checkText(f, i, ".text")
	}
	if total > maxPromptsBytes {
		f.add("prompts.texts", "shorten them", "their %d bytes are more than %d", total, maxPromptsBytes)
	}
	if len(p.Texts) == 0 { // the version has them
		for _, r := range p.Rules {
			names = append(names, r.Prompt)
		}
	}
	for _, fault := range prompts.RuleFaults(p.rules(), names) {
		f.add(fmt.Sprintf("prompts.rules[%d].%s", fault.Rule, fault.Field), fault.Remedy, "%s", fault.Message)
	}
	if p.Digest != "" && !sha256Digest.MatchString(p.Digest) {
		f.add("prompts.digest", `give "sha256:" and 64 hex digits, or leave it out`, "%q is not a digest", p.Digest)
	}
}

// checkText reports the faults of a prompt. Those of its text are reported under the key
// that ends in field. They are left out if there is no text yet.
func (p *Prompts) checkText(f *Faults, i int, field string) {
	t := p.Texts[i]
	for _, fault := range (prompts.Prompt{Text: t.Text, Placeholders: t.Placeholders}).Faults(t.Name) {
		key := promptKey(i) + "." + fault.Field
		switch {
		case fault.Field == "text" && t.Text == "" && field == ".text":
			continue // missing, or in a file
		case fault.Field == "text":
			key = promptKey(i) + field
		case field != ".text":
			continue // reported without the file
		}
		f.add(key, fault.Remedy, "%s", fault.Message)
	}
	if len(t.Text) > p.MaxBytes && p.MaxBytes > 0 {
		f.add(promptKey(i)+field, "shorten it, or raise prompts.max_bytes", "its %d bytes are more than prompts.max_bytes, %d", len(t.Text), p.MaxBytes)
	}
}
