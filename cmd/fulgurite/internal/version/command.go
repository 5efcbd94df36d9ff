// Package version implements `fulgurite version`.
package version

import (
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/build"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

// Command is `fulgurite version`.
type Command struct {
	JSON bool `help:"Print it as JSON." name:"json"`
}

// Outputs returns what the command prints as JSON.
func (*Command) Outputs() []any { return []any{build.Build{}} }

// Run prints what this program was built from and for.
func (c *Command) Run(t *terminal.Terminal) error {
	b := build.This(kernel.Best().Name())
	if c.JSON {
		return t.JSON(b)
	}
	t.Printf("fulgurite %s\n", b)
	return nil
}
