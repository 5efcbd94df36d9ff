package remote

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// errBrokenStream is the error of a streamed reply that has no last line, or whose last
// line does not agree with the lines before it.
var errBrokenStream = errors.New("broken stream")

// lineBytes is enough for a few lines of the usual length.
const lineBytes = 512

// line is any line of a streamed reply.
type line struct {
	Token   *int32     `json:"token"`
	Logprob float32    `json:"logprob"`
	Error   *wireError `json:"error"`
	sampleReply
}

// readStream calls emit for each token and returns the whole reply.
func readStream(body io.Reader, emit func(token int32, logprob float32)) (sampleReply, error) {
	lines := bufio.NewReaderSize(io.LimitReader(body, 2*replyBytes), lineBytes) // the stream has all tokens twice
	var received sampleReply
	var l line
	for {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return sampleReply{}, fmt.Errorf("%w: it ends after %d tokens", errBrokenStream, len(received.Tokens))
		}
		if err != nil {
			return sampleReply{}, fmt.Errorf("read stream after %d tokens: %w", len(received.Tokens), err)
		}
		l = line{}
		if err := json.Unmarshal(text, &l); err != nil {
			return sampleReply{}, fmt.Errorf("%w: decode line %d: %w", errBrokenStream, len(received.Tokens)+1, err)
		}
		switch {
		case l.Error != nil:
			return sampleReply{}, errorOf(*l.Error)
		case l.Token != nil:
			received.Tokens, received.Logprobs = append(received.Tokens, *l.Token), append(received.Logprobs, l.Logprob)
			emit(*l.Token, l.Logprob)
		case !slices.Equal(received.Tokens, l.Tokens) || !slices.Equal(received.Logprobs, l.Logprobs):
			return sampleReply{}, fmt.Errorf("%w: its %d tokens are not the %d of the reply", errBrokenStream, len(received.Tokens), len(l.Tokens))
		default:
			_, _ = io.Copy(io.Discard, lines) // there is no more, but a connection is reused only if it was read to its end
			return l.sampleReply, nil
		}
	}
}
