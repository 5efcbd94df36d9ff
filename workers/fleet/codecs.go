package fleet

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
)

// Codecs finds codecs by the names in the terms of attempts: built-in ones, and those of
// published models, which are made from the bundle that the run stored. Making one takes
// a second, so they are cached.
type Codecs struct {
	blobs interface {
		Get(ctx context.Context, digest string) ([]byte, error)
	}

	mu   sync.Mutex
	made map[string]*madeCodec
}

// NewCodecs returns the codecs of runs whose bundles are in blobs.
func NewCodecs(blobs interface {
	Get(ctx context.Context, digest string) ([]byte, error)
}) *Codecs {
	return &Codecs{blobs: blobs, made: map[string]*madeCodec{}}
}

// madeCodec is a codec that one caller makes while the others wait.
type madeCodec struct {
	once  sync.Once
	codec dialog.Codec
	err   error
}

// Named returns the codec called name.
func (c *Codecs) Named(name string) (dialog.Codec, error) {
	if !strings.HasPrefix(name, dialog.TemplatePrefix) {
		return dialog.Named(name)
	}
	c.mu.Lock()
	m, ok := c.made[name]
	if !ok {
		m = &madeCodec{}
		c.made[name] = m
	}
	c.mu.Unlock()
	m.once.Do(func() { m.codec, m.err = c.make(name) })
	if m.err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.made[name] == m {
			delete(c.made, name) // the store may be back next time
		}
	}
	return m.codec, m.err
}

func (c *Codecs) make(name string) (dialog.Codec, error) {
	encoded, err := c.blobs.Get(context.Background(), strings.TrimPrefix(name, dialog.TemplatePrefix))
	if err != nil {
		return nil, fmt.Errorf("read codec %s: %w", name, err)
	}
	bundle, err := dialog.DecodeBundle(encoded)
	if err != nil {
		return nil, fmt.Errorf("codec %s: %w", name, err)
	}
	return bundle.Codec(name)
}

// Constrain returns the constraint of a form, made by the codec that the form names.
func (c *Codecs) Constrain(form model.Form) (model.Constraint, error) {
	codec, err := c.Named(form.Codec)
	if err != nil {
		return nil, err
	}
	return codec.Constrain(form)
}
