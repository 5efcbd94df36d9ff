package fleet

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/gomlx"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/engine/torch"
)

// EngineNames returns the names of the engines that are compiled in.
func EngineNames() []string { return []string{"native", "gomlx", "torch"} }

// Engines opens an engine by its name in a spec. An engine with a method Close runs in
// its own process, which ends with this process at the latest.
func Engines(name string) (model.Engine, error) {
	switch name {
	case "native":
		return native.New(native.Options{}), nil
	case "gomlx":
		return gomlx.New(gomlx.Options{})
	case "torch":
		return openTorch()
	}
	return nil, fmt.Errorf("engine %q: there are %s", name, strings.Join(EngineNames(), ", "))
}

// openTorch keeps a nil pointer from becoming an engine.
func openTorch() (model.Engine, error) {
	e, err := torch.New(torch.Options{})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// opened keeps the engines that have their own process, so that there is one of each.
type opened struct {
	mu      sync.Mutex
	engines map[string]model.Engine
}

// open returns the engine that was kept, or one that find opens.
func (o *opened) open(name string, find func(name string) (model.Engine, error)) (model.Engine, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e, ok := o.engines[name]; ok {
		return e, nil
	}
	e, err := find(name)
	if _, ok := e.(interface{ Close() }); ok && err == nil {
		o.engines[name] = e
	}
	return e, err
}

// close ends the processes of all kept engines.
func (o *opened) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, e := range o.engines {
		e.(interface{ Close() }).Close() // or it would not have been kept
		delete(o.engines, name)
	}
}

// OnlyEngines returns a function like Engines, for a process that has only some of them.
func OnlyEngines(names []string) func(name string) (model.Engine, error) {
	return func(name string) (model.Engine, error) {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("engine %q: this worker has %s", name, strings.Join(names, ", "))
		}
		return Engines(name)
	}
}
