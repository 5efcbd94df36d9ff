package retrieval_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/tasks/retrieval"
)

// corpus returns the paragraphs of files in three layouts, one of them twice.
func corpus(t *testing.T) []tasks.Paragraph {
	t.Helper()
	var all []tasks.Paragraph
	for name, text := range map[string]string{
		"musique.jsonl": `{"id": "a", "paragraphs": [{"idx": 0, "title": "Stanley Hall", "paragraph_text": "The first president of the association was G. Stanley Hall.", "is_supporting": true}, {"title": "Paris", "paragraph_text": "A city on the Seine."}]}`,
		"hotpot.json":   `[{"_id": "b", "context": [["Paris", ["A city", " on the Seine."]], ["Berlin", ["A city on the Spree.", " Its presidents live there."]]]}]`,
		"plain.jsonl":   `{"title": "Bonn", "text": "AND is a word of this city."}` + "\n" + `{"text": "Kein Titel, aber Straße."}`,
	} {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		list, err := tasks.ReadParagraphs(path)
		require.NoError(t, err)
		all = append(all, list...)
	}
	return all
}

func serve(t *testing.T) string {
	t.Helper()
	index, err := retrieval.NewIndex(t.Context(), corpus(t))
	require.NoError(t, err)
	require.Equal(t, 5, index.Count(), "Paris stands in two files")
	s := httptest.NewServer(retrieval.NewServer(index, "test", zap.NewNop()))
	t.Cleanup(func() {
		s.Close()
		require.NoError(t, index.Close())
	})
	return s.URL
}

type answer struct {
	Paragraphs []retrieval.Found `json:"paragraphs"`
	Error      string            `json:"error"`
}

func titles(a answer) []string {
	out := []string{}
	for _, p := range a.Paragraphs {
		out = append(out, p.Title)
	}
	return out
}

func ask(t *testing.T, method, address, body string, status int) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	require.NoError(t, err)
	reply, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer reply.Body.Close()
	require.Equal(t, status, reply.StatusCode)
	var a answer
	require.NoError(t, json.NewDecoder(reply.Body).Decode(&a))
	return a
}

func TestTheBestParagraphsComeFirst(t *testing.T) {
	t.Parallel()
	base := serve(t)
	for query, want := range map[string][]string{
		"Who was the president of the association?": {"Stanley Hall"},
		"presidents":                  {"Berlin", "Stanley Hall"},
		`"city" AND NOT (Spree OR x*`: {"Berlin", "Bonn", "Paris"},
		"strasse STRASSE straße":      {""},
		"nothing":                     {},
	} {
		a := ask(t, http.MethodGet, base+"/search?query="+url.QueryEscape(query), "", http.StatusOK)
		if strings.HasPrefix(query, "presidents") || strings.HasPrefix(query, `"city"`) {
			require.ElementsMatch(t, want, titles(a), query)
		} else {
			require.Equal(t, want, titles(a)[:len(want)], query)
		}
		body, err := json.Marshal(map[string]any{"query": query, "limit": 5})
		require.NoError(t, err)
		require.Equal(t, a, ask(t, http.MethodPost, base+"/search", string(body), http.StatusOK))
	}
	require.Len(t, ask(t, http.MethodGet, base+"/search?query=city&limit=1", "", http.StatusOK).Paragraphs, 1)
}

func TestBadSearchesAreRefused(t *testing.T) {
	t.Parallel()
	base := serve(t)
	for address, want := range map[string]string{
		"/search": "no words", "/search?query=%3F%21": "no words", "/search?query=a&limit=51": "give 1 to 50", "/search?query=a&limit=-1": "give 1 to 50",
		"/search?query=a&limit=x": "not a whole number",
	} {
		require.Contains(t, ask(t, http.MethodGet, base+address, "", http.StatusBadRequest).Error, want)
	}
	require.Contains(t, ask(t, http.MethodPost, base+"/search", `{"query": 3}`, http.StatusBadRequest).Error, "want {")
	_, err := retrieval.NewIndex(t.Context(), nil)
	require.ErrorContains(t, err, "it is empty")
}

func TestAgentsSearchOverMCP(t *testing.T) {
	t.Parallel()
	base := serve(t)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: base + "/mcp"}, nil)
	require.NoError(t, err)
	defer session.Close()
	tools, err := session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, tools.Tools, 1)
	require.Equal(t, "search", tools.Tools[0].Name)
	reply, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "search", Arguments: map[string]any{"query": "president of the association", "limit": 1}})
	require.NoError(t, err)
	require.False(t, reply.IsError)
	text, ok := reply.Content[0].(*mcp.TextContent)
	require.True(t, ok)
	var a answer
	require.NoError(t, json.Unmarshal([]byte(text.Text), &a))
	require.Equal(t, []string{"Stanley Hall"}, titles(a))
	reply, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "search", Arguments: map[string]any{"query": "?"}})
	require.NoError(t, err)
	require.True(t, reply.IsError, "the model is told what is wrong")
}

func TestBadCorporaAreNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``: "no paragraphs: it holds none", `[]`: "no paragraphs: it holds none", `{"id": "a", "paragraphs": []}`: "no paragraphs",
		`{"id": "a"}`: ":1: neither paragraphs", `[{"context": [["a"]]}]`: "row 0: context[0] is no", `{"paragraphs": [{"title": "t"}]}`: ":1: paragraphs[0]: no paragraph_text",
		`{"text": ""}`: ":1: empty text", `{"paragraphs": 3}`: "paragraphs is not a list",
	} {
		path := filepath.Join(t.TempDir(), "corpus")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := tasks.ReadParagraphs(path)
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, path, text)
	}
}
