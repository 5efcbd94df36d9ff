package models

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/progress"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/modeldir"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/convert"
	"github.com/fulgurite/fulgurite/model/files/hub"
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
				return []hub.File{f}, wholeFile(name)
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
	case slices.ContainsFunc(c.Files, func(f hub.File) bool { return f.Path == model.AdapterConfigFile }) && !has(isWeights):
		return nil, fmt.Errorf("%s is an adapter, not a model: import its base, and give a directory with the adapter's files as model.lora.adapter", at)
	case !has(isWeights):
		return nil, fmt.Errorf("%s has no safetensors%s", at, otherWeights(c.Files))
	}
	for _, file := range needed {
		if !has(func(p string) bool { return p == file }) {
			return nil, fmt.Errorf("%s has no %s", at, file)
		}
	}
	return files, nil
}

var partOfFile = regexp.MustCompile(`-(\d{5})-of-(\d{5})\.gguf$`)

// wholeFile refuses a GGUF file that by its name is one of several parts.
func wholeFile(name hub.Name) error {
	if m := partOfFile.FindStringSubmatch(name.File); m != nil && m[2] != "00001" {
		return fmt.Errorf("%s: %s is part %s of %s of a model: take a file of the repository that is whole, or download all parts, join them with llama.cpp's llama-gguf-split --merge FIRST-PART OUTPUT, and import the result",
			name.Repository, name.File, strings.TrimLeft(m[1], "0"), strings.TrimLeft(m[2], "0"))
	}
	return nil
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

// otherWeights names weights in a format that is not read.
func otherWeights(files []hub.File) string {
	for _, f := range files {
		if modeldir.IsOtherWeights(f.Path) {
			return fmt.Sprintf("; it has %s: %s", f.Path, modeldir.SaveAsSafetensors)
		}
	}
	return ""
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
