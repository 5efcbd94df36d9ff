package gomlx

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/fulgurite/fulgurite/model"
)

// graphs holds the computations of one architecture. Each is compiled when a shape first
// occurs.
type graphs struct {
	backend compute.Backend
	arch    model.Architecture
	n       int // number of weight tensors
	rotary  *rotary

	score    *graph.Exec
	gradient *graph.Exec
	norm     *graph.Exec
	adamw    *graph.Exec
	step     *graph.Exec
	// stepLogits does what step does, and also returns the logits.
	stepLogits *graph.Exec
	regroup    *graph.Exec
}

func newGraphs(backend compute.Backend, a model.Architecture) (*graphs, error) {
	g := &graphs{backend: backend, arch: a, n: len(a.Tensors()), rotary: newRotary(a)}
	t := transformer{a}
	for _, e := range []struct {
		exec  **graph.Exec
		name  string
		build func([]*graph.Node) []*graph.Node
	}{
		{&g.score, "score", t.score}, {&g.gradient, "gradient", t.gradient}, {&g.norm, "norm", squaredNorm},
		{&g.adamw, "adamw", t.adamw}, {&g.step, "step", t.step}, {&g.stepLogits, "step with logits", t.stepLogits}, {&g.regroup, "regroup", regroup},
	} {
		exec, err := graph.NewExec(backend, e.build)
		if err != nil {
			return nil, fmt.Errorf("graph %s: %w", e.name, err)
		}
		// Shapes are bucketed, so few occur; a limit would only cause a late failure.
		*e.exec = exec.WithName(e.name).SetMaxCache(-1)
	}
	return g, nil
}

// call runs a graph. Inputs made by donate are consumed.
func (g *graphs) call(e *graph.Exec, inputs ...any) (outputs []*tensors.Tensor, err error) {
	defer caught(&err)
	outputs, err = e.Call(inputs...)
	if err != nil {
		return nil, fmt.Errorf("run graph %s: %w", e.Name(), err)
	}
	return outputs, nil
}

// donate lets a graph reuse the memory of ts, which are unusable afterwards.
func (g *graphs) donate(ts []*tensors.Tensor) (inputs []any, err error) {
	defer caught(&err)
	inputs = make([]any, len(ts))
	for i, t := range ts {
		if inputs[i], err = graph.DonateTensorBuffer(t, g.backend, 0); err != nil {
			return nil, fmt.Errorf("donate tensor: %w", err)
		}
	}
	return inputs, nil
}

func lend(ts []*tensors.Tensor) []any {
	inputs := make([]any, len(ts))
	for i, t := range ts {
		inputs[i] = t
	}
	return inputs
}

// upload copies weights to tensors.
func upload(w model.Weights) (ts []*tensors.Tensor, err error) {
	defer caught(&err)
	ts = make([]*tensors.Tensor, len(w))
	for i, t := range w {
		ts[i] = tensors.FromFlatDataAndDimensions(t.Data, t.Shape...)
	}
	return ts, nil
}

// download copies tensors into weights of the names and shapes of a.
func download(a model.Architecture, ts []*tensors.Tensor) (model.Weights, error) {
	w := a.Tensors()
	for i, t := range ts {
		data, err := tensors.CopyFlatData[float32](t)
		if err != nil {
			return nil, fmt.Errorf("read tensor %s: %w", w[i].Name, err)
		}
		w[i].Data = data
	}
	return w, nil
}

// hostCopy copies t to the host and frees it.
func hostCopy[E float32 | float64 | int32](t *tensors.Tensor) (data []E, err error) {
	defer caught(&err)
	if data, err = tensors.CopyFlatData[E](t); err != nil {
		return nil, fmt.Errorf("read result: %w", err)
	}
	return data, t.FinalizeAll()
}

// free gives memory back at once; the collector would do it later, so an error
// here loses nothing.
func free(ts []*tensors.Tensor) {
	for _, t := range ts {
		_ = t.FinalizeAll()
	}
}
