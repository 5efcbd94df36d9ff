package workers

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/fulgurite/fulgurite/internal/build"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

// versionCommand prints the program's build, as `fulgurite version` does.
type versionCommand struct {
	JSON bool `help:"Print it as JSON." name:"json"`
}

// Run prints to standard output.
func (c *versionCommand) Run() error {
	b := build.This(kernel.Best().Name())
	if !c.JSON {
		_, err := fmt.Printf("%s %s\n", program(), b)
		return err
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(b)
}
