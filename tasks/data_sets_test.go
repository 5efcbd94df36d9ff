package tasks_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/tasks"
)

// write makes the files of a data set and returns its folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range files {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return folder
}

func TestDataSetsAreReadInTheirOwnLayouts(t *testing.T) {
	t.Parallel()
	folder := write(t, map[string]string{
		"spider.json": `[
{"db_id": "pets", "question": "How many pets?", "query": "SELECT count(*) FROM pets", "sql": {"select": []}, "query_toks": ["SELECT"]},
{"db_id": "zoo", "question": "Which animals?", "query": "SELECT name FROM animals"}]`,
		"bird.jsonl":                        `{"question_id": 7, "db_id": "zoo", "question": "Who?", "SQL": "SELECT 1", "evidence": "who is 1"}` + "\n\n",
		"database/pets/pets.sqlite":         "",
		"dev_databases/zoo/zoo.sqlite":      "",
		"dev_databases/zoo/description.csv": "",
		"gsm8k.jsonl": `{"question": "6*7?", "answer": "6*7=<<6*7=42>>42\n#### 42"}
{"question": "999+81?", "answer": "#### 1,080"}`,
		"musique.jsonl": `{"id": "2hop__12_34", "question": "Who founded it?", "answer": "G. S. Hall", "answer_aliases": ["Hall"], "answerable": true, "paragraphs": [], "question_decomposition": [{"id": 12}, {"id": "34"}]}`,
		"hotpot.json":   "\ufeff" + ` [{"_id": "5a8b", "question": "Same place?", "answer": "yes", "context": [["A", ["a."]]], "supporting_facts": []}]`,
		"2wiki.json":    `[{"_id": "c8c1", "question": "Who is older?", "answer": "[sic]", "evidences": []}]`,
		"empty.json":    `[]`,
	})
	database := func(where, name string) map[string]any {
		return map[string]any{"db_id": name, "database": filepath.Join(folder, where, name, name+".sqlite")}
	}
	bird := database("dev_databases", "zoo")
	bird["evidence"], bird["sql_metric"] = "who is 1", "bird"
	for source, want := range map[string][]tasks.Task{
		"spider:" + folder + "/spider.json": {
			{ID: "0", Input: "How many pets?", Answer: "SELECT count(*) FROM pets", Metadata: database("database", "pets")},
			{ID: "1", Input: "Which animals?", Answer: "SELECT name FROM animals", Metadata: database("dev_databases", "zoo")},
		},
		"spider:" + folder + "/bird.jsonl":          {{ID: "0", Input: "Who?", Answer: "SELECT 1", Metadata: bird}},
		"gsm8k:" + folder + "/gsm8k.jsonl":          {{ID: "0", Input: "6*7?", Answer: "42"}, {ID: "1", Input: "999+81?", Answer: "1080"}},
		"musique:" + folder + "/musique.jsonl":      {{ID: "2hop__12_34", Input: "Who founded it?", Answer: `["G. S. Hall","Hall"]`, Metadata: map[string]any{"single_hops": []any{"12", "34"}}}},
		"hotpotqa:" + folder + "/hotpot.json":       {{ID: "5a8b", Input: "Same place?", Answer: "yes"}},
		"2wikimultihopqa:" + folder + "/2wiki.json": {{ID: "c8c1", Input: "Who is older?", Answer: `["[sic]"]`}},
	} {
		list, err := tasks.Open(source)
		require.NoError(t, err, source)
		require.Equal(t, want, list, source)
		data, err := tasks.Encode(list)
		require.NoError(t, err)
		again, err := tasks.Decode(data)
		require.NoError(t, err)
		require.Equal(t, list, again, "a snapshot of %s", source)
	}
	_, err := tasks.Open("hotpotqa:" + folder + "/empty.json")
	require.ErrorIs(t, err, tasks.ErrEmpty)
}

