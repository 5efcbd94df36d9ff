package results

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"go.yaml.in/yaml/v4"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
)

// promptLines returns the versions of a run's prompts. Version 0 is listed before the
// search puts the versions on record, because it is promoted before.
func promptLines(ctx context.Context, db *store.Store, found *promptsearch.Search) ([]promptVersion, error) {
	versions := found.Versions
	if len(versions) == 0 {
		set, err := found.Prompts(found.Seed())
		if err != nil {
			return nil, fmt.Errorf("prompts of run %s: %w", found.Run.Name, err)
		}
		versions = []record.PromptVersion{{Prompts: set.Digest(), Candidate: found.Seed().ID}}
	}
	evaluations, err := db.Evaluations(ctx, found.Run.Name)
	if err != nil {
		return nil, err
	}
	moves, err := db.Promotions(ctx, found.Run.Name, record.PromptsPolicy)
	if err != nil {
		return nil, err
	}
	lines := make([]promptVersion, len(versions))
	for i, v := range versions {
		promoted := v.Number == found.Promoted
		lines[i] = promptVersion{Version: v.Number, Prompts: v.Prompts, Promoted: promoted, Pinned: promoted && moves[len(moves)-1].Pinned()}
		if c, ok := found.Find(v.Candidate); ok {
			lines[i].Candidate = &c.Number
		}
		for _, e := range evaluations {
			switch {
			case e.Policy != record.PromptsPolicy || e.Version != v.Number:
			case e.Kind == record.Gate:
				lines[i].Gate = &e.Mean
			case e.Kind == record.Test:
				lines[i].Test = &e.Mean
			}
		}
	}
	return lines, nil
}

// sectionFile is the file with the section of a spec.
const sectionFile = "prompts.yaml"

// exportPrompts writes each text to NAME.txt in a directory, and the section "prompts" of a
// spec in the same directory. It returns the paths.
func exportPrompts(dir string, of spec.Prompts, chosen promptTexts) ([]string, error) {
	of.Digest = chosen.Prompts
	texts := make([]spec.PromptText, len(of.Texts))
	var files []string
	for i, t := range of.Texts {
		text, _ := chosen.candidate.Text(t.Name) // a candidate has all prompts
		texts[i] = spec.PromptText{Name: t.Name, File: t.Name + ".txt", Placeholders: t.Placeholders}
		path := filepath.Join(dir, texts[i].File)
		if err := state.ReplaceFile(path, []byte(text+"\n")); err != nil { // the end of the last line is no part of the text
			return nil, fmt.Errorf("write prompt %s: %w", t.Name, err)
		}
		files = append(files, path)
	}
	of.Texts = texts
	data, err := section(of)
	if err != nil {
		return nil, fmt.Errorf("encode the section prompts: %w", err)
	}
	path := filepath.Join(dir, sectionFile)
	if err := state.ReplaceFile(path, data); err != nil {
		return nil, fmt.Errorf("write the section prompts: %w", err)
	}
	return append(files, path), nil
}

// section returns the section "prompts" of a spec as YAML. It goes through JSON, whose keys
// are those of specs.
func section(p spec.Prompts) ([]byte, error) {
	data, err := json.Marshal(map[string]spec.Prompts{"prompts": p})
	if err != nil {
		return nil, err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(data, &node); err != nil {
		return nil, err
	}
	inBlocks(&node)
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(&node); err != nil {
		return nil, err
	}
	return out.Bytes(), e.Close()
}

// inBlocks gives lists and objects a line for each element, and keys no quotes.
func inBlocks(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode {
		n.Style = 0
	}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			c.Style = 0
		}
		inBlocks(c)
	}
}
