// Package export writes versions as files that other programs load: a Hugging Face
// directory, the adapter alone as PEFT loads it, or a GGUF file. Both the command and the
// page use it.
//
// It reads blobs and writes into one directory. It uses no store and decides nothing.
package export

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/convert"
	"github.com/fulgurite/fulgurite/model/files/gguf"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
)

// ErrFormat is wrapped when a version can't be written in a format. Its text names the
// format that works.
var ErrFormat = errors.New("can't be written in this format")

// The formats. Merged is the same as HF.
const (
	HF     = "hf"
	Merged = "merged"
	PEFT   = "peft"
	GGUF   = "gguf"
)

// Version is the version to write.
type Version struct {
	Name       string
	Model      spec.Model // of the spec of its run
	Checkpoint model.Checkpoint
	Blobs      checkpoint.Blobs
}

// Write writes the version into a directory and returns the path of the result. matrices
// is the type of the matrices in a GGUF file.
func (v Version) Write(ctx context.Context, dir, format, matrices string) (string, error) {
	k := v.Checkpoint
	switch {
	case k.Files != nil:
		return dir, v.writeFiles(ctx, dir, format)
	case format == GGUF:
		return v.writeGGUF(ctx, dir, matrices)
	case format == PEFT:
		return dir, hf.WritePEFT(dir, k, v.Model.Base)
	}
	return dir, Directory(ctx, v.Blobs, dir, v.Model.Codec, k)
}

// Directory writes a model as a Hugging Face directory, with its tokenizer and chat
// template if it has some. An adapter is merged into its base.
func Directory(ctx context.Context, blobs checkpoint.Blobs, dir, codec string, c model.Checkpoint) error {
	weights, err := c.Merged()
	if err != nil {
		return err
	}
	bundle, published, err := readBundle(ctx, blobs, codec)
	if err != nil {
		return err
	}
	if published {
		if err := bundle.WriteDirectory(dir); err != nil {
			return err
		}
	}
	return hf.WriteDirectory(dir, c.Architecture, weights)
}

// refuse returns an error that wraps ErrFormat but has only its own text.
func refuse(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

type refusal struct{ error }

func (refusal) Is(target error) bool { return target == ErrFormat }

// writeFiles writes a model that only engine torch computes. It copies the files
// unchanged.
func (v Version) writeFiles(ctx context.Context, dir, format string) error {
	k := v.Checkpoint
	kind := k.Architecture.ModelType()
	switch {
	case format == GGUF:
		return refuse("--format gguf: it can't be written for models of type %q: use llama.cpp's own convert_hf_to_gguf.py on what --format hf writes", kind)
	case k.Adapter != nil && format != PEFT:
		return refuse("--format %s: an adapter of a model of type %q can't be merged here: use --format peft, and PEFT's merge_and_unload for a merged model", format, kind)
	case k.Adapter == nil && format == PEFT:
		return refuse("--format peft: the model was trained as a whole, and has no adapter")
	}
	bundle, published, err := readBundle(ctx, v.Blobs, v.Model.Codec)
	if err != nil {
		return err
	}
	if published && k.Adapter == nil {
		if err := bundle.WriteDirectory(dir); err != nil {
			return err
		}
	}
	return hf.WriteFiles(ctx, dir, k, v.Model.Base)
}

// writeGGUF writes a model as one file, and returns its path.
func (v Version) writeGGUF(ctx context.Context, dir, matrices string) (string, error) {
	bundle, published, err := readBundle(ctx, v.Blobs, v.Model.Codec)
	if err != nil {
		return "", err
	}
	if !published {
		return "", fmt.Errorf("%w: codec %s is not a tokenizer that llama.cpp has: --format gguf needs a model with a published one", ErrFormat, v.Model.Codec)
	}
	of, err := gguf.ParseType(matrices)
	if err != nil {
		return "", err
	}
	weights, err := v.Checkpoint.Merged()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "model-"+matrices+".gguf")
	return path, convert.ToGGUF(path, v.Name, v.Checkpoint.Architecture, weights, bundle, of)
}

// readBundle reads the tokenizer and the template of a published model's codec. published
// reports whether the codec is that of a published model.
func readBundle(ctx context.Context, blobs checkpoint.Blobs, codec string) (b dialog.Bundle, published bool, err error) {
	digest, published := strings.CutPrefix(codec, dialog.TemplatePrefix)
	if !published {
		return b, false, nil
	}
	encoded, err := blobs.Get(ctx, digest)
	if err != nil {
		return b, true, fmt.Errorf("read codec: %w", err)
	}
	b, err = dialog.DecodeBundle(encoded)
	return b, true, err
}
