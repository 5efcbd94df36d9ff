package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"time"
)

// origin is the source of a binary.
type origin struct {
	version string
	time    time.Time // time of the commit
}

// originOf reads the origin of a binary. It returns an error if the binary can't be built
// again from it.
func originOf(binary string) (origin, error) {
	facts, err := buildinfo.ReadFile(binary)
	if err != nil {
		return origin{}, fmt.Errorf("read build of %s: %w", binary, err)
	}
	o := origin{version: facts.Main.Version}
	for _, s := range facts.Settings {
		switch {
		case s.Key == "vcs.modified" && s.Value == "true":
			return origin{}, fmt.Errorf("version %s: files differ from the commit: commit or remove them (git status)", o.version)
		case s.Key == "vcs.time":
			if o.time, err = time.Parse(time.RFC3339, s.Value); err != nil {
				return origin{}, fmt.Errorf("time of the commit: %w", err)
			}
		}
	}
	if o.time.IsZero() {
		return origin{}, fmt.Errorf("%s tells no commit: build in a clone of the repository, with git", binary)
	}
	return o, nil
}

// archive packs files into a folder called name, in the order given, as a tar that
// depends on nothing but their contents, the name and the time. Files that may be
// executed stay so.
func archive(name string, files []string, changed time.Time) ([]byte, error) {
	var packed bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(compressed)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		facts, err := os.Stat(file)
		if err != nil {
			return nil, err
		}
		mode := int64(0o644)
		if facts.Mode()&0o111 != 0 {
			mode = 0o755
		}
		header := &tar.Header{Name: path.Join(name, filepath.Base(file)), Mode: mode, Size: int64(len(content)), ModTime: changed, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// add writes a file of the release and notes its digest.
func (r *release) add(name string, content []byte) error {
	r.sums = append(r.sums, fmt.Sprintf("%x  %s\n", sha256.Sum256(content), name))
	return os.WriteFile(filepath.Join(r.out, name), content, 0o644)
}

// bill adds the bill of materials of a binary. The tool writes the time and its own
// digests, which differ from run to run.
func (r *release) bill(ctx context.Context, tool, binary, name string, o origin, system []string) error {
	temporary := binary + ".json"
	defer os.Remove(temporary)
	if err := command(ctx, system, tool, "bin", "-json", "-noserial", "-std", "-version", o.version, "-output", temporary, binary); err != nil {
		return err
	}
	text, err := os.ReadFile(temporary)
	if err != nil {
		return err
	}
	var bill map[string]any
	if err := json.Unmarshal(text, &bill); err != nil {
		return fmt.Errorf("bill of materials of %s: %w", binary, err)
	}
	metadata, ok := bill["metadata"].(map[string]any)
	if !ok {
		return fmt.Errorf("bill of materials of %s: no metadata", binary)
	}
	metadata["timestamp"] = o.time.UTC().Format(time.RFC3339)
	delete(metadata, "tools")
	if text, err = json.MarshalIndent(bill, "", "  "); err != nil {
		return err
	}
	return r.add(name, append(text, '\n'))
}
