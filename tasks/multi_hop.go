package tasks

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// metadataHops is the key in a task's metadata for the ids of the single questions of
// which MuSiQue composed its question.
const metadataHops = "single_hops"

// parseMultiHop reads a question that needs several paragraphs to answer, in the layout
// of MuSiQue (https://github.com/StonyBrookNLP/musique), of HotpotQA
// (https://hotpotqa.github.io) or of 2WikiMultihopQA
// (https://github.com/Alab-NII/2wikimultihop). A row has id (_id in the latter two),
// question, answer and, in MuSiQue, answer_aliases. The paragraphs are not part of the
// task: they are a corpus for a tool. A task's answer is the text or, if it has aliases,
// a JSON list of all of them. A question that MuSiQue marks as unanswerable is an error.
func parseMultiHop(fields row, _ int) (Task, error) {
	key := "id"
	if !fields.has(key) {
		key = "_id"
	}
	if !fields.has(key) {
		return Task{}, errors.New("no id")
	}
	name, err := id(fields[key])
	if err != nil {
		return Task{}, err
	}
	fault := func(err error) (Task, error) { return Task{}, fmt.Errorf("question %s: %w", name, err) }
	question, err := fields.text("question")
	if err != nil {
		return fault(err)
	}
	var answerable *bool
	if fields.has("answerable") && json.Unmarshal(fields["answerable"], &answerable) == nil && !*answerable {
		return fault(errors.New("it can't be answered: leave such rows out, as MuSiQue-Ans does"))
	}
	answers, err := answersOf(fields)
	if err != nil {
		return fault(err)
	}
	t := Task{ID: name, Input: question, Answer: joinAnswers(answers)}
	hops, err := singleHops(fields)
	if err != nil {
		return fault(err)
	}
	if len(hops) > 0 {
		t.Metadata = map[string]any{metadataHops: hops}
	}
	return t, nil
}

func answersOf(fields row) ([]string, error) {
	answer, err := fields.text("answer")
	if err != nil {
		return nil, err
	}
	answers := []string{answer}
	if fields.has("answer_aliases") {
		var aliases []string
		if json.Unmarshal(fields["answer_aliases"], &aliases) != nil {
			return nil, errors.New("answer_aliases is not a list of texts")
		}
		answers = append(answers, aliases...)
	}
	return answers, nil
}

// joinAnswers returns the answer of a task that has several. splitAnswers is its inverse.
func joinAnswers(answers []string) string {
	if len(answers) == 1 && !strings.HasPrefix(strings.TrimSpace(answers[0]), "[") {
		return answers[0]
	}
	text, err := json.Marshal(answers)
	if err != nil {
		panic(err) // strings always encode
	}
	return string(text)
}

// splitAnswers returns the answers that a task accepts: those of a JSON list of texts, or
// the one text. A list of anything else, or of nothing, is one text, too.
func splitAnswers(answer string) []string {
	var texts []*string
	if !strings.HasPrefix(strings.TrimSpace(answer), "[") || json.Unmarshal([]byte(answer), &texts) != nil || len(texts) == 0 || slices.Contains(texts, nil) {
		return []string{answer}
	}
	answers := make([]string, len(texts))
	for i, text := range texts {
		answers[i] = *text
	}
	return answers
}

// numericAnswers works like splitAnswers for lists of numbers and texts.
func numericAnswers(answer string) []string {
	var list []json.RawMessage
	if !strings.HasPrefix(strings.TrimSpace(answer), "[") || json.Unmarshal([]byte(answer), &list) != nil || len(list) == 0 {
		return []string{answer}
	}
	answers := make([]string, len(list))
	for i, one := range list {
		answers[i] = textOf(one)
	}
	return answers
}

// emptyList reports whether an answer is a JSON list of nothing.
func emptyList(answer string) bool {
	var list []json.RawMessage
	return json.Unmarshal([]byte(answer), &list) == nil && list != nil && len(list) == 0
}

// singleHops returns the ids of question_decomposition in the form that JSON decodes to,
// as in snapshots: a list of any values.
func singleHops(fields row) ([]any, error) {
	if !fields.has("question_decomposition") {
		return nil, nil
	}
	var parts []struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(fields["question_decomposition"], &parts) != nil {
		return nil, errors.New("question_decomposition is not a list of questions")
	}
	var hops []any
	for _, part := range parts {
		if len(part.ID) > 0 {
			hops = append(hops, textOf(part.ID))
		}
	}
	return hops, nil
}

