package testsuite_test

import (
	"context"
	"os"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/workers/stack"
)

// openStore opens the store in a stack's directory while the stack runs, once the store
// exists.
func openStore(ctx context.Context, dir string) (*store.Store, error) {
	path := stack.Layout(dir).Database()
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	return store.Open(ctx, path, zap.NewNop())
}