func TestBadRowsOfDataSetsAreNamed(t *testing.T) {
	t.Parallel()
	const pets = `"db_id": "pets", "question": "q", "query": "SELECT 1"`
	for name, c := range map[string]struct{ family, text, want string }{
		"no database":             {"spider", `[{` + pets + `}, {"db_id": "none", "question": "q", "query": "SELECT 1"}]`, `data:row 1: no database "none": want `},
		"a path as database":      {"spider", `[{"db_id": "../pets", "question": "q", "query": "SELECT 1"}]`, `row 0: db_id "../pets" can't be`},
		"no query":                {"spider", `[{"db_id": "pets", "question": "q"}]`, "row 0: no query"},
		"a query that is none":    {"spider", `[{"db_id": "pets", "question": "q", "query": 3}]`, "row 0: query is not a text"},
		"no question":             {"spider", `[{"db_id": "pets", "question": " ", "query": "SELECT 1"}]`, "row 0: empty question"},
		"no object":               {"spider", `[3]`, "row 0: a JSON number where an object is expected"},
		"the middle of a row":     {"spider", `[{` + pets + `}, {"db_id"`, "row 1: no JSON"},
		"the middle of a file":    {"spider", `[{` + pets + `}`, "row 1: no JSON"},
		"another bracket":         {"spider", `[{` + pets + `}}`, "the array does not end after row 0"},
		"more than the array":     {"spider", `[{` + pets + `}] []`, "something follows the array"},
		"no mark":                 {"gsm8k", `{"question": "q", "answer": "42"}`, `data:1: the answer has no "#### <number>"`},
		"no number":               {"gsm8k", `{"question": "q", "answer": "#### many"}`, `data:1: the answer ends in "many"`},
		"no answer":               {"musique", `{"id": "a", "question": "q"}`, "data:1: question a: no answer"},
		"unanswerable":            {"musique", `{"id": "a", "question": "q", "answer": "x", "answerable": false}`, "question a: it can't be answered"},
		"a duplicate":             {"musique", `{"id": "a", "question": "q", "answer": "x"}` + "\n" + `{"id": "a", "question": "r", "answer": "x"}`, `data:2: id "a" is in line 1 already`},
		"a duplicate in between":  {"hotpotqa", "\n\n" + `{"_id": "a", "question": "q", "answer": "x"}` + "\n\n" + `{"_id": "a", "question": "r", "answer": "x"}`, `data:5: id "a" is in line 3 already`},
		"a duplicate in an array": {"hotpotqa", `[{"_id": "a", "question": "q", "answer": "x"}, {"_id": "a", "question": "r", "answer": "x"}]`, `data:row 1: id "a" is in row 0 already`},
		"equal faults":            {"spider", strings.Repeat(`{"question": "q"}`+"\n", 30), "data:1: no query (also lines 2, 3, 4 and 26 more)"},
		"another family":          {"spider", strings.Repeat(`{"question": "q", "answer": "#### 1"}`+"\n", 2), "data:1: no query (also line 2)\n"},
		"no id":                   {"hotpotqa", `[{"question": "q", "answer": "x"}]`, "row 0: no id"},
		"aliases that are none":   {"musique", `{"id": "a", "question": "q", "answer": "x", "answer_aliases": "y"}`, "answer_aliases is not a list of texts"},
		"hops that are none":      {"musique", `{"id": "a", "question": "q", "answer": "x", "question_decomposition": 2}`, "question_decomposition is not a list"},
		"no UTF-8":                {"hotpotqa", "[{\"_id\": \"a\", \"question\": \"\xff\", \"answer\": \"x\"}]", "row 0: no valid UTF-8"},
	} {
		folder := write(t, map[string]string{"data": c.text, "database/pets/pets.sqlite": ""})
		_, err := tasks.Open(c.family + ":" + filepath.Join(folder, "data"))
		require.ErrorContains(t, err, c.want, name)
		require.ErrorContains(t, err, filepath.Join(folder, "data"), name)
	}
	folder := write(t, map[string]string{"gsm8k": `{"question": "q", "answer": "#### 1"}`, "spider.json": "[\n{" + pets + "}]", "numbers": "[3]", "empty.json": "[]", "note.txt": ""})
	for source, want := range map[string]string{
		"spider:" + folder + "/gsm8k":       "/gsm8k looks like a file of gsm8k: did you mean gsm8k:" + folder + "/gsm8k?",
		folder + "/gsm8k":                   "did you mean gsm8k:" + folder + "/gsm8k?",
		folder + "/spider.json":             "/spider.json: it is one JSON array; a file without a family before its name has a JSON object on each line\n" + folder + "/spider.json looks like a file of spider: did you mean spider:",
		folder + "/numbers":                 "it is one JSON array; a file without a family before its name has a JSON object on each line; those of data sets are named with their family, as in spider:FILE",
		"spyder:" + folder + "/x":           `no source is called "spyder": did you mean spider:? There are spider, gsm8k, musique, hotpotqa, 2wikimultihopqa, harbor, command, arithmetic`,
		folder + "/spyder:x":                `no source is called "spyder"`,
		"spider:" + folder:                  "open tasks: " + folder + " is a directory: name a file in it, such as spider:" + folder + "/empty.json or spider:" + folder + "/spider.json",
		folder:                              "is a directory: name a file in it, or harbor:" + folder,
		"musique:" + folder + "/empty.json": "read " + folder + "/empty.json: no tasks: it holds none",
	} {
		_, err := tasks.Open(source)
		require.ErrorContains(t, err, want, source)
	}
	_, err := tasks.Open(folder + "/none:")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = tasks.Open("spider:")
	require.ErrorContains(t, err, `"spider:" names no file`)
	_, err = tasks.OpenDemonstrations("gsm8k:train.jsonl", 1, 1)
	require.ErrorContains(t, err, "has tasks, not dialogs")
}

