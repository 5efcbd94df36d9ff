package models

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/progress"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/convert"
	"github.com/fulgurite/fulgurite/model/hub"
)

// download fetches the files of a model on the hub into folder, and returns the path to
// import: the folder of the commit, or a GGUF file in it. Incomplete files stay there,
// and the next download continues them.
func download(ctx context.Context, t *terminal.Terminal, text, folder string) (string, error) {
	name, err := hub.ParseName(text)
	if err != nil {
		return "", terminal.Usage(err)
	}
	h := hub.FromEnvironment()
	c, err := h.Commit(ctx, name)
	if err != nil {
		return "", err
	}
	files, err := choose(c, name)
	if err != nil {
		return "", err
	}
	// Files of two commits never meet.
	folder = filepath.Join(folder, c.Hash)
	total, before := int64(0), int64(0)
	for _, f := range files {
		total += f.Size
	}
	if free, err := state.FreeSpace(folder); err == nil && free < total {
		return "", fmt.Errorf("%s@%s has %d MB, and %d MB are free for %s", c.Repository, name.Revision, total/1e6, free/1e6, folder)
	}
	t.Printf("%s@%s: %d files, %d MB\n", c.Repository, c.Hash, len(files), total/1e6)
	bar := progress.NewTransfer(t.Err, t.TTY, "download")
	defer bar.Close()
	for _, f := range files {
		if err := h.Download(ctx, c, f, folder, func(done int64) { bar.Set(before+done, total) }); err != nil {
			return "", err
		}
		before += f.Size
	}
	if name.File != "" {
		return filepath.Join(folder, filepath.FromSlash(name.File)), nil
	}
	return folder, nil
}

// choose picks the files that a model needs.
func choose(c hub.Commit, name hub.Name) ([]hub.File, error) {
	var files, ggufs []hub.File
	needed, optional := convert.Files()
	for _, f := range c.Files {
		switch {
		case name.File != "":
			if f.Path == name.File {
				return []hub.File{f}, nil
			}
		case slices.Contains(needed, f.Path), slices.Contains(optional, f.Path), isWeights(f.Path):
			files = append(files, f)
		}
		if path.Ext(f.Path) == ".gguf" {
			ggufs = append(ggufs, f)
		}
	}
	has := func(what func(string) bool) bool {
		return slices.ContainsFunc(files, func(f hub.File) bool { return what(f.Path) })
	}
	at := c.Repository + "@" + name.Revision
	switch {
	case name.File != "":
		return nil, fmt.Errorf("%s has no file %s; it has these of its kind: %s", at, name.File, paths(ggufs))
	case !has(isWeights) && len(ggufs) > 0:
		return nil, fmt.Errorf("%s has no safetensors; name one of its GGUF files, as hf:%s:%s; it has %s", at, c.Repository, ggufs[0].Path, paths(ggufs))
	case !has(isWeights):
		return nil, fmt.Errorf("%s has no safetensors", at)
	}
	for _, file := range needed {
		if !has(func(p string) bool { return p == file }) {
			return nil, fmt.Errorf("%s has no %s", at, file)
		}
	}
	return files, nil
}

// isWeights reports whether a file is in the repository's root and holds weights or their
// index. Some repositories have the same weights a second time, under other names.
func isWeights(file string) bool {
	if path.Dir(file) != "." {
		return false
	}
	return file == model.WeightsFile || file == model.WeightsFile+".index.json" ||
		strings.HasPrefix(file, "model-") && strings.HasSuffix(file, ".safetensors")
}

func paths(files []hub.File) string {
	var list []string
	for _, f := range files {
		list = append(list, f.Path)
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
