package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// shapeOf returns the API whose shape the answer gets if the route belongs to no API.
// Clients of Messages send a header with the API's version.
func shapeOf(r *http.Request) wire.API {
	if r.Header.Get("Anthropic-Version") != "" || strings.HasPrefix(endpoint(r), "/v1/messages") {
		return wire.Messages
	}
	return wire.Chat
}

// attemptModels lists the versions that answer in an attempt: one of each policy.
func (g *Gateway) attemptModels(w http.ResponseWriter, r *http.Request, c *conversation.Conversation) error {
	terms := c.Begun().Terms
	policies := terms.Policies
	if len(policies) == 0 {
		policies = []record.PolicyRule{{Policy: terms.Policy}}
	}
	var names []string
	for _, p := range policies {
		names = append(names, model.VersionID{Run: c.Address().Run, Policy: p.Policy, Number: terms.VersionOf(p.Policy)}.String())
	}
	_ = write(w, http.StatusOK, shapeOf(r).Models(names)) // an error means that the client has left
	return nil
}

// attemptModel accepts any name: the attempt's version answers, whatever model an agent
// names.
func (g *Gateway) attemptModel(w http.ResponseWriter, r *http.Request, _ *conversation.Conversation) error {
	_ = write(w, http.StatusOK, shapeOf(r).Model(r.PathValue("id"))) // an error means that the client has left
	return nil
}

func (g *Gateway) models(w http.ResponseWriter, r *http.Request) error {
	names, err := g.config.Versions.List(r.Context())
	if err != nil {
		return fmt.Errorf("list versions: %w", err)
	}
	_ = write(w, http.StatusOK, shapeOf(r).Models(names)) // an error means that the client has left
	return nil
}

func (g *Gateway) model(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("id")
	if _, err := g.resolve(r, name); err != nil {
		return err
	}
	_ = write(w, http.StatusOK, shapeOf(r).Model(name)) // an error means that the client has left
	return nil
}

// writeJSON answers with v. It ignores errors, which mean that the client has left.
func writeJSON(w http.ResponseWriter, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fault(fmt.Errorf("encode reply: %w", err))
	}
	_ = write(w, http.StatusOK, body)
	return nil
}

// Embeddings says where requests for embeddings are sent: to a server of OpenAI's
// embeddings API. Its model is not one that is trained or served here.
type Embeddings struct {
	// URL is the server's base URL, up to "/v1"; if it is empty, there is no server.
	URL string
	// Option is how the process that has this gateway is told of a server, in the words of
	// its command line; empty, it can't be told.
	Option string
	// Key is sent as Authorization: Bearer; if it is empty, nothing is sent.
	Key string
	// Model replaces the model's name in requests; if it is empty, the name stays.
	Model string
	// Client sends the requests; nil is a client that gives up after 5 minutes.
	Client *http.Client
}

const (
	// embeddingsBytes is the most bytes of a reply.
	embeddingsBytes = 64 << 20
	// embeddingsTimeout is how long a reply may take.
	embeddingsTimeout = 5 * time.Minute
)

// newEmbeddingsClient returns a client for a server that may be behind a proxy.
func newEmbeddingsClient() *http.Client {
	return &http.Client{
		Timeout: embeddingsTimeout,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 64, ForceAttemptHTTP2: true,
		},
	}
}

// embeddings passes a request on. It is no call of the policy, so it is not recorded.
func (g *Gateway) embeddings(w http.ResponseWriter, r *http.Request) error {
	e := g.config.Embeddings
	if e.URL == "" {
		advice := "give the agent the address of a server of embeddings"
		if e.Option != "" {
			advice += ", or start this gateway with " + e.Option
		}
		return unknownURL(nil, "no embeddings are served here: %s", advice)
	}
	body, err := g.readBody(w, r)
	if err != nil {
		return err
	}
	if body, err = e.renamed(body); err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, strings.TrimSuffix(e.URL, "/")+"/embeddings", bytes.NewReader(body))
	if err != nil {
		return fault(fmt.Errorf("ask for embeddings: %w", err))
	}
	request.Header.Set("Content-Type", "application/json")
	if e.Key != "" {
		request.Header.Set("Authorization", "Bearer "+e.Key)
	}
	response, err := e.Client.Do(request)
	if err != nil {
		return fault(fmt.Errorf("ask for embeddings: %w", err))
	}
	defer func() { _ = response.Body.Close() }()
	reply, err := io.ReadAll(io.LimitReader(response.Body, embeddingsBytes+1))
	if err != nil {
		return fault(fmt.Errorf("read embeddings: %w", err))
	}
	if len(reply) > embeddingsBytes {
		return fault(fmt.Errorf("the server of embeddings answered with more than %d bytes", embeddingsBytes))
	}
	if response.StatusCode >= http.StatusInternalServerError {
		return fault(fmt.Errorf("the server of embeddings answered %s", response.Status))
	}
	if after := response.Header.Get("Retry-After"); after != "" {
		w.Header().Set("Retry-After", after)
	}
	_ = write(w, response.StatusCode, reply) // an error means that the client has left
	return nil
}

// renamed returns the body with the configured model.
func (e *Embeddings) renamed(body []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := wire.Unmarshal(body, &fields); err != nil {
		return nil, err
	}
	if fields == nil {
		return nil, wire.Invalid("input", "input is missing")
	}
	if e.Model == "" {
		return body, nil
	}
	fields["model"], _ = json.Marshal(e.Model) // strings always encode
	renamed, err := json.Marshal(fields)
	if err != nil {
		return nil, fault(fmt.Errorf("encode request for embeddings: %w", err))
	}
	return renamed, nil
}
