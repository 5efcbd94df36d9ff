package fleet

import (
	"context"
	"fmt"
	"sync"

	"github.com/fulgurite/fulgurite/prompts"
)

// Prompts finds the prompts of attempts by the digests in their terms. The run stored them
// when it began. They never change, so they are cached.
type Prompts struct {
	blobs interface {
		Get(ctx context.Context, digest string) ([]byte, error)
	}

	mu   sync.Mutex
	read map[string]prompts.Set
}

// NewPrompts returns the prompts that are in blobs.
func NewPrompts(blobs interface {
	Get(ctx context.Context, digest string) ([]byte, error)
}) *Prompts {
	return &Prompts{blobs: blobs, read: map[string]prompts.Set{}}
}

// Set returns the prompts and rules with a digest. That of none is empty.
func (p *Prompts) Set(digest string) (prompts.Set, error) {
	if digest == "" {
		return prompts.Set{}, nil
	}
	p.mu.Lock()
	set, ok := p.read[digest]
	p.mu.Unlock()
	if ok {
		return set, nil
	}
	encoded, err := p.blobs.Get(context.Background(), digest)
	if err != nil {
		return set, fmt.Errorf("read prompts %s: %w", digest, err)
	}
	if set, err = prompts.Decode(encoded); err != nil {
		return set, fmt.Errorf("read prompts %s: %w", digest, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read[digest] = set
	return set, nil
}
