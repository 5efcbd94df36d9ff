package chatclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/internal/truncate"
)

// defaultMaxTokens is what a reply may have where the API requires a number. Every model of
// this API accepts it.
const defaultMaxTokens = 4096

// messageRequest is the body of a request of Anthropic's API.
type messageRequest struct {
	Model     string           `json:"model"`
	MaxTokens int              `json:"max_tokens"`
	System    string           `json:"system,omitempty"`
	Messages  []messageOf      `json:"messages"`
	Metadata  *messageMetadata `json:"metadata,omitempty"`
}

type messageOf struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type messageMetadata struct {
	UserID string `json:"user_id"`
}

// messageReply is the body of a reply.
type messageReply struct {
	Type    string `json:"type"`
	Model   string `json:"model"`
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	StopReason string `json:"stop_reason"`
	Usage      struct {
		Input      int `json:"input_tokens"`
		CacheRead  int `json:"cache_read_input_tokens"`
		CacheWrite int `json:"cache_creation_input_tokens"`
		Output     int `json:"output_tokens"`
	} `json:"usage"`
	Error *struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

// messageError is the error of a reply that is no message.
type messageError struct {
	status int
	text   string
}

func (e *messageError) Error() string { return fmt.Sprintf("status code: %d, %s", e.status, e.text) }

func (c *Client) askAnthropic(ctx context.Context, q Request) (Reply, error) {
	body, err := json.Marshal(c.message(q))
	if err != nil {
		return Reply{}, fmt.Errorf("encode request: %w", err)
	}
	url := strings.TrimSuffix(c.options.URL, "/v1") + "/v1/messages"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return Reply{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Anthropic-Version", "2023-06-01")
	if c.options.Key != "" {
		request.Header.Set(keyHeader, c.options.Key)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return Reply{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return Reply{}, fmt.Errorf("read reply with status %d: %w", response.StatusCode, err)
	}
	return readMessage(response.StatusCode, text)
}

func (c *Client) message(q Request) messageRequest {
	request := messageRequest{Model: c.options.Model, MaxTokens: q.MaxTokens}
	if request.MaxTokens == 0 {
		request.MaxTokens = defaultMaxTokens
	}
	var system []string
	for _, m := range q.Messages {
		if m.Role == System {
			system = append(system, m.Content)
			continue
		}
		request.Messages = append(request.Messages, messageOf(m))
	}
	request.System = strings.Join(system, "\n\n")
	if q.Repeat > 0 { // the API has no seed
		request.Metadata = &messageMetadata{UserID: "repeat-" + strconv.Itoa(q.Repeat)}
	}
	return request
}

func readMessage(status int, text []byte) (Reply, error) {
	if status == http.StatusOK && len(bytes.TrimSpace(text)) == 0 {
		return Reply{}, io.EOF
	}
	var r messageReply
	if err := json.Unmarshal(text, &r); err != nil || r.Type != "message" {
		why := "no message but " + strconv.Quote(truncate.Ellipsis(string(text), 300))
		if err == nil && r.Error != nil {
			why = r.Error.Type + ": " + r.Error.Message
		}
		return Reply{}, &messageError{status, why}
	}
	if status != http.StatusOK {
		return Reply{}, &messageError{status, "a message that is not to be used"}
	}
	reply := Reply{
		CutOff: r.StopReason == "max_tokens" || r.StopReason == "model_context_window_exceeded", Model: r.Model,
		Usage: Usage{r.Usage.Input + r.Usage.CacheRead + r.Usage.CacheWrite, r.Usage.Output},
	}
	for _, part := range r.Content {
		if part.Type == "text" { // and not what the model thought
			reply.Text += part.Text
		}
	}
	return reply, nil
}

const keyHeader = "X-Api-Key"

// movedError says that a server sends requests, and so the key, to another one.
type movedError struct{ to string }

func (e *movedError) Error() string {
	return "the server sends its requests on to " + e.to + ", which would get the key: set that address if you trust it"
}

// stayAtHost follows redirects on the same host. Go removes the key of OpenAI's API from
// requests to other hosts, but it does not know this header.
func stayAtHost(r *http.Request, via []*http.Request) error {
	switch {
	case len(via) >= 10:
		return errors.New("too many redirects")
	case r.URL.Host != via[0].URL.Host || r.URL.Scheme != via[0].URL.Scheme:
		return &movedError{r.URL.Scheme + "://" + r.URL.Host}
	}
	return nil
}
