package actions

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/record"
)

// exportTimeout bounds how long the files of a version are written, and how long they are
// sent.
const exportTimeout = 30 * time.Minute

// Exporter writes the files of versions.
type Exporter interface {
	// Export writes the files of the version that an action names into a new directory, which
	// done removes, and puts the action on record. One id is on record once.
	Export(ctx context.Context, a record.Action) (dir string, done func() error, out record.Action, err error)
}

// export sends the files of a version as a tar archive.
func (p *Pages) export(w http.ResponseWriter, r *http.Request) {
	r.SetPathValue("action", string(record.ActionExport))
	if !p.operates(w, r, p.Operator != nil) {
		return
	}
	if p.Exporter == nil {
		p.Fail(w, r, http.StatusForbidden, errors.New("this page sends no files: use `fulgurite export VERSION DIRECTORY`"))
		return
	}
	run, ok := p.posted(w, r)
	if !ok {
		return
	}
	person := access.Of(r.Context())
	sent := formBody{ID: r.PostForm.Get("id"), Version: r.PostForm.Get("version"), Format: r.PostForm.Get("format"), Why: strings.TrimSpace(r.PostForm.Get("reason"))}
	again := func(code int, problem string) {
		sent.Problem = problem
		p.ask(w, r, run, sent, code)
	}
	if err := p.Guard.CheckForm(person, r.PostForm.Get("token")); err != nil {
		again(http.StatusForbidden, err.Error()+". Send it again.")
		return
	}
	a, err := read(run, record.ActionExport, sent)
	if err != nil {
		again(http.StatusUnprocessableEntity, err.Error())
		return
	}
	a.By, a.Input.Format = person.Name, sent.Format
	ctx, cancel := context.WithTimeout(r.Context(), exportTimeout)
	defer cancel()
	dir, done, a, err := p.Exporter.Export(ctx, a)
	switch {
	case a.Outcome == record.ActionRefused:
		sent.ID = newID()
		again(http.StatusUnprocessableEntity, a.Result.Message)
		return
	case err != nil:
		again(http.StatusServiceUnavailable, fmt.Sprintf("Nothing was written: %v. Send it again.", err))
		return
	}
	defer func() { _ = done() }() // what stays is in the folder of temporary files
	name := fmt.Sprintf("%s-%d.tar", run.Name, *a.Input.Version)
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	archive := tar.NewWriter(w)
	if err := errors.Join(archive.AddFS(os.DirFS(dir)), archive.Close()); err != nil {
		panic(http.ErrAbortHandler) // an archive that was cut off must not look whole
	}
}
