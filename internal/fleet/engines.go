package fleet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/gomlx"
	"github.com/fulgurite/fulgurite/model/native"
)

// EngineNames are the engines that are compiled in.
func EngineNames() []string { return []string{"native", "gomlx"} }

// Engines finds an engine by its name in a spec.
func Engines(name string) (model.Engine, error) {
	switch name {
	case "native":
		return native.New(native.Options{}), nil
	case "gomlx":
		return gomlx.New(gomlx.Options{})
	}
	return nil, fmt.Errorf("engine %q: there are %s", name, strings.Join(EngineNames(), " and "))
}

// OnlyEngines is Engines for a process that has but some of them.
func OnlyEngines(names []string) func(name string) (model.Engine, error) {
	return func(name string) (model.Engine, error) {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("engine %q: this worker has %s", name, strings.Join(names, " and "))
		}
		return Engines(name)
	}
}
