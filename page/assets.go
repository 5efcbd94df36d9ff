package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/page/listing"
)

//go:embed assets/* templates/*.html
var embedded embed.FS

// assets are the files that pages load, under the digest of their content, so that a
// browser keeps them until they change.
type assets map[string]asset // by name

type asset struct {
	digest, kind string
	content      []byte
}

func readAssets() (assets, error) {
	out := assets{}
	entries, err := fs.ReadDir(embedded, "assets")
	if err != nil {
		return nil, fmt.Errorf("read the assets of the page: %w", err)
	}
	for _, e := range entries {
		content, err := fs.ReadFile(embedded, path.Join("assets", e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read asset %s of the page: %w", e.Name(), err)
		}
		sum := sha256.Sum256(content)
		out[e.Name()] = asset{hex.EncodeToString(sum[:8]), mime.TypeByExtension(path.Ext(e.Name())), content}
	}
	return out, nil
}

// path returns the path of an asset.
func (a assets) path(name string) string { return "/assets/" + a[name].digest + "/" + name }

func (a assets) serve(w http.ResponseWriter, r *http.Request) {
	one, ok := a[r.PathValue("name")]
	if !ok || one.digest != r.PathValue("digest") {
		http.Error(w, "there is no such file: load the page again", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", one.kind)
	w.Header().Set("Cache-Control", "max-age=31536000, immutable")
	_, _ = w.Write(one.content) // it is no error if the reader has left
}

// readTemplates makes the template of each page, by its name.
func readTemplates(a assets, place shell.Place) (map[string]*template.Template, error) {
	base, err := template.New("layout").Funcs(functions(place)).Funcs(template.FuncMap{"asset": a.path}).ParseFS(embedded, "templates/layout.html", "templates/parts.html")
	if err == nil {
		base, err = base.Parse(listing.Template)
	}
	if err != nil {
		return nil, fmt.Errorf("read the templates of the page: %w", err)
	}
	out := map[string]*template.Template{}
	files, err := fs.Glob(embedded, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("list the templates of the page: %w", err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(path.Base(f), ".html")
		if name == "layout" || name == "parts" {
			continue
		}
		t, err := base.Clone()
		if err == nil {
			t, err = t.ParseFS(embedded, f)
		}
		if err != nil {
			return nil, fmt.Errorf("read template %s of the page: %w", name, err)
		}
		out[name] = t
	}
	return out, nil
}
