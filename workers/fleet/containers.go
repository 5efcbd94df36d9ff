package fleet

import (
	"context"
	"errors"
	"os/exec"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent/container"
	"github.com/fulgurite/fulgurite/agent/process"
	"github.com/fulgurite/fulgurite/spec"
)

// FindContainer returns the program that runs the containers of an agent on this machine,
// and the ID of its image. It returns *spec.Faults if there is no such program or no such
// image.
func FindContainer(ctx context.Context, a spec.Agent) (program, image string, err error) {
	engine, err := container.Find(ctx, a.Container)
	if errors.Is(err, container.ErrUnavailable) {
		return "", "", a.NoContainer(err)
	}
	if err != nil {
		return "", "", err
	}
	if image = a.ImageID; image == "" {
		if image, err = engine.ImageID(ctx, a.Image); errors.Is(err, container.ErrNoImage) {
			return "", "", a.NoContainer(err)
		}
	}
	return engine.Program, image, err
}

// RemoveContainers removes containers of attempts that were left by workers of this machine
// that were killed. Where neither podman nor docker is installed or works, there are none
// that could be removed.
func RemoveContainers(ctx context.Context, log *zap.Logger) {
	for _, program := range container.Programs() {
		if _, err := exec.LookPath(program); err != nil {
			continue
		}
		engine, err := container.Find(ctx, program)
		if err != nil {
			continue
		}
		attempts, err := engine.RemoveAbandoned(ctx, process.InUse)
		if len(attempts) > 0 {
			log.Info("removed containers that a killed worker had left", zap.String("program", program), zap.Strings("attempts", attempts))
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("containers of attempts may be left", zap.String("program", program), zap.Error(err))
		}
	}
}
