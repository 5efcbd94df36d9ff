package wire

import "fmt"

// ReplyID is the id of a reply as clients see it, made of the id that all its parts
// share.
func (api API) ReplyID(id string) string {
	switch api {
	case Completions:
		return "cmpl-" + id
	case Responses:
		return "resp_" + id
	case Messages:
		return "msg_" + id
	}
	return "chatcmpl-" + id
}

// The ids of a response's items.
func messageID(id string) string     { return "msg_" + id }
func reasoningID(id string) string   { return "rs_" + id }
func callID(id string, k int) string { return fmt.Sprintf("fc_%s_%d", id, k) }
