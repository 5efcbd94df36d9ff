package pageserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/export"
	"github.com/fulgurite/fulgurite/run/operator"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

// maxExported is the maximum size of a version's files that the page exports, in bytes.
const maxExported = 8 << 30

// exporter writes the files of versions. It exports one version at a time, because the
// whole model is in memory while its files are written.
type exporter struct {
	records  fleet.Records
	operator operator.Operator
	one      sync.Mutex
}

// Export implements actions.Exporter.
func (e *exporter) Export(ctx context.Context, a record.Action) (dir string, done func() error, out record.Action, err error) {
	if !e.one.TryLock() {
		return "", nil, a, errors.New("another version is being exported")
	}
	defer e.one.Unlock()
	write := func() error {
		if dir, err = os.MkdirTemp("", "fulgurite-export-"); err != nil {
			return err
		}
		if err = e.write(ctx, a, dir); err != nil {
			err, dir = errors.Join(err, os.RemoveAll(dir)), ""
		}
		return err
	}
	out, err = e.operator.Record(ctx, a, func(context.Context, record.Action) (record.ActionResult, error) {
		err := write()
		if errors.Is(err, export.ErrFormat) || errors.Is(err, trace.ErrNotFound) || errors.Is(err, operator.ErrRefused) {
			return record.ActionResult{}, operator.Refuse("%s", err)
		}
		return record.ActionResult{Message: fmt.Sprintf("version %d was given out as %s", *a.Input.Version, a.Input.Format)}, err
	})
	if err == nil && dir == "" { // it was sent twice, and is on record once
		err = write()
	}
	return dir, func() error { return os.RemoveAll(dir) }, out, err
}

func (e *exporter) write(ctx context.Context, a record.Action, dir string) error {
	id := model.VersionID{Run: a.Run, Policy: model.DefaultPolicy, Number: *a.Input.Version}
	if !slices.Contains([]string{export.HF, export.PEFT}, a.Input.Format) {
		return operator.Refuse("format: %q: want hf or peft; `%s` writes the other formats", a.Input.Format, shell.Command("export", id.String(), "FILE.gguf"))
	}
	if err := e.small(ctx, id); err != nil {
		return err
	}
	sp, err := e.records.Catalog.Spec(ctx, a.Run)
	if err != nil {
		return err
	}
	k, _, err := e.records.Catalog.Load(ctx, id)
	if err != nil {
		return err
	}
	if a.Input.Format == export.PEFT && k.Adapter == nil {
		return operator.Refuse("format: the model was trained as a whole, and has no adapter: take hf")
	}
	_, err = export.Version{Name: id.String(), Model: sp.Model, Checkpoint: k, Blobs: e.records.Blobs}.Write(ctx, dir, a.Input.Format, "")
	return err
}

// small returns an error if a version's files are too large for the page to export.
func (e *exporter) small(ctx context.Context, id model.VersionID) error {
	v, err := e.records.Store.Version(ctx, id)
	if err != nil || v.Manifest == "" {
		return err
	}
	text, err := e.records.Blobs.Get(ctx, v.Manifest)
	if err != nil {
		return err
	}
	m, err := model.ParseManifest(text)
	if err != nil {
		return err
	}
	sum := int64(0)
	for name, f := range m.Files {
		if name != model.OptimizerFile {
			sum += f.Size
		}
	}
	if m.Base != nil {
		sum += m.Base.Size
	}
	if sum > maxExported {
		return operator.Refuse("its files have %d bytes, more than a page sends: use `%s`", sum, shell.Command("export", id.String(), "DIRECTORY"))
	}
	return nil
}
