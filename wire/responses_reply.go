package wire

import "encoding/json"

// response is the JSON of a response. It holds the sampled reply and repeats the settings
// of its request.
type response struct {
	ID                string             `json:"id"`
	Object            string             `json:"object"`
	CreatedAt         int64              `json:"created_at"`
	Status            string             `json:"status"`
	Background        bool               `json:"background"`
	Error             *string            `json:"error"`
	IncompleteDetails *incompleteDetails `json:"incomplete_details"`
	Instructions      json.RawMessage    `json:"instructions"`
	MaxOutputTokens   json.RawMessage    `json:"max_output_tokens"`
	MaxToolCalls      json.RawMessage    `json:"max_tool_calls"`
	Model             string             `json:"model"`
	Output            []any              `json:"output"`
	ParallelToolCalls json.RawMessage    `json:"parallel_tool_calls"`
	PreviousID        *string            `json:"previous_response_id"`
	Reasoning         json.RawMessage    `json:"reasoning"`
	ServiceTier       string             `json:"service_tier"`
	Store             json.RawMessage    `json:"store"`
	Temperature       json.RawMessage    `json:"temperature"`
	Text              json.RawMessage    `json:"text"`
	ToolChoice        json.RawMessage    `json:"tool_choice"`
	Tools             json.RawMessage    `json:"tools"`
	TopLogprobs       int                `json:"top_logprobs"`
	TopP              json.RawMessage    `json:"top_p"`
	Truncation        json.RawMessage    `json:"truncation"`
	Usage             *responseUsage     `json:"usage"`
	User              json.RawMessage    `json:"user"`
	Metadata          json.RawMessage    `json:"metadata"`
}

type incompleteDetails struct {
	Reason string `json:"reason"`
}

type responseUsage struct {
	InputTokens   int           `json:"input_tokens"`
	InputDetails  inputDetails  `json:"input_tokens_details"`
	OutputTokens  int           `json:"output_tokens"`
	OutputDetails outputDetails `json:"output_tokens_details"`
	TotalTokens   int           `json:"total_tokens"`
}

type inputDetails struct {
	CachedTokens     int `json:"cached_tokens"`
	CacheWriteTokens int `json:"cache_write_tokens"`
}

type outputDetails struct {
	ReasoningTokens int `json:"reasoning_tokens"`
}

// responseHead returns a response whose result is not known yet.
func (r *Request) responseHead(head Reply) response {
	var asked map[string]json.RawMessage
	_ = json.Unmarshal(r.Body, &asked) // a request that was made by hand has none
	or := func(name, otherwise string) json.RawMessage {
		if given(asked[name]) {
			return asked[name]
		}
		return json.RawMessage(otherwise)
	}
	return response{
		ID: Responses.ReplyID(head.ID), Object: "response", CreatedAt: head.Created.Unix(), Status: "in_progress",
		Model: head.Model, Output: []any{}, PreviousID: nullable(r.Previous), ServiceTier: "default", TopLogprobs: r.TopLogprobs,
		Instructions: or("instructions", `null`), MaxOutputTokens: or("max_output_tokens", `null`), MaxToolCalls: or("max_tool_calls", `null`),
		ParallelToolCalls: or("parallel_tool_calls", `true`), Reasoning: or("reasoning", `{"effort":null,"summary":null}`),
		Store: or("store", `true`), Temperature: or("temperature", `1`), Text: or("text", `{"format":{"type":"text"}}`),
		ToolChoice: or("tool_choice", `"auto"`), Tools: or("tools", `[]`), TopP: or("top_p", `1`),
		Truncation: or("truncation", `"disabled"`), User: or("user", `null`), Metadata: or("metadata", `{}`),
	}
}

// response returns a whole response with its items.
func (r *Request) response(reply Reply, output []any) response {
	body, c := r.responseHead(reply), reply.Choices[0]
	body.Status, body.Output = "completed", output
	if c.finish() == Length {
		body.Status, body.IncompleteDetails = "incomplete", &incompleteDetails{"max_output_tokens"}
	}
	body.Usage = &responseUsage{InputTokens: reply.PromptTokens, OutputTokens: c.Tokens, TotalTokens: reply.PromptTokens + c.Tokens}
	return body
}
