package tasks

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// contextKeys returns the keys of metadata that hold what a question is about, so that
// the same words ask something else. Other metadata, such as a topic or a difficulty,
// describes a question and makes no other one of it.
func contextKeys() []string {
	return []string{
		"context", "contexts", "passage", "passages", "paragraph", "paragraphs", "document", "documents", "article", "story", "text", "premise",
		"claim", "table", "tables", "schema", "image", "images", "file", "files", "code", "repo", "base_commit", metadataEnvironment,
	}
}

// describing reports whether a key of metadata describes a question beside its other
// metadata: where the task was found, or what a data set says of it.
func describing(key string) bool {
	return slices.Contains([]string{"db_id", MetadataDatabase, MetadataHarbor, metadataDigest, metadataHops, "evidence"}, key) || slices.Contains(contextKeys(), key)
}

// asks returns keys of a task's question. Two tasks ask the same question if they have a
// key in common. They then have the same input and are about the same database and the
// same context. Besides, either all their metadata agrees or their answers do: an answer
// to the one reveals nothing about the other if it is another answer to words that other
// metadata completes. Case and blanks count only where answers differ.
func (t Task) asks() []string {
	about, words := t.about(), canonical(t.Input)
	loose := folded(words)
	rest := map[string]any{}
	for key, value := range t.Metadata {
		if !describing(key) {
			rest[key] = value
		}
	}
	described := encoded(rest)
	keys := []string{join("input", about, strings.TrimSpace(words), described)}
	if t.Answer == "" {
		return append(keys, join("without answer", about, loose, described))
	}
	return append(keys, join("answer", about, loose, strings.TrimSpace(canonical(t.Answer))))
}

// about returns the database and the context of a task's question.
func (t Task) about() string {
	context := map[string]any{}
	for _, key := range contextKeys() {
		if value, ok := t.Metadata[key]; ok {
			context[key] = value
		}
	}
	return t.databaseKey() + "\x00" + encoded(context)
}

// databaseKey returns the name of the task's database. It is the path if the database has
// no name.
func (t Task) databaseKey() string {
	if name := t.databaseName(); name != "" {
		return name
	}
	path, _ := t.Metadata[MetadataDatabase].(string)
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	if filepath.Base(filepath.Dir(path)) == name { // the layout of Spider and BIRD
		return name
	}
	return path
}

func (t Task) databaseName() string {
	name, _ := t.Metadata["db_id"].(string)
	return name
}

// Difference returns the first part in which two tasks differ, such as "input" or
// "metadata.context", and "" if they are the same task. Where a database or a directory
// lies does not count: the same data may lie at two paths. Databases are the same if they
// have the same name and, where both can be seen, files of the same size; directories in
// Harbor's format if their digests agree.
func Difference(a, b Task) string {
	switch {
	case a.ID != b.ID:
		return "id"
	case a.Input != b.Input:
		return "input"
	case a.Answer != b.Answer:
		return "answer"
	}
	keys := slices.Collect(maps.Keys(a.Metadata))
	keys = slices.AppendSeq(keys, maps.Keys(b.Metadata))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		x, y := a.Metadata[key], b.Metadata[key]
		switch {
		case encoded(x) == encoded(y):
		case key == MetadataDatabase && sameDatabase(a, b):
		case key == MetadataHarbor && a.Metadata[metadataDigest] != nil: // the digests are compared, too
		default:
			return "metadata." + key
		}
	}
	return ""
}

// sameDatabase reports whether two tasks are about one database, as far as names and sizes
// show that.
func sameDatabase(a, b Task) bool {
	x, errX := a.Database()
	y, errY := b.Database()
	if errX != nil || errY != nil || filepath.Base(x) != filepath.Base(y) {
		return false
	}
	one, errX := os.Stat(x)
	other, errY := os.Stat(y)
	return errX != nil || errY != nil || one.Size() == other.Size()
}

func (t Task) hops() []string {
	list, _ := t.Metadata[metadataHops].([]any)
	var out []string
	for _, hop := range list {
		if text, ok := hop.(string); ok && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// questions returns keys of all that a task asks: of its own question, and of the single
// questions that it is composed of.
func (t Task) questions() []string {
	out := t.asks()
	for _, hop := range t.hops() {
		out = append(out, join("hop", hop))
	}
	return out
}

// join returns a short key of several texts, which may be long.
func join(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return string(sum[:])
}

// canonical returns a text of JSON, such as a list of messages, with its keys in order.
// Any other text stays as it is.
func canonical(text string) string {
	if trimmed := strings.TrimSpace(text); !strings.HasPrefix(trimmed, "{") && !strings.HasPrefix(trimmed, "[") {
		return text
	}
	var value any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if d.Decode(&value) != nil || d.More() {
		return text
	}
	return encoded(value)
}

// encoded returns a value as JSON with its keys in order.
func encoded(value any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(value) != nil {
		return ""
	}
	return strings.TrimSpace(b.String())
}

// folded returns a text without differences of case and blanks.
func folded(text string) string { return strings.ToLower(strings.Join(strings.Fields(text), " ")) }
