package remote

import (
	"io"

	"github.com/fulgurite/fulgurite/model"
)

// ReadStream reads a streamed reply as a client does.
func ReadStream(body io.Reader, emit func(token int32, logprob float32)) (model.Completion, error) {
	reply, err := readStream(body, emit)
	if err != nil {
		return model.Completion{}, err
	}
	return reply.completion()
}
