package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/internal/truncate"
)

// ReadReply reads the result of an external agent: an object with a result and perhaps a
// reward, any other JSON, or plain text. An object {"retry": "why"} asks for another
// attempt. A reward that is not a number, or beyond limit
// (0 is no limit), is reported in Result.RewardError. A result that is too long is the
// agent's failure.
func ReadReply(body []byte, limit float64) Result {
	body = bytes.TrimSpace(body)
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(withoutNaN(body), &fields); err != nil || fields == nil {
		return whole(plain(body))
	}
	if reason, ok := retryOf(fields); ok {
		return Result{Failure: Retry, Message: truncate.Head(reason, messageBytes)}
	}
	result, given := fields["result"]
	reward, rewarded := fields["reward"]
	if !given && !rewarded {
		return whole(plain(body))
	}
	out := whole(plain(result))
	if rewarded && !out.Failed() {
		out.Reward, out.RewardError = readReward(reward, limit)
	}
	return out
}

// retryOf returns the reason of a reply that asks for another attempt. It has a text that is
// not empty under "retry", and no keys but those of a result beside it.
func retryOf(fields map[string]json.RawMessage) (reason string, ok bool) {
	if json.Unmarshal(fields["retry"], &reason) != nil || strings.TrimSpace(reason) == "" {
		return "", false
	}
	for key := range fields {
		if key != "retry" && key != "result" && key != "reward" {
			return "", false
		}
	}
	return reason, true
}

func whole(text string) Result { return resultOf(text, len(text)) }

// withoutNaN puts quotes around NaN and Infinity, which Python's JSON encoder writes but
// JSON does not have. Valid JSON is returned unchanged.
func withoutNaN(body []byte) []byte {
	if json.Valid(body) {
		return body
	}
	return notFinite.ReplaceAllFunc(body, func(part []byte) []byte {
		if part[0] == '"' {
			return part
		}
		return slices.Concat([]byte{'"'}, part, []byte{'"'})
	})
}

// notFinite matches the texts of JSON, and the numbers outside them that are not finite.
var notFinite = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\bNaN\b|-?\bInfinity\b`)

// plain returns the text of a JSON string, nothing for null, and other JSON unchanged.
func plain(value []byte) string {
	if string(value) == "null" {
		return ""
	}
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return strings.ToValidUTF8(string(value), "\uFFFD")
}

// LastReward returns the reward that the last line of a result claims: JSON
// {"reward": number}, or a bare number if bare is true. Most bare numbers are answers, so
// the caller decides whether they count. A refusal says why a claim does not count.
func LastReward(text string, limit float64, bare bool) (reward *float64, refusal string) {
	line := lastLine(text)
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) == nil {
		if value, ok := fields["reward"]; ok {
			return readReward(value, limit)
		}
		return nil, ""
	}
	if bare && isNumber(line) {
		return readReward(line, limit)
	}
	return nil, ""
}

// EndsWithNumber reports whether the last line of a result is a bare number.
func EndsWithNumber(text string) bool { return isNumber(lastLine(text)) }

func lastLine(text string) []byte {
	text = strings.TrimSpace(text)
	return []byte(strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]))
}

func isNumber(line []byte) bool {
	var number json.Number
	return len(line) > 0 && line[0] != '"' && line[0] != 'n' && json.Unmarshal(line, &number) == nil
}

// readReward reads a number within the limit. Null is no reward.
func readReward(value json.RawMessage, limit float64) (reward *float64, refusal string) {
	if string(value) == "null" {
		return nil, ""
	}
	var number float64
	if err := json.Unmarshal(value, &number); err != nil {
		return nil, fmt.Sprintf("report reward: %s is not a number", truncate.Head(string(value), 80))
	}
	r := rewardReport{limit: limit}
	_ = r.set(number) // last returns the refusal again
	return r.last()
}
