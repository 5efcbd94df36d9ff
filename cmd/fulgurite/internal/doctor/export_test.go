package doctor

import (
	"context"
	"io"
	"time"

	"github.com/fulgurite/fulgurite/internal/capacity"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model/engine/torch"
	"github.com/fulgurite/fulgurite/spec"
)

// Environment is environment, with its fields exported.
type Environment struct {
	Dir, Requirements string
	Space             int64
	Check             func(python string) error
	Log               io.Writer
}

func (e Environment) inner() environment {
	return environment{dir: e.Dir, requirements: e.Requirements, space: e.Space, check: e.Check, log: e.Log}
}

func (e Environment) Install(ctx context.Context) error { return e.inner().install(ctx) }

// Lock takes the lock that an install holds while it runs.
func (e Environment) Lock() (io.Closer, error) { return e.inner().lock() }

func ParseGPUs(text string) ([]GPU, error) { return parseGPUs(text) }

func ParseVLLM(args, environment []string) VLLM { return parseVLLM(args, environment) }

func ServesVLLM(args []string) bool { return servesVLLM(args) }

// Lacks and ServeCommand do not know the GPU's memory.
func (v VLLM) Lacks(s spec.Spec) []string { return v.lacks(s, 0) }

func ServeCommand(s spec.Spec, address string) string { return serveCommand(s, address, 0) }

// LacksBeside takes the memory of the GPU and of the base on it into account.
func (v VLLM) LacksBeside(s spec.Spec, base, memory int64) []string {
	return v.lacks(s, partBeside(base, memory))
}

func PartBeside(base, memory int64) float64 { return partBeside(base, memory) }

func VLLMFlags() []string { return vllmFlags() }

func FindServer(ctx context.Context, s spec.Spec, address string) []Finding {
	return findServer(s, address)(ctx)
}

func WithoutCUDA(python, cuda, driver string) []string { return withoutCUDA(python, cuda, driver) }

func Quoted(word string) string { return shell.Quote(word) }

func Output(ctx context.Context, name string, args ...string) (string, error) {
	return output(ctx, name, args...)
}

func FindContainer(ctx context.Context, a spec.Agent) []Finding { return findContainer(a)(ctx) }

// FindAll makes probes of the functions and runs them.
func FindAll(ctx context.Context, limit time.Duration, finds ...func(context.Context) []Finding) []Finding {
	var probes []probe
	for _, f := range finds {
		probes = append(probes, probe{"probe", true, f})
	}
	return findAll(ctx, limit, probes)
}

func RoomOn(found []GPU, r torch.Room) (tight string, err error) { return roomOn(found, r) }

func LimitFindings(l capacity.Limits, cores int) []Finding {
	return limitFindings(l, cores)
}
