package wire

// completionsReply is the JSON of a completion, whole or a piece of it.
type completionsReply struct {
	ID      string              `json:"id"`
	Object  string              `json:"object"`
	Created int64               `json:"created"`
	Model   string              `json:"model"`
	Choices []completionsChoice `json:"choices"`
	Usage   *openUsage          `json:"usage"`
}

type completionsChoice struct {
	Index        int           `json:"index"`
	Text         string        `json:"text"`
	Logprobs     *textLogprobs `json:"logprobs"`
	FinishReason *Finish       `json:"finish_reason"`
}

func (r *Request) completionsReply(reply Reply) completionsReply {
	body := completionsHead(reply)
	usage := reply.usage()
	body.Usage = &usage
	for i, c := range reply.Choices {
		finish := c.finish()
		choice := completionsChoice{Index: i, Text: c.Message.Content, FinishReason: &finish}
		if r.Logprobs {
			choice.Logprobs, _ = textLogprobsOf(c.Logprobs, 0)
		}
		body.Choices = append(body.Choices, choice)
	}
	return body
}

func completionsHead(head Reply) completionsReply {
	return completionsReply{
		ID: Completions.ReplyID(head.ID), Object: "text_completion", Created: head.Created.Unix(), Model: head.Model,
		Choices: []completionsChoice{},
	}
}
