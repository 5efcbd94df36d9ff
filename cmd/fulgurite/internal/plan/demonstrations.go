package plan

import (
	"fmt"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

// renderedDemonstrations is how many of a file's dialogs a plan renders. A mistake in
// one is mostly a mistake in all.
const renderedDemonstrations = 1000

// checkDemonstrations reads the file that a warm start learns from, and makes sure
// that the codec can lay its dialogs out and the model has positions for them.
func checkDemonstrations(m spec.Model, codec dialog.Codec, positions int) error {
	if m.WarmStart == nil {
		return nil
	}
	source, err := spec.ParseSource(m.WarmStart.Demonstrations)
	if err != nil || source.Path == "" { // what a generator makes fits
		return err
	}
	dialogs, err := tasks.OpenDialogs(source.Path)
	if err != nil {
		return err
	}
	for i, d := range dialogs[:min(len(dialogs), renderedDemonstrations)] {
		tokens, _, err := codec.Demonstration(d)
		if err != nil {
			return fmt.Errorf("%s: dialog %d: %w", source.Path, i+1, err)
		}
		if len(tokens) > positions {
			return fmt.Errorf("%s: dialog %d has %d tokens, the model has %d positions: shorten it, or give a longer model.context or another model.base",
				source.Path, i+1, len(tokens), positions)
		}
	}
	return nil
}
