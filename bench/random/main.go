// Command random writes a Hugging Face directory with random weights in the shape of a
// published model. It serves measurements that only depend on sizes.
//
//	go run ./bench/random -shape qwen2.5-0.5b -tokenizer DIR OUT
//
// The tokenizer and the chat template are copied from DIR. Its vocabulary must not be
// larger than that of the shape.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fulgurite/fulgurite/bench/shapes"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "random:", err)
		os.Exit(1)
	}
}

func run() error {
	shape := flag.String("shape", "", "name of the shape")
	tokenizer := flag.String("tokenizer", "", "directory of a model, whose tokenizer and chat template are taken")
	flag.Parse()
	a, ok := shapes.Of(*shape)
	if !ok || *tokenizer == "" || flag.NArg() != 1 {
		return fmt.Errorf("want -shape, of which there are %v, -tokenizer and a directory to write", shapes.Names())
	}
	out := flag.Arg(0)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"} {
		text, err := os.ReadFile(filepath.Join(*tokenizer, name))
		if errors.Is(err, fs.ErrNotExist) && name != "tokenizer.json" {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(out, name), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	config, err := hf.WriteConfig(a)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, model.ConfigFile), config, 0o644); err != nil {
		return err
	}
	return writeWeights(filepath.Join(out, model.WeightsFile), a)
}

func writeWeights(path string, a model.Architecture) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var layouts []hf.Layout
	for _, t := range a.Tensors() {
		layouts = append(layouts, hf.Layout{Name: t.Name, DType: hf.F32, Shape: t.Shape})
	}
	draw := shapes.Random(a)
	return hf.WriteTensors(f, layouts, map[string]string{"format": "pt"}, func(l hf.Layout, w io.Writer) error {
		t, err := draw(l.Name)
		if err != nil {
			return err
		}
		b, err := hf.F32.AppendFloats(make([]byte, 0, 4*len(t.Data)), t.Data)
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	})
}