func TestFilesOfOtherFormatsAreNamed(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	utf16 := func(order string, text string) string {
		out := order
		for _, c := range text {
			if order == "\xfe\xff" {
				out += "\x00" + string(c)
				continue
			}
			out += string(c) + "\x00"
		}
		return out
	}
	const object = `{"id": "a", "input": "i"}`
	for name, c := range map[string]struct{ text, want string }{
		"a.parquet":   {"PAR1\x15\x04", "it is a Parquet file: convert it to one JSON object on each line"},
		"a.jsonl":     {"PAR1\x15\x04", "it is a Parquet file"},
		"a.jsonl.gz":  {"\x1f\x8b\x08\x00", "it is compressed by gzip: unpack it first"},
		"a.zst":       {"\x28\xb5\x2f\xfd", "it is compressed by zstd"},
		"a.zip":       {"PK\x03\x04", "it is a ZIP archive"},
		"16.jsonl":    {utf16("\xff\xfe", object), "it is in UTF-16: save it in UTF-8"},
		"16be.jsonl":  {utf16("\xfe\xff", object), "it is in UTF-16"},
		"16bare.json": {utf16("", object), "it is in UTF-16"},
		"a.csv":       {"id,input,answer\n1,Q,A\n", "it is CSV: convert it"},
		"table.jsonl": {"\ufeffid,input,answer\n1,Q,A\n", "it is CSV"},
		"a.tsv":       {"id\tinput\n1\tQ\n", "it is a table with tabs"},
		"page.jsonl":  {"<!DOCTYPE html><title>Sign in</title>", "it is a page of HTML or XML: look whether the download got an error"},
		"lfs.jsonl":   {"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n", "it is a pointer of Git LFS"},
		"a.arrow":     {"ARROW1\x00\x00", "it is an Arrow file"},
	} {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, []byte(c.text), 0o600))
		for _, source := range []string{path, "gsm8k:" + path, "spider:" + path, "hotpotqa:" + path} {
			_, err := tasks.Open(source)
			require.ErrorContains(t, err, c.want, source)
			require.ErrorContains(t, err, path)
		}
		_, err := tasks.ReadParagraphs(path)
		require.ErrorContains(t, err, c.want, name)
		_, err = tasks.OpenDemonstrations(path, 1, 1)
		require.ErrorContains(t, err, c.want, name)
		_, err = tasks.ReadResults(strings.NewReader(c.text), path, nil)
		require.ErrorContains(t, err, "read "+path+": ", name)
		require.ErrorContains(t, err, c.want, name)
	}
}

// The copies of these data sets on Hugging Face have their columns beside each other.
func TestACorpusIsReadAsHuggingFaceHasIt(t *testing.T) {
	t.Parallel()
	want := []tasks.Paragraph{{Title: "Hall", Text: "One. Two."}, {Title: "Gate", Text: "Three."}}
	for name, context := range map[string]string{
		"own layout":      `[["Hall", ["One.", " Two."]], ["Gate", ["Three."]]]`,
		"columns":         `{"title": ["Hall", "Gate"], "sentences": [["One.", " Two."], ["Three."]]}`,
		"other columns":   `{"title": ["Hall", "Gate"], "content": [["One.", " Two."], ["Three."]]}`,
		"a text of JSON":  `"[[\"Hall\", [\"One.\", \" Two.\"]], [\"Gate\", [\"Three.\"]]]"`,
		"columns as text": `"{\"title\": [\"Hall\", \"Gate\"], \"sentences\": [[\"One.\", \" Two.\"], [\"Three.\"]]}"`,
	} {
		path := filepath.Join(t.TempDir(), "questions.jsonl")
		row := `{"id": "5a8b", "question": "Who?", "answer": "Hall", "type": "bridge", "supporting_facts": {"title": ["Hall"], "sent_id": [0]}, "context": ` + context + `}`
		require.NoError(t, os.WriteFile(path, []byte(row), 0o600))
		got, err := tasks.ReadParagraphs(path)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
		list, err := tasks.Open("hotpotqa:" + path)
		require.NoError(t, err)
		require.Equal(t, []tasks.Task{{ID: "5a8b", Input: "Who?", Answer: "Hall"}}, list)
		_, err = tasks.Open(path)
		require.ErrorContains(t, err, "did you mean hotpotqa:")
	}
	path := filepath.Join(t.TempDir(), "odd.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(`{"context": {"title": ["Hall"], "sentences": []}}`), 0o600))
	_, err := tasks.ReadParagraphs(path)
	require.ErrorContains(t, err, "context has 1 titles and 0 lists of sentences")
}
