package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/model/sampler/upstream"
)

// Server is an external sampling server that answered.
type Server struct {
	URL string `json:"url"`
	// Version is vLLM's version, empty for other servers.
	Version string `json:"version,omitempty"`
	// Models are the names that it serves, adapters among them.
	Models []ServedModel `json:"models"`
	// Adapters is how many adapters vLLM samples from at once, or 0 if it does not report
	// that.
	Adapters int `json:"adapters,omitempty"`
}

// ServedModel is a model that a server serves.
type ServedModel struct {
	ID string `json:"id"`
	// Context is the maximum number of tokens of prompt and reply together, or 0 if the
	// server does not report it.
	Context int `json:"max_model_len,omitempty"`
}

// answerBytes bounds the reply of a server.
const answerBytes = 4 << 20

// askServer asks for the models of the server at url, and for its version. key names the
// environment variable with its API key, if it wants one.
func askServer(ctx context.Context, url, key string) (Server, error) {
	s := Server{URL: strings.TrimRight(url, "/")}
	var list struct {
		Data []ServedModel `json:"data"`
	}
	if err := askJSON(ctx, s.URL+"/v1/models", key, &list); err != nil {
		return s, err
	}
	s.Models = list.Data
	var about struct {
		Version string `json:"version"`
	}
	if askJSON(ctx, s.URL+"/version", key, &about) == nil { // only vLLM has it
		s.Version = about.Version
	}
	if metrics, err := askText(ctx, s.URL+"/metrics", key); err == nil {
		s.Adapters = upstream.AdapterSlots(strings.NewReader(metrics))
	}
	return s, nil
}

func askJSON(ctx context.Context, url, key string, to any) error {
	text, err := askText(ctx, url, key)
	if err == nil && json.Unmarshal([]byte(text), to) != nil {
		err = fmt.Errorf("%s answered %q, which is not what was asked", url, shortened(text))
	}
	return err
}

// askText returns the reply of a GET request to url, up to answerBytes.
func askText(ctx context.Context, url, key string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("make request: %w", err)
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+os.Getenv(key))
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err // it names the address
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerBytes))
	switch {
	case err != nil:
		return "", fmt.Errorf("ask %s: %w", url, err)
	case response.StatusCode == http.StatusUnauthorized && key == "":
		return "", fmt.Errorf("%s needs an API key: name the environment variable that holds it in sampling.server.key", url)
	case response.StatusCode != http.StatusOK:
		return "", fmt.Errorf("%s answered %s", url, response.Status)
	}
	return string(body), nil
}

func (s Server) text() string {
	text := s.URL
	if s.Version != "" {
		text += ", vLLM " + s.Version
	}
	if s.Adapters > 0 {
		text += ", " + readable.Count(s.Adapters, "adapter") + " at once"
	}
	const shown = 5
	for i, m := range s.Models {
		if i == shown {
			text += fmt.Sprintf(", and %d more", len(s.Models)-shown)
			break
		}
		text += ", " + m.ID
		if m.Context > 0 {
			text += fmt.Sprintf(" (%d tokens)", m.Context)
		}
	}
	return text
}

// serves reports whether a model of that name is there.
func (s Server) serves(model string) bool {
	return slices.ContainsFunc(s.Models, func(m ServedModel) bool { return m.ID == model })
}

// isSilent reports whether err means that nothing listens at the address, or that nothing
// answered.
func isSilent(err error) bool {
	var late interface{ Timeout() bool }
	return errors.As(err, &late) && late.Timeout() || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "connection refused")
}