// Paragraph is a piece of a corpus.
type Paragraph struct {
	Title string `json:"title"` // may be empty
	Text  string `json:"text"`
}

// ReadParagraphs reads the paragraphs of a file. The file has the questions of MuSiQue
// (with paragraphs), HotpotQA or 2WikiMultihopQA (with context), or is any corpus with
// one paragraph per row (title, text). If there are no paragraphs, the error wraps
// ErrEmpty; other errors are those of Open.
func ReadParagraphs(path string) ([]Paragraph, error) {
	rows, err := readRows(path, "paragraphs", func(fields row, _ place) ([]Paragraph, error) { return paragraphsOf(fields) })
	if err != nil {
		return nil, err
	}
	out := slices.Concat(rows...)
	if len(out) == 0 {
		return nil, fmt.Errorf("read %s: no paragraphs: %w", path, ErrEmpty)
	}
	return out, nil
}

func paragraphsOf(fields row) ([]Paragraph, error) {
	switch {
	case fields.has("paragraphs"):
		return ofMuSiQue(fields["paragraphs"])
	case fields.has("context"):
		return ofHotpotQA(fields["context"])
	case fields.has("text"):
		text, err := fields.text("text")
		p := Paragraph{Text: text}
		if fields.has("title") {
			p.Title = textOf(fields["title"])
		}
		return []Paragraph{p}, err
	}
	return nil, errors.New("neither paragraphs (MuSiQue) nor context (HotpotQA, 2WikiMultihopQA) nor text")
}

func ofMuSiQue(raw json.RawMessage) ([]Paragraph, error) {
	var list []struct {
		Title string `json:"title"`
		Text  string `json:"paragraph_text"`
	}
	if json.Unmarshal(raw, &list) != nil {
		return nil, errors.New("paragraphs is not a list of {title, paragraph_text}")
	}
	out := make([]Paragraph, len(list))
	for i, p := range list {
		if strings.TrimSpace(p.Text) == "" {
			return nil, fmt.Errorf("paragraphs[%d]: no paragraph_text", i)
		}
		out[i] = Paragraph(p)
	}
	return out, nil
}

// ofHotpotQA reads a list of [title, [sentences]], as the data sets' own files have it. The
// copies on Hugging Face have {"title": [titles], "sentences": [[sentences]]} instead, or
// the list as JSON in a text.
func ofHotpotQA(raw json.RawMessage) ([]Paragraph, error) {
	var packed string
	if json.Unmarshal(raw, &packed) == nil {
		raw = json.RawMessage(packed)
	}
	var columns struct {
		Title     []string   `json:"title"`
		Sentences [][]string `json:"sentences"`
		Content   [][]string `json:"content"`
	}
	if json.Unmarshal(raw, &columns) == nil {
		return ofColumns(columns.Title, append(columns.Sentences, columns.Content...))
	}
	var list [][2]json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, errors.New(`context is neither a list of [title, sentences] nor {"title": […], "sentences": [[…]]}`)
	}
	var out []Paragraph
	for i, pair := range list {
		var title string
		var sentences []string
		if json.Unmarshal(pair[0], &title) != nil || json.Unmarshal(pair[1], &sentences) != nil {
			return nil, fmt.Errorf("context[%d] is not [title, sentences]", i)
		}
		if text := strings.TrimSpace(strings.Join(sentences, "")); text != "" {
			out = append(out, Paragraph{Title: title, Text: text})
		}
	}
	return out, nil
}

// ofColumns returns the paragraphs of a list of titles and a list of their sentences.
func ofColumns(titles []string, sentences [][]string) ([]Paragraph, error) {
	if len(titles) != len(sentences) {
		return nil, fmt.Errorf("context has %d titles and %d lists of sentences", len(titles), len(sentences))
	}
	var out []Paragraph
	for i, title := range titles {
		if text := strings.TrimSpace(strings.Join(sentences[i], "")); text != "" {
			out = append(out, Paragraph{Title: title, Text: text})
		}
	}
	return out, nil
}

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
