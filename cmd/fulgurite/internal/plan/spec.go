package plan

import (
	"encoding/json"
	"fmt"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/workflows"
)

// loadSpec reads a spec file completely: defaults filled in, everything checked.
func loadSpec(path string) (spec.Spec, error) {
	sp, err := spec.Load(path)
	if err != nil {
		return sp, terminal.Usage(err)
	}
	sp = sp.WithDefaults()
	if err := sp.Check(); err != nil {
		return sp, terminal.Usage(fmt.Errorf("%s: %w", path, err))
	}
	return sp, nil
}

// Input is a spec as the input of TrainingWorkflow.
func Input(s spec.Spec) (workflows.TrainingInput, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return workflows.TrainingInput{}, fmt.Errorf("encode spec: %w", err)
	}
	return workflows.TrainingInput{Spec: data}, nil
}

// Schema is `fulgurite schema`.
type Schema struct{}

// Run prints the JSON Schema of specs.
func (Schema) Run(t *terminal.Terminal) error {
	schema, err := spec.Schema()
	if err != nil {
		return err
	}
	t.Printf("%s", schema)
	return nil
}
