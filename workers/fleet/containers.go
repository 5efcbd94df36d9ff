package fleet

import (
	"context"
	"errors"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/container"
	"github.com/fulgurite/fulgurite/agent/process"
	"github.com/fulgurite/fulgurite/spec"
)

// FindContainer returns the ID of an agent's image on this machine. It returns *spec.Faults
// if podman can't run the containers of agents here, or has no such image. After another
// error it may be tried again.
func FindContainer(ctx context.Context, a spec.Agent) (image string, err error) {
	podman, err := container.Find(ctx)
	if err == nil {
		if image = a.ImageID; image == "" {
			image, err = podman.ImageID(ctx, a.Image)
		}
	}
	if errors.Is(err, container.ErrUnavailable) || errors.Is(err, container.ErrNoImage) {
		return "", a.NoContainer(err)
	}
	return image, err
}

// Containers removes containers of attempts that were left by workers of this machine that
// were killed. A process does that before its first attempt in a container, so one that has
// none never asks for podman.
type Containers struct {
	Log *zap.Logger

	begun atomic.Bool
}

// removeAbandoned removes them if this process has not tried that yet. It is tried once,
// and other attempts don't wait for it, since podman may take minutes to fail.
func (c *Containers) removeAbandoned(ctx context.Context) {
	if c.begun.Swap(true) {
		return
	}
	var attempts []string
	podman, err := container.Find(ctx)
	if err == nil {
		attempts, err = podman.RemoveAbandoned(ctx, process.InUse)
	}
	if len(attempts) > 0 {
		c.Log.Info("removed containers that a killed worker had left", zap.Strings("attempts", attempts))
	}
	if err != nil {
		c.Log.Warn("containers that a killed worker had left may still be there: the next start of this worker tries again to remove them", zap.Error(err))
	}
}

// containedLauncher launches agents in containers.
type containedLauncher struct {
	agent.Launcher
	containers *Containers
}

// Launch implements agent.Launcher.
func (l containedLauncher) Launch(ctx context.Context, job agent.Job) (agent.Result, error) {
	l.containers.removeAbandoned(ctx)
	return l.Launcher.Launch(ctx, job)
}
