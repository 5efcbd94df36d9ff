package stack

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"

	"go.uber.org/zap"
)

// workerPrefix begins the identity of every stack's workers. None but a stack's own
// have it, and a directory has one stack at a time: with the prefix and another name,
// a worker is of a stack that has ended.
const workerPrefix = "fulgurite-stack/"

// workerIdentity names the workers of this process. Its process id alone would not
// do: in a container it is the same at every start.
func workerIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s%s %d@%s", workerPrefix, rand.Text(), os.Getpid(), host)
}

// recover begins again what the workers of the stack before this one had begun.
// Temporal would find out by its timeouts, ten seconds and more after they died.
func (s *Stack) recover(ctx context.Context, own string) {
	done, err := s.temporal.Recover(ctx, func(identity string) bool {
		return identity != own && strings.HasPrefix(identity, workerPrefix)
	})
	if err != nil {
		// Timeouts find what is left.
		s.log.Warn("not all that the last stack had begun is begun again at once", zap.Error(err))
	}
	if done.Workflows > 0 {
		s.log.Info("open workflows go on", zap.Int("workflows", done.Workflows), zap.Int("activities", done.Activities),
			zap.Int("delayed_activities", done.Delayed), zap.Int("workflow_tasks", done.WorkflowTasks))
	}
}
